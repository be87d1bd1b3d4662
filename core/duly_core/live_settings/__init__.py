"""Settings that operators change while Duly runs."""
