"""What keeps the store small and true: retention, partitions, fences, the clock."""
