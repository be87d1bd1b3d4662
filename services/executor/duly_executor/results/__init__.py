"""How ends of attempts reach the HSC."""
