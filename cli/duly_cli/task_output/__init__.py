"""What tasks print and log, on the command line."""
