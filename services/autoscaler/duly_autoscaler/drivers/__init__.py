"""Drivers: what starts and ends the workers of pools."""
