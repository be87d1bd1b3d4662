"""Kills what overruns, does not answer, or is stopped."""
