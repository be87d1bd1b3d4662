"""What the store's statements touch as its tables grow, and under a snapshot that somebody holds."""
