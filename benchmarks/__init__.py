"""Measurements of Duly; run them on a quiet machine: `make bench`."""

CALLBACK_ENVIRONMENT = {"DULY_EXECUTOR_CALLBACK_ENVIRONMENT": "DULY_BENCH_*"}
"""For the environment of each worker: callbacks of the benchmarks read these variables."""
