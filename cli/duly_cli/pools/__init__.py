"""Pools of workers, and what the autoscaler plans for them."""
