"""The stack on this machine."""
