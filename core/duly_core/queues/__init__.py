"""The queues: the port, and its two backends."""
