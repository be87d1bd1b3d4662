"""Cells in the Frontend: a router before the servicers of each cell, and how answers of several become one."""
