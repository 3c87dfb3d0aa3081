"""What one thread remembers."""
