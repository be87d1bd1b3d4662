"""Pools of workers, and the plan of how many workers each has."""
