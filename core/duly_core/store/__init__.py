"""The task store on Postgres: only Frontend, Store Consumer and HSC import it."""
