"""What need not be done again."""
