"""Tells open pages that what they show has changed, by server-sent events."""
