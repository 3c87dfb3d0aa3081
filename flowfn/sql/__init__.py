"""One operation in one transaction, blocking or awaited."""
