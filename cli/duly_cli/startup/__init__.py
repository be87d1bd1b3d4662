"""How the command and the services that it runs start."""
