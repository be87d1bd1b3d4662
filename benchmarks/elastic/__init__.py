"""Elastic workers against fixed pools and reactive scaling: a simulated day, and some minutes for real."""
