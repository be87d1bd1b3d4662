"""Who may do what: principals, roles, and the table of RPCs."""
