"""The conformance suite of workers: a Duly that loses answers, and what it judges (docs/workers.md)."""
