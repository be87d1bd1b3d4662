"""Attachments: files that payloads and results name, uploaded and fetched in parts. Only `calls` loads gRPC."""
