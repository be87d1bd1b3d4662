"""Addresses of one use: the holder of one sends one event, without a login (decision 0100)."""
