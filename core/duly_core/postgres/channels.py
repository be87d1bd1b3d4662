"""The channels of NOTIFY: who listens looks at once, and not only at the next poll.

In the schema `public` they have these names. Elsewhere the name of the schema follows (`duly_channel`), for a database has one set of
channels, and two schemas must not wake each other.
"""

DUE_CHANNEL = "duly_due"
"""The payload is how many milliseconds ahead something is due (0: now), and of which lambdas: `250 mail.send,mail.sort`.
Without names: of any."""

TIME_TABLE_CHANNEL = "duly_time_table"
"""Told when the next tick of a time table may have changed, so that Store Consumers look at once."""

GATE_CHANNEL = "duly_gate"
"""Told when gates or breakers changed, so that every service reads them at once."""

NEW_LAMBDA_CHANNEL = "duly_lambda"
"""Told when lambdas were registered, so that Store Consumers look at their queues at once."""

SETTING_CHANNEL = "duly_setting"
"""Told when settings changed, so that Store Consumers read them at once; the poll finds the change without it."""

CHANNELS = (DUE_CHANNEL, TIME_TABLE_CHANNEL, GATE_CHANNEL, NEW_LAMBDA_CHANNEL, SETTING_CHANNEL)
