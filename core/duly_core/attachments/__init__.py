"""Attachments: files that tasks use, stored once for a namespace, removed with the last task that uses them."""
