"""What goes wrong in a test, in words for its author."""


class DulyTestError(AssertionError):
    """The test asks for something that cannot be, or does not come to an end."""
