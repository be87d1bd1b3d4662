"""Makes the pictures of the console that the documentation shows."""
