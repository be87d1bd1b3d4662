"""Resources: limits that tasks share while they run."""
