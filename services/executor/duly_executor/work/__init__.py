"""Where work comes from, and how much is asked for."""
