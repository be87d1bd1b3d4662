"""Events: what callers send to a key, and callbacks wait for."""
