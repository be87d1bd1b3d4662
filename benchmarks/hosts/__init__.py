"""What each backend of the queue costs the store and the server as the number of hosts grows."""
