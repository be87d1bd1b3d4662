"""Hosts, services and queues."""
