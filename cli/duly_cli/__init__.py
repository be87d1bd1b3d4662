"""The `duly` command."""
