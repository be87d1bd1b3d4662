"""A web site with Django: settings, addresses and a view. `lambdas.py`, beside it, is what the worker runs."""
