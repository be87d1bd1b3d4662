"""The services in one process, on a store whose clock is stepped: they do what is due when they are told to."""
