"""The `duly` command."""

import os

import duly_core.rpc.environment  # noqa: F401 (before anything loads gRPC)

# What gRPC's core has to say comes as an error of ours, in one line.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
