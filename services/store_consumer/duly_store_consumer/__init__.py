"""The Store Consumer: polls what is due and sends references to the queues; picks up what fell silent."""
