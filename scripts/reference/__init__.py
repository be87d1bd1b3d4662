"""Writes docs/reference from the code: `python -m scripts.reference`, or `make reference`."""
