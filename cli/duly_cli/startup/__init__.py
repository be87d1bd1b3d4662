"""How the command starts: light, with completion and options."""
