"""Hours of steady work on a whole stack, and whether memory, files, connections and tables stay as they are."""
