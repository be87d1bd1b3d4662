"""Lambdas and their policies."""
