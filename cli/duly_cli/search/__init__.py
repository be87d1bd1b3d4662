"""`duly search`."""
