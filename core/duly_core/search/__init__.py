"""What people search for: parts of ids, names, keys, causes and attributes."""
