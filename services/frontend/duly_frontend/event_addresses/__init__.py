"""Addresses of one use: the holder of one sends one event, without a login."""
