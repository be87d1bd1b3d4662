"""Checks of names in requests: of lambdas, collections, time tables and resources."""

from collections.abc import Container
from functools import lru_cache

from duly_core.lambdas.names import (
    DEFAULT_NAMESPACE,
    LAMBDA_NAME,
    NAMESPACE_MARK,
    PLAIN_NAME,
    base_name,
)
from duly_core.rpc.requests.problem import Problem
from duly_wire.queue_names import (
    DOMAIN,
    MOST_REQUIRED,
    NO_DOMAIN,
    PINNED_VERSION,
    QueueName,
    check_labels,
)

_NAMES_REMEMBERED = 1024
_LONGEST_NAME = 128


@lru_cache(_NAMES_REMEMBERED)
def _is_name(text: str) -> bool:
    return PLAIN_NAME.fullmatch(text) is not None


@lru_cache(_NAMES_REMEMBERED)
def _is_lambda_name(text: str) -> bool:
    return LAMBDA_NAME.fullmatch(text) is not None


@lru_cache(_NAMES_REMEMBERED)
def _is_plain_lambda_name(text: str) -> bool:
    """Whether it is the name of a lambda and nothing else, as nearly all are: taking others apart costs nine times as much."""
    return LAMBDA_NAME.fullmatch(text) is not None and not text.startswith(
        f"{DEFAULT_NAMESPACE}{NAMESPACE_MARK}"
    )


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
    """Check a lambda's name, or raise Problem. A namespace and '/' may stand before it; '@', a version, '~' and a domain, ':' and labels after it."""
    # the length first: what is remembered must be short, whatever callers send
    if len(name) > _LONGEST_NAME or not _is_plain_lambda_name(name):
        _check_queue_name(field, name)


def _check_queue_name(field: str, name: str) -> None:
    base, version, domain, labels = queue = QueueName.parse(name)
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
    if name != base and str(queue) != name:
        raise Problem(field, "must have a version, '~' and a domain, or ':' and labels, after '@'")
    if domain:
        check_domain(field, domain)
    if labels:
        _check_required(field, labels)
    if version and not PINNED_VERSION.fullmatch(version):
        raise Problem(
            field,
            "the version after '@' must be 1 to 64 of A-Z, a-z, 0-9, '_', '.', '+', '-', the first a letter or a digit",
        )


def _check_required(field: str, labels: str) -> None:
    try:
        canonical = check_labels(labels.split(","), MOST_REQUIRED)
    except ValueError as error:
        raise Problem(field, str(error)) from None
    if canonical != labels:
        raise Problem(field, f"the labels after ':' must be sorted, each once: {canonical}")


def check_name_in_namespace(field: str, name: str) -> None:
    """Check a name that is written like a lambda's, with a namespace or without; or raise Problem."""
    check_lambda_name(field, name)
    if base_name(name) != name:
        raise Problem(field, "must not have '@', with a version, a domain or labels")


def is_name_in_namespace(name: str) -> bool:
    """Return whether `check_name_in_namespace` would accept a name."""
    try:
        check_name_in_namespace("name", name)
    except Problem:
        return False
    return True


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


def check_domain(field: str, domain: str) -> str:
    """Check a domain, and return it.

    Raises:
        Problem: no task can be in it.
    """
    if domain == NO_DOMAIN or not DOMAIN.fullmatch(domain):
        raise Problem(
            field,
            f"{domain[:64]!r} is no domain: use 1 to 63 of a-z, 0-9, '_', '.', '-', the first a letter or a digit; "
            f"{NO_DOMAIN!r} is what people call no domain",
        )
    return domain


def unknown_lambda(name: str, known: Container[str] = ()) -> str:
    """What to say about a lambda that is not registered; `known` has those that are, to recognize an unknown version of one."""
    base, version, domain, labels = queue = QueueName.parse(name)
    if labels and queue.base in known:
        return (
            f"tasks of {queue.base} require too many different sets of labels already: use one of those that it has, or none; "
            f"`duly lambdas {base}` shows them"
        )
    if domain and base in known:
        return (
            f"no worker declared that it serves {base} in the domain {domain!r}: start one with --domain {domain} and wait until "
            f"it is ready, or fix the domain; `duly lambdas {base}` shows the domains that have workers"
        )
    if version and base in known:  # the versions are not listed: a call may name a thousand that do not exist
        return (
            f"no worker declared that it serves version {version!r} of {base}: start one whose App has this version and "
            f"pinned=True, or register it first (duly register MODULE:APP); `duly lambdas {base}` shows the versions that "
            "tasks can be pinned to"
        )
    return (
        f"no lambda {name!r} is registered: start a worker that declares it (duly worker MODULE:APP) and wait until it "
        "is ready, or fix the name; `duly lambdas` lists those that are registered"
    )
