"""Cells beside each other: what a task costs in 1, 2 and 4 of them, at one rate and at one for each, what an idle one costs, the loss of one, and a model to 100."""
