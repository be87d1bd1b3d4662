"""`duly demo`: index real files through a real stack, kill an Executor with -9, and check every result."""
