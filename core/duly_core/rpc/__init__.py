"""gRPC as Duly uses it: servers with health and reflection, channels with deadlines, errors as statuses."""
