"""Prints what is installed beside this Python, but Duly itself: NAME==VERSION, a line each."""

from importlib.metadata import distributions

found = {(each.name.lower(), each.version) for each in distributions() if each.name.lower() != "duly"}
print("\n".join(f"{name}=={version}" for name, version in sorted(found)))  # noqa: T201 (the Makefile reads it)
