"""What the events of a task mean: their kind on the wire, the service that wrote them, the status after them, a sentence."""

from collections.abc import Mapping

from duly_core.tasks.lifecycle import Status
from duly_wire.v1 import explain_pb2

FRONTEND, HSC, STORE_CONSUMER = "frontend", "hsc", "store_consumer"

KINDS: Mapping[str, tuple["explain_pb2.HistoryKind.ValueType", str, Status | None, str]] = {
    "parked": (explain_pb2.HISTORY_KIND_PARKED, "", Status.WAITING, "no units of {about} were free"),
    "unparked": (explain_pb2.HISTORY_KIND_UNPARKED, "", Status.NEW, "units of {about} were free"),
    "put_off": (explain_pb2.HISTORY_KIND_PUT_OFF, "", None, "the rate of a resource gave it a later start"),
    "rate_lifted": (
        explain_pb2.HISTORY_KIND_RATE_LIFTED,
        FRONTEND,
        None,
        "the rate that put it off was changed or removed",
    ),
    "gated": (explain_pb2.HISTORY_KIND_GATED, STORE_CONSUMER, Status.WAITING, "the gate {about} holds it"),
    "ungated": (explain_pb2.HISTORY_KIND_UNGATED, "", Status.NEW, "the gate {about} no longer holds it"),
    "delayed": (
        explain_pb2.HISTORY_KIND_DELAYED,
        STORE_CONSUMER,
        None,
        "the gate {about} moved its due time",
    ),
    "dequeued_gated": (
        explain_pb2.HISTORY_KIND_GATED,
        "",
        Status.NEW,
        "a gate took it from its queue",
    ),
    "session_turn": (
        explain_pb2.HISTORY_KIND_SESSION_TURN,
        "",
        Status.NEW,
        "it became the first of its session, after {about}",
    ),
    "session_overtaken": (
        explain_pb2.HISTORY_KIND_SESSION_OVERTAKEN,
        FRONTEND,
        Status.WAITING,
        "{about} is due before it in its session",
    ),
    "session_unblocked": (
        explain_pb2.HISTORY_KIND_SESSION_UNBLOCKED,
        "",
        Status.NEW,
        "the block of its session by {about} was ended",
    ),
    "session_failed": (
        explain_pb2.HISTORY_KIND_SESSION_FAILED,
        "",
        None,
        "{about} in its session failed for good, and this task with it",
    ),
    "graph_ready": (
        explain_pb2.HISTORY_KIND_GRAPH_READY,
        "",
        Status.NEW,
        "what it waits for in its graph has happened: {about} ended last",
    ),
    "graph_skipped": (
        explain_pb2.HISTORY_KIND_GRAPH_SKIPPED,
        "",
        None,
        "what it waits for in its graph can no longer happen",
    ),
    "graph_failed": (
        explain_pb2.HISTORY_KIND_GRAPH_SKIPPED,
        "",
        None,
        "another node of its graph failed, and the graph fails fast",
    ),
    "sent_again": (
        explain_pb2.HISTORY_KIND_SENT_AGAIN,
        STORE_CONSUMER,
        None,
        "nobody claimed it in time: its reference was sent again",
    ),
    "put_back": (
        explain_pb2.HISTORY_KIND_PUT_BACK,
        STORE_CONSUMER,
        Status.NEW,
        "its reference could not be sent",
    ),
    "dequeued": (
        explain_pb2.HISTORY_KIND_DEQUEUED,
        STORE_CONSUMER,
        Status.NEW,
        "its queue is no longer used",
    ),
    "claimed_again": (
        explain_pb2.HISTORY_KIND_CLAIMED_AGAIN,
        HSC,
        Status.CLAIMED,
        "the reply to the claim was lost",
    ),
    "updated": (explain_pb2.HISTORY_KIND_UPDATED, FRONTEND, None, "changed: {about}"),
    "cancel_requested": (
        explain_pb2.HISTORY_KIND_CANCEL_REQUESTED,
        FRONTEND,
        None,
        "its holder is told by the next heartbeat",
    ),
    "kill_requested": (
        explain_pb2.HISTORY_KIND_KILL_REQUESTED,
        FRONTEND,
        None,
        "its holder is told by the next heartbeat, and ends its callback",
    ),
    "handed_over": (
        explain_pb2.HISTORY_KIND_HANDED_OVER,
        HSC,
        Status.WAITING,
        "its callback handed it over: it waits to be completed by token",
    ),
    "event_awaited": (
        explain_pb2.HISTORY_KIND_EVENT_AWAITED,
        HSC,
        Status.WAITING,
        "it waits for an event: {about}",
    ),
    "event_received": (explain_pb2.HISTORY_KIND_EVENT_RECEIVED, "", None, "it received an event: {about}"),
    "event_timed_out": (
        explain_pb2.HISTORY_KIND_EVENT_TIMED_OUT,
        STORE_CONSUMER,
        Status.NEW,
        "an event did not come in time: {about}",
    ),
    "event_refused": (
        explain_pb2.HISTORY_KIND_EVENT_REFUSED,
        HSC,
        None,
        "it cannot read the event, and waits for another: {about}",
    ),
    "completed": (explain_pb2.HISTORY_KIND_ENDED, FRONTEND, Status.SUCCESS, "completed by its token"),
    "cancelled": (explain_pb2.HISTORY_KIND_ENDED, FRONTEND, Status.CANCELLED, ""),
    "failed": (explain_pb2.HISTORY_KIND_ENDED, "", Status.FATAL_FAILURE, "{about}"),
    "redriven": (explain_pb2.HISTORY_KIND_REDRIVEN, FRONTEND, Status.NEW, "its attempts count from 1 again"),
    "left_out": (explain_pb2.HISTORY_KIND_LEFT_OUT, "", None, "{about} events were left out"),
}
"""By the kind that the statement wrote. The service is empty where several write it."""
OF_TASKS = {
    "session_turn",
    "session_overtaken",
    "session_unblocked",
    "session_failed",
    "graph_ready",
    "graph_skipped",
}
"""Events that name another task."""
OF_CALLBACKS = {"failed", "event_refused"}
"""Events about which a callback had its say."""
