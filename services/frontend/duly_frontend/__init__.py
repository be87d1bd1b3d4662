"""The Frontend: what client services call; writes tasks and their next triggers to the store."""
