"""Graphs of tasks: their rules, and the store of them."""
