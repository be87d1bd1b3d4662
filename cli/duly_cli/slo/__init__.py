"""The command that shows how what is promised is kept."""
