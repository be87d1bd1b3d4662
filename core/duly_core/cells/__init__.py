"""Cells: stores beside each other. A namespace lives in one of them, and the directory says in which."""
