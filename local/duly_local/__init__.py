"""`duly up`: the whole of Duly on one machine, under one supervisor."""
