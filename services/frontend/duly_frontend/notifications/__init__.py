"""Tells targets of problems: webhooks, Slack, e-mail."""
