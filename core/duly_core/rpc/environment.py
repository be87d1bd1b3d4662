"""Sets what gRPC reads from the environment when it is imported: a program imports this before all else.

Set later it has no effect: gRPC's fork handlers start threads in each child, which may crash before the child has become
the program that it was forked for.
"""

import os

# Nothing of ours forks without exec, and the handlers log a line for each process that a worker starts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# gRPC's older engine of I/O passes a call through fewer threads: a call between two processes takes 0.7 of the time,
# and of the CPU (docs/decisions/0020-a-lone-tasks-way.md).
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
