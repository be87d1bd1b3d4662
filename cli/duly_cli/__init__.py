"""The `duly` command."""

import os

# Before anything loads gRPC: nothing of ours forks without exec, and its fork handlers would log a line for
# each process that a worker starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# What gRPC's core has to say comes as an error of ours, in one line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
