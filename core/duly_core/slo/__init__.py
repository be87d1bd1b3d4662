"""What is promised, and how much of it is kept: shares, error budgets, burn rates."""
