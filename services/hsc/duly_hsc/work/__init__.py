"""Work for the callers of ClaimWork: who waits, what is due, whose turn it is, and who gets what was claimed."""
