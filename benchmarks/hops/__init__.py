"""The floor of a lone task: the hops that it takes, with the libraries alone and no service."""
