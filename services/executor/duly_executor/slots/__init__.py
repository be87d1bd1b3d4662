"""Slots, and for whom they are reserved."""
