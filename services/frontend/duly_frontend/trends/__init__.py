"""What happened lately, for charts."""
