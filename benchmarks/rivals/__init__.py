"""The systems that Duly is measured beside: each is an application, a submitter and how to start it."""
