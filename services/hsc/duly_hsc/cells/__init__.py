"""One HSC before several cells: which of them a call is for, and what becomes of calls while one is away."""
