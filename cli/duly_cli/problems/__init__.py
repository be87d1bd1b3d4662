"""What is wrong now."""
