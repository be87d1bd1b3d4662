"""The incident board: what is wrong, in words, with the commands that end it."""
