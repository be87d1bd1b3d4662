"""What is wrong now: how Frontends find it, bounded, and keep it for all who ask."""
