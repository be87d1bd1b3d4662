"""`duly server`: Frontend, Store Consumer and HSC in one process."""
