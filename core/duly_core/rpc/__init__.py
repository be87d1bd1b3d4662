"""gRPC as Duly uses it: servers with health and reflection, channels with deadlines, errors as statuses."""

import os

# Nothing of ours forks without exec, and gRPC's fork handlers log a line for each child that is started.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
