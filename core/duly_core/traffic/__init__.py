"""Many calls at once: committed together, in turns, and bounded."""
