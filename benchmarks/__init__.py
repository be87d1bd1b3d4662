"""Measurements of Duly; run them on a quiet machine: `make bench`."""
