"""Checks of names in requests: of lambdas, collections, time tables and resources."""

from collections.abc import Container
from functools import lru_cache

from duly_core.lambdas.names import (
    DEFAULT_NAMESPACE,
    LAMBDA_NAME,
    NAMESPACE_MARK,
    PINNED_VERSION,
    PLAIN_NAME,
    base_name,
)
from duly_core.rpc.requests.problem import Problem

_NAMES_REMEMBERED = 1024
_LONGEST_NAME = 128


@lru_cache(_NAMES_REMEMBERED)
def _is_name(text: str) -> bool:
    return PLAIN_NAME.fullmatch(text) is not None


@lru_cache(_NAMES_REMEMBERED)
def _is_lambda_name(text: str) -> bool:
    return LAMBDA_NAME.fullmatch(text) is not None


def check_name(field: str, name: str) -> None:
    """Check a name that is written like a lambda's, but has no namespace.

    Raises:
        Problem: the text is not such a name.
    """
    if len(name) > _LONGEST_NAME or not _is_name(name):
        raise Problem(
            field,
            "must be 1 to 128 of the characters a-z, 0-9, '_', '.', '-', beginning with a letter or a digit",
        )


def check_lambda_name(field: str, name: str) -> None:
    """Check a lambda's name: its namespace and a slash may stand before it, '@' and a version after it; or raise Problem."""
    base, at, version = name.partition("@")
    if base.startswith(f"{DEFAULT_NAMESPACE}{NAMESPACE_MARK}"):
        raise Problem(
            field, f"no namespace may be called {DEFAULT_NAMESPACE!r}: leave it out, or choose another"
        )
    if len(base) > _LONGEST_NAME or not _is_lambda_name(base):
        raise Problem(
            field,
            "must be 1 to 128 of the characters a-z, 0-9, '_', '.', '-', beginning with a letter or a digit; a namespace "
            "and '/' may stand before it",
        )
    if at and not PINNED_VERSION.fullmatch(version):
        raise Problem(
            field,
            "the version after '@' must be 1 to 64 of A-Z, a-z, 0-9, '_', '.', '+', '-', the first a letter or a digit",
        )


def check_name_in_namespace(field: str, name: str) -> None:
    """Check a name that is written like a lambda's, with a namespace or without; or raise Problem."""
    check_lambda_name(field, name)
    if base_name(name) != name:
        raise Problem(field, "must not have '@' and a version")


def check_namespace(field: str, namespace: str) -> str:
    """Check a namespace, and return it; empty: the default one.

    Raises:
        Problem: no lambda can be in it.
    """
    if namespace and not _is_lambda_name(f"{namespace}{NAMESPACE_MARK}a"):
        raise Problem(
            field,
            "must be what stands before '/' in the names of its lambdas; leave it out for the default namespace",
        )
    return namespace


def unknown_lambda(name: str, known: Container[str] = ()) -> str:
    """What to say about a lambda that is not registered; `known` has those that are, to recognize an unknown version of one."""
    base, at, version = name.partition("@")
    if at and base in known:  # the versions are not listed: a call may name a thousand that do not exist
        return (
            f"no worker declared that it serves version {version!r} of {base}: start one whose App has this version and "
            f"pinned=True, or register it first (duly register MODULE:APP); `duly lambdas {base}` shows the versions that "
            "tasks can be pinned to"
        )
    return (
        f"no lambda {name!r} is registered: start a worker that declares it (duly worker MODULE:APP) and wait until it "
        "is ready, or fix the name; `duly lambdas` lists those that are registered"
    )
