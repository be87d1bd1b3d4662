"""How many of each part a load needs."""
