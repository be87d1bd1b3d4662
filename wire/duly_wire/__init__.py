"""What the SDK and the services share: the stubs of the wire, enums, ids, times, channels, TLS."""
