"""The HSC (heartbeat and status controller): what Controllers and Executors tell the store."""
