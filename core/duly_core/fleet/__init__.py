"""Hosts and processes of services, as they reported themselves."""
