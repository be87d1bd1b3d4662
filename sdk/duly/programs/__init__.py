"""Lambdas in any language: a program that reads tasks from its stdin and writes results to its stdout.

`duly worker --exec ./handler --lambda NAME` runs one; docs/programs.md has the messages.
"""

from duly.programs.definition import application, program_app

__all__ = ["application", "program_app"]
