"""What a watcher sees."""
