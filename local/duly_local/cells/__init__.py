"""Several cells in the Postgres of the local stack: `duly up --cells 3`."""
