"""Gates and breakers: what holds tasks back, and until when."""
