"""The settings that operators change while Duly runs."""
