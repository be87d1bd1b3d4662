"""How each process of Duly runs: loop, logs, metrics, clock, failpoints."""
