"""What Duly's services share. The SDK never imports it."""
