"""How what is promised is kept."""
