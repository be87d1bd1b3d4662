"""How commands write: tables, JSON, durations, errors."""
