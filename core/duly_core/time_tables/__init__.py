"""Time tables: rhythms, ticks, and the tasks that they become."""
