"""The Store Consumer: sends references to what is due to the queues, and handles timeouts."""
