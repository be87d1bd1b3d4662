"""The statements of attachments."""

from duly_core.postgres.statements import load

ATTACHMENTS = load("attachments/attachments.sql")
SWEEPS = load("attachments/sweeps.sql")
