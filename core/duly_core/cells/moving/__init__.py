"""Moving a cell to another Postgres, by logical replication: publication, copy, fence, switch."""
