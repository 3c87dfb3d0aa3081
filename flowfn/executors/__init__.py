"""Where an attempt runs."""
