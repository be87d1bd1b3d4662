"""The version of Duly that this process runs."""

from functools import cache


@cache
def duly_version() -> str:
    """Return it as the installed distribution has it; empty: it is not installed as one."""
    from importlib.metadata import PackageNotFoundError, version  # it loads much for one question

    try:
        return version("duly")
    except PackageNotFoundError:
        return ""
