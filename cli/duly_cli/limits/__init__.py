"""Resources, which bound what runs at a time."""
