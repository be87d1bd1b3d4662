"""What happened lately, by the minute and by the hour: for charts, and for people who come late."""
