"""The commands for chores: folders with a command and its files."""
