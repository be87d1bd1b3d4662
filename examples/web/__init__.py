"""One shop with three web frameworks. `lambdas.py` is what the worker runs; each site schedules in the transaction of its order."""
