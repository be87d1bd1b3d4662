"""What goes wrong in a test, in words for its author."""


class DulyTestError(AssertionError):
    """The test asks for something that cannot be, or does not come to an end."""


def check_type(name: str, given: object, kind: type, example: str) -> None:
    """Raise DulyTestError unless an argument is of this type; `example` is one that is."""
    if not isinstance(given, kind):
        raise DulyTestError(f"{name} must be a {kind.__name__}, such as {example}, not {given!r:.80}")
