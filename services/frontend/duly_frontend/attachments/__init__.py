"""Attachments: uploads, fetches, and what tasks use."""
