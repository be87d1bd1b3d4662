"""Events that callers send, and the tasks that wait for them."""
