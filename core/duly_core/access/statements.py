"""The statements of tokens, grants and the audit log."""

from duly_core.postgres.statements import load

ACCESS = load("access/access.sql")
