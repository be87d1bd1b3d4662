"""Roles, grants, tokens and the audit log."""
