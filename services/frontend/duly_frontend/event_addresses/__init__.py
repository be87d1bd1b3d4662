"""Addresses of one use: whoever has one sends one event, without a login."""
