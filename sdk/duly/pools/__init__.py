"""Pools of workers, which the autoscaler starts and ends."""
