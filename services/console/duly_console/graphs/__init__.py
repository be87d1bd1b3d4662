"""How graphs are drawn and summed up."""
