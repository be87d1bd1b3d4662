"""Addresses of one use: whoever has one sends one event, without a login (decision 0100)."""
