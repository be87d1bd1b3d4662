"""Events that callers send to tasks that wait for them."""
