"""Everything the queues can log, as functions; a message's body is never among it."""

import structlog

from duly_core.routing import QueueKey

_log = structlog.get_logger("duly.queues")


def foreign_message_dropped(queue: QueueKey, message_id: str, reason: str) -> None:
    """A message that Duly did not write was deleted unread."""
    _log.warning("foreign_message_dropped", queue=str(queue), message_id=message_id, reason=reason)


def messages_not_sent(queue: QueueKey, messages: int, reason: str) -> None:
    """Messages were not, or perhaps not, taken by the queue: the sender's caller has them back."""
    _log.warning("messages_not_sent", queue=str(queue), messages=messages, reason=reason)


def depth_unknown(queue: QueueKey, reason: str) -> None:
    """A queue did not tell its depth, and counts as full until it does."""
    _log.warning("depth_unknown", queue=str(queue), reason=reason)


def messages_not_deleted(messages: int, reason: str) -> None:
    """Messages that are done with stay, and come again when their visibility ends."""
    _log.warning("messages_not_deleted", messages=messages, reason=reason)


def messages_not_given_back(messages: int, reason: str) -> None:
    """Messages stay hidden until their visibility ends."""
    _log.warning("messages_not_given_back", messages=messages, reason=reason)


def queue_ready(queue: QueueKey, name: str) -> None:
    """A queue was made, or was there already."""
    _log.debug("queue_ready", queue=str(queue), name=name)
