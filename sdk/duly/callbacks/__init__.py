"""What runs callbacks: the registry, payloads, the call, its outcome."""
