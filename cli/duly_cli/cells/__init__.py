"""`duly cells`: the stores of an installation, and which namespace lives in which."""
