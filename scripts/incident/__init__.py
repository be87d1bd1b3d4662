"""Walks through an incident, and writes docs/incident.md with what it saw."""
