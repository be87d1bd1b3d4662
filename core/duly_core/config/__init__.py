"""Settings as they are read from the file and the environment, and what they may be."""
