"""Lambdas: names, policies, declarations, and the registry of them."""
