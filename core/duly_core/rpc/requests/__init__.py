"""Checks of requests: what passes is what the store will take."""
