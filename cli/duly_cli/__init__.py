"""The `duly` command."""

import os

# Before anything loads gRPC: nothing of ours forks without exec, and its fork handlers would log a line for
# each process that a worker starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# What gRPC's core has to say comes as an error of ours, in one line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# gRPC's older engine of I/O passes a call through fewer threads: a call between two processes takes 0.7 of the time,
# and of the CPU (docs/decisions/0020-a-lone-tasks-way.md).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
