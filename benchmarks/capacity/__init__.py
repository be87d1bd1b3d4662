"""What one task costs each process, as a model that is fitted to measurements: docs/capacity.md."""
