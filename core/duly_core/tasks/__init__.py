"""Tasks: scheduled, claimed, changed, found."""
