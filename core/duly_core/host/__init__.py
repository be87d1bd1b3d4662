"""What outlives a process on a host: journals, boards, control groups."""
