"""What a Store Consumer counts for people: backlog, dead letters, hosts, sessions, trends."""
