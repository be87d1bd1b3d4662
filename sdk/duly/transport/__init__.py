"""Calls to a Frontend: streams, batches, retries, errors."""
