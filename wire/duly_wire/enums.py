"""The closed lists of the wire, as Python enums: the numbers are those of `duly.v1`."""

from enum import IntEnum

_NUMERIC = frozenset("bcdoxXn")


class Named(IntEnum):
    """A number that prints as its name: `str` and f-strings say FATAL_FAILURE, where a plain IntEnum says 7."""

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __format__(self, spec: str) -> str:
        """Return the name, in the width of `spec`; or the number, if `spec` is one of an integer, such as `d`."""
        return int.__format__(self, spec) if spec[-1:] in _NUMERIC else format(self.name, spec)


class Priority(Named):
    """Which of a lambda's tasks run first; there is one queue for each (lambda, priority)."""

    URGENT = 1
    HIGH = 2
    NORMAL = 3
    LOW = 4


class TaskStatus(Named):
    """Where a task stands; `docs/lifecycle.md` draws the arrows between these."""

    NEW = 1
    ENQUEUED = 2
    CLAIMED = 3
    PROCESSING = 4
    RETRIABLE_FAILURE = 5
    SUCCESS = 6
    FATAL_FAILURE = 7
    CANCELLED = 8
    DROPPED = 9
    WAITING = 10

    @property
    def is_final(self) -> bool:
        """True if the task has ended; only a redrive, of FATAL_FAILURE, makes it live again."""
        return TaskStatus.SUCCESS <= self <= TaskStatus.DROPPED


class SessionOrder(Named):
    """In which order the tasks of a session run."""

    # As they were scheduled; by the time at which they are due.
    SCHEDULED = 1
    DUE = 2


class SessionPolicy(Named):
    """What a task that ends as FATAL_FAILURE does to its session."""

    # The next task runs; none does until it is redriven or the session is unblocked; those that wait fail, too.
    SKIP = 1
    BLOCK = 2
    FAIL_REST = 3


class HeldWhile(Named):
    """How long a task has its unique key for itself."""

    # As long as nobody runs it: it waits to start, or to run again; until it has ended.
    PENDING = 1
    LIVE = 2


class OnConflict(Named):
    """What becomes of a task whose unique key another task has."""

    # It is not written; it is refused; the other task gets its payload, priority and due time, or it is refused if that runs.
    IGNORE = 1
    REJECT = 2
    REPLACE = 3


class ReasonKind(Named):
    """What a task waits for, or how it stands; `docs/explain.md` says what each means."""

    ENDED = 1
    DUE_LATER = 2
    BACKOFF = 3
    RATE = 4
    GATE = 5
    SESSION = 6
    SESSION_BLOCKED = 7
    GRAPH = 8
    ENDS_SOON = 9
    RESOURCE = 10
    LAMBDA_UNKNOWN = 11
    LAMBDA_DELETED = 12
    VERSION_UNKNOWN = 13
    NO_HOST = 14
    BACKLOG = 15
    READY = 16
    ENQUEUED = 17
    CLAIMED = 18
    RUNNING = 19
    CANCEL_REQUESTED = 20
    HOLDER_SILENT = 21
    FAILOVER_GRACE = 22
    EXPIRES = 23
    SLOTS_TAKEN = 24
    CLOCK_SKEW = 25
    COMPLETION = 26
    EVENT = 27


class HistoryKind(Named):
    """What happened to a task; `docs/explain.md` says what each means."""

    SCHEDULED = 1
    ENQUEUED = 2
    SENT_AGAIN = 3
    PUT_BACK = 4
    DEQUEUED = 5
    CLAIMED = 6
    CLAIMED_AGAIN = 7
    STARTED = 8
    RUN_ENDED = 9
    ENDED = 10
    PARKED = 11
    UNPARKED = 12
    PUT_OFF = 13
    RATE_LIFTED = 14
    SESSION_TURN = 15
    SESSION_OVERTAKEN = 16
    SESSION_UNBLOCKED = 17
    SESSION_FAILED = 18
    GRAPH_READY = 19
    GRAPH_SKIPPED = 20
    UPDATED = 21
    CANCEL_REQUESTED = 22
    REDRIVEN = 23
    LEFT_OUT = 24
    GATED = 25
    UNGATED = 26
    DELAYED = 27
    KILL_REQUESTED = 28
    HANDED_OVER = 29
    EVENT_AWAITED = 30
    EVENT_RECEIVED = 31
    EVENT_TIMED_OUT = 32
    EVENT_REFUSED = 33


class EdgeCondition(Named):
    """What the end of a node of a graph must be for a node that waits for it."""

    # It succeeded; it failed for good, but by no timeout; it ended by any of the other ends, without a skip.
    SUCCEEDED = 1
    FAILED = 2
    FINISHED = 3
    # A timeout that is final ended it; it was cancelled; it was skipped.
    TIMED_OUT = 4
    CANCELLED = 5
    SKIPPED = 6


class GraphStatus(Named):
    """How a graph stands."""

    RUNNING = 1
    # All of it ended: each failure was handled or ignored; one was not; it was cancelled, or one of its nodes was.
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4


class TaskEventKind(Named):
    """What a watch is told."""

    # A run ended, and its task goes on; a task ended; all nodes of a graph ended.
    RUN_ENDED = 1
    TASK_ENDED = 2
    GRAPH_FINISHED = 3


class Outcome(Named):
    """How one attempt ended."""

    SUCCESS = 1
    FATAL_FAILURE = 2
    RETRIABLE_FAILURE = 3
    SNOOZED = 4
    CRASHED = 5
    CANCELLED = 6
    COMPLETE_LATER = 7
    WAIT_FOR_EVENT = 8


class AttemptOutcome(Named):
    """How an attempt ended that did not succeed."""

    # The callback's word: run again (if attempts are left), or give up.
    RETRIABLE_FAILURE = 1
    FATAL_FAILURE = 2
    # Its process died; its holder was not heard of in time. Both count as crashes.
    CRASHED = 3
    SILENT = 4
    # Not charged: the callback said "not now"; released; stopped as it was asked to.
    SNOOZED = 5
    RELEASED = 6
    CANCELLED = 7
    # Somebody completes it later by token; what comes of that takes the place of this.
    HANDED_OVER = 8
    # Not charged: the callback waits for an event.
    WAITED = 9


class FailureKind(Named):
    """Why an attempt, or a task as a whole, did not succeed."""

    # The callback said so; the callback raised.
    CALLBACK = 1
    EXCEPTION = 2
    # It ran longer than its lambda's max_runtime; its process died or fell silent.
    MAX_RUNTIME = 3
    CRASH = 4
    # The task as a whole: too many crashes, too many failures, not started in time.
    QUARANTINED = 5
    ATTEMPTS_EXHAUSTED = 6
    EXPIRED = 7
    # What went in, or came out, was not as declared.
    BAD_PAYLOAD = 8
    BAD_RESULT = 9
    NO_CALLBACK = 10
    # It did not run: a task before it in its session failed for good.
    SESSION_FAILED = 11
    # It did not run: what it waits for in its graph can no longer happen.
    GRAPH_SKIPPED = 12
    # The worker cannot decrypt the payload, or what an attempt before kept.
    NOT_DECRYPTED = 13
    # It did not run: an operator's gate dropped it.
    GATE_DROPPED = 14
    # It was skipped: another node of its graph failed, and the graph fails fast.
    GRAPH_FAILED = 15
    # It was handed over, and nobody completed it in time.
    COMPLETION_TIMEOUT = 16
    # It waited for an event that did not come in time.
    EVENT_TIMEOUT = 17


class GateKind(Named):
    """What a gate does to the tasks that it hits."""

    # They wait; they end as DROPPED; their due time moves, once for each task.
    PAUSE = 1
    DROP = 2
    DELAY = 3


class BreakerState(Named):
    """Where the breaker of a lambda stands."""

    # The lambda runs; its gate holds it back; its gate lets probes through.
    CLOSED = 1
    OPEN = 2
    HALF_OPEN = 3


class SettingSource(Named):
    """Who says what a setting is: nobody, the processes' own file or environment, an operator while Duly runs."""

    DEFAULT = 1
    CONFIGURATION = 2
    OPERATOR = 3


class CatchUp(Named):
    """What becomes of a time table's ticks that passed more than a minute ago, because Duly was down."""

    # They are left out.
    SKIP = 1
    # The newest of them fires, unless a tick of the last minute does.
    ONE = 2
    # All fire that are within the window.
    ALL = 3


class OnClosed(Named):
    """What becomes of a tick that falls on closed time of the time table's calendar."""

    # It is left out.
    SKIP = 1
    # It moves to the same time of the next working day; with business hours to the next opening.
    NEXT = 2
    # It moves to the same time of the last working day before; with business hours to the last minute before the closing.
    PREVIOUS = 3


class Overlap(Named):
    """What becomes of a time table's tick while the task of the tick before has not ended."""

    ALLOW = 1
    SKIP = 2
    # It waits until that task has ended; one waits at most.
    BUFFER_ONE = 3
    # That task is cancelled, and the tick waits until it has ended.
    CANCEL_RUNNING = 4


class Role(Named):
    """What a principal is to the lambdas that a grant names."""

    # Schedules tasks; sees, changes and cancels those that it scheduled itself.
    CLIENT = 1
    # Declares lambdas; sees, changes, cancels, redrives and purges all their tasks.
    OWNER = 2
    # Runs tasks.
    HOST = 3
    # Runs Duly: settings, limits, grants, and what owners may do but declare.
    OPERATOR = 4
    # Sees everything but payloads, changes nothing.
    AUDITOR = 5


class AttachmentRole(Named):
    """What an attachment is to its task."""

    # The payload names it; the result names it.
    INPUT = 1
    RESULT = 2
    # What a run kept: what it wrote to its standard output and standard error, and other files.
    STDOUT = 3
    STDERR = 4
    FILE = 5


class OutputStream(Named):
    """Where a callback wrote what is in its output."""

    STDOUT = 1
    STDERR = 2
    # Records of `logging`.
    LOG = 3


class HostState(Named):
    """What the last report of a host, or of a service's process, says of it."""

    ALIVE = 1
    # It takes no more tasks, and lets those that run end.
    DRAINING = 2
    # It said that it ended.
    STOPPED = 3
    # It did not, and has missed three reports.
    SILENT = 4


class QueueOrder(Named):
    """In which order queues are listed."""

    # The most due tasks first; that whose oldest due task has waited longest first.
    BACKLOG = 1
    AGE = 2


class ProblemStatus(Named):
    """Whether anything is wrong."""

    HEALTHY = 1
    """Nothing is wrong. There may be information, such as a pause."""
    PROBLEMS = 2
    """Something is wrong."""
    UNKNOWN = 3
    """No Frontend has looked yet."""


class ProblemSeverity(Named):
    """How bad a problem is."""

    INFORMATION = 1
    """Worth knowing, and nothing wrong: somebody wants it so. It wakes nobody."""
    WARNING = 2
    """Somebody should see to it, today."""
    CRITICAL = 3
    """Tasks do not run that should."""


class ServiceLevelIndicator(Named):
    """What an objective is about."""

    STARTS = 1
    """Runs that begin on time."""
    CALLS = 2
    """Calls that schedule, and are accepted."""


class ProblemKind(Named):
    """What is wrong; `docs/operators/status.md` says what each means."""

    STORE_AWAY = 1
    """Postgres does not answer. Only the Frontend that answers says so."""
    STORE_SLOW = 2
    """Postgres takes long for statements that are short."""
    NO_HOST = 3
    """No live host serves lambdas that have due tasks. `hosts` has the one that served them last."""
    SLOTS_HELD = 4
    """Tasks of `subject` hold all slots that other lambdas wait for: `tasks`."""
    LATE = 5
    """Tasks start later than the objective says, without a reason of their own."""
    BREAKER_OPEN = 6
    """The breaker of the lambda `subject` holds its tasks back."""
    PAUSED = 7
    """The gate `subject` holds tasks back, delays or drops them, because somebody wants it."""
    RESOURCE_FULL = 8
    """Tasks wait for units of the resource `subject`: `tasks` has some that hold them."""
    DEAD_LETTERS = 9
    """Tasks of the lambda `subject` failed for good by one cause: `cause`."""
    SESSIONS_BLOCKED = 10
    """Failed tasks of the lambda `subject` block sessions."""
    SILENT_HOSTS = 11
    """Hosts stopped reporting without saying that they end."""
    CLOCKS_APART = 12
    """Clocks of hosts or services differ from Postgres's."""
    POOL_DRIVER_FAILS = 13
    """The driver of the pool `subject` does not start or end workers."""
    CERTIFICATE_EXPIRES = 14
    """A certificate of the service `subject` is about to expire, or has expired."""
    TOKEN_EXPIRES = 15
    """The token `subject` is about to expire."""
    LAMBDA_GONE = 16
    """Tasks of lambdas are due that nobody has registered, or that were deleted."""
    SERVICE_AWAY = 17
    """No process of the service `subject` reports itself."""
    NOTIFICATIONS_FAIL = 18
    """Notifications to the target `subject` do not arrive."""
    BUDGET_BURNS = 19
    """So many runs begin late, or so many calls that schedule fail, that an error budget is spent too fast."""
    CELL_AWAY = 20
    """The cell `subject` does not answer, or is not what the directory says: tasks of its namespaces stand."""


class ProblemActionKind(Named):
    """What a page offers to do about a problem."""

    REMOVE_GATE = 1
    """Removes the gate `target`."""
    CANCEL_TASKS = 2
    """Ends the tasks that hold the slots (Problem.tasks), by killing their callbacks if they do not end."""
    REDRIVE = 3
    """Redrives the dead letters of the lambda `target` by this cause (Problem.cause), some a second."""
    SHOW_SESSIONS = 4
    """Shows the blocked sessions of the namespace `target`, each of which can be unblocked."""
    CHANGE_RESOURCE = 5
    """Changes the resource `target`."""
    SHOW_HOSTS = 6
    """Shows the hosts."""
    SHOW_LAMBDA = 7
    """Shows the lambda `target`."""
    SHOW_POOL = 8
    """Shows the pool `target`."""
    SHOW_TOKENS = 9
    """Shows the tokens."""


class SearchKind(Named):
    """What a search found, and by what."""

    TASK = 1
    """A task, by a part of its id."""
    GRAPH = 2
    LAMBDA = 3
    SESSION = 4
    IDEMPOTENCY_KEY = 5
    """A task, by its idempotency key."""
    UNIQUE_KEY = 6
    """The task that has a unique key."""
    HOST = 7
    CAUSE = 8
    """A cause of dead letters."""
    ATTRIBUTE = 9
    """A task, by one of its attributes."""
