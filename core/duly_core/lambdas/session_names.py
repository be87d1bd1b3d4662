"""What a session is called in the store: its namespace and its key."""

from typing import NamedTuple, Self

from duly_core.lambdas.names import NAMESPACE_MARK


class SessionId(NamedTuple):
    """A session: its key is unique in the namespace of its tasks' lambdas.

    The store keeps both in one text (fragment `session_of`), so nothing there that compares sessions reaches beyond a namespace.
    """

    namespace: str
    """Empty: the default one."""
    key: str
    """What callers write: 1 to 255 bytes."""

    def __str__(self) -> str:
        return f"{self.namespace}{NAMESPACE_MARK}{self.key}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the session that the store calls so."""
        namespace, _, key = text.partition(NAMESPACE_MARK)
        return cls(namespace, key)
