"""Gates and breakers."""
