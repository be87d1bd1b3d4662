"""The Controller: one a host; buffers references from the queues, claims, and hands work to the Executors."""
