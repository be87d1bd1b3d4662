"""The stack on this machine, and its database."""
