"""Claims that this Executor holds, and what keeps them alive."""
