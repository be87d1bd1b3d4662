"""Three versions of one application, for the walk through an incident: docs/incident.md."""
