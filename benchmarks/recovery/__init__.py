"""How fast Duly recovers when its parts are killed, and what it does not lose: `make bench-recovery`."""
