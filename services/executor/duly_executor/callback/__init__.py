"""What runs in a callback process: user code on threads, and a socket to the Executor. No gRPC, no drivers."""
