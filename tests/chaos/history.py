"""What is known of a chaos run when it is over: the contract between the runner, who fills it in, and the checker.

Every instant is CLOCK_BOOTTIME of the one host in nanoseconds (`duly_core.process.clock.since_boot_ns`), every duration
is in nanoseconds, every id is a UUID in text form. Empty text stands for "none".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MACHINE_BUSY = "machine_busy"
"""The kind of the faults that say when the machine was too slow to keep to any timing."""
SUCCEEDED = "success"
"""The outcome of an execution whose callback returned; the others are `journal.OUTCOMES`."""


@dataclass(frozen=True, slots=True)
class AckedTask:
    """A task whose Schedule was answered: from then on it must not be lost.

    A task whose answer never came is not here; its rows and executions are judged all the same, where they can be.
    """

    task_id: str
    lambda_name: str
    kind: str
    """What the workload meant it to be ("quick", "poison", ...); for people and figures."""
    acked_ns: int
    due_ns: int = 0
    """When it was asked to start; 0: at once. Lateness counts from here, from the ack and from the last heal."""
    legal: frozenset[str] = frozenset({SUCCEEDED})
    """Final statuses that it may come to by itself, as the store spells them. `cancelled` after a cancel and
    `fatal_failure` after `expires_ns` need not be named."""
    least_executions: int = 1
    """Executions that must be in the journal if it ends by itself, in one of `legal`."""
    plain: bool = False
    """Its callback returns at once, always: without faults it runs exactly once."""
    crashes_itself: bool = False
    """Its callback kills its own process: its crashes need no fault, and it may be quarantined."""
    breaks_process: bool = False
    """What runs in the same process may have to run again because of it."""
    poison: bool = False
    """It crashes every time: unless cancelled or expired it ends quarantined with exactly `max_crashes` crashes."""
    max_crashes: int = 3
    """Of its lambda, as registered."""
    longest_ns: int = 0
    """How much longer than `Limits.liveness_ns` this one may take: its backoffs, snoozes and runtime, added."""
    cancel_asked: bool = False
    """A CancelTask was sent, whatever came back."""
    cancel_answered: str = ""
    """What CancelTask answered: "cancelled" (it ended at once: it must be cancelled), "requested", "final", or none."""
    expires_ns: int = 0
    """When it may no longer start; 0: never."""
    session: str = ""
    """The key of the session that it was scheduled in: it waits for those before it; none: it is a plain task."""
    graph: str = ""
    """The graph that it was scheduled with; it may be skipped. None: it is a plain task."""
    priority: int = 0
    """As scheduled; 0: unknown."""
    purge_asked: bool = False
    """A PurgeTasks that finds it once it has ended was sent."""
    resources: str = ""
    """What it takes units of while it runs: NAME/=WEIGHT or NAME/KEY=WEIGHT, in order, with a space between; or none."""
    attaches: bool = False
    """Its callback uploads files, and returns some: they may be gone before its success is written."""
    unique: str = ""
    """Its unique key, which is held until its end; none: it has none."""
    fair_key: str = ""
    """Its fair key; none: it is of those without one."""
    fair_round: int = 0
    """Between two starts of its key while it has due tasks at most so many of other keys start; 0: its keys take no turns."""
    fair_room: int = 0
    """So many may be picked already when it comes."""


@dataclass(frozen=True, slots=True)
class Change:
    """An UpdateTask of one task; the payload has the number of the change."""

    task_id: str
    edit: int
    """1 for the first change of the task."""
    priority: int
    sent_ns: int
    acked_ns: int = 0
    """When it was answered that the task is changed; 0: it was refused, or never answered."""
    tries: int = 1
    """How often it was sent: one without an answer may take effect at any time."""


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a callback, as its process wrote it down (`journal.py`)."""

    task_id: str
    attempt: int
    fence: int
    pid: int
    process: str
    """Names the process for good: pids come again."""
    alone: bool
    """It got the kernel's lock of the task: no other execution of the task was running."""
    started_ns: int
    ended_ns: int | None = None
    """None: its process died first, or it still runs."""
    outcome: str = ""
    """One of `journal.OUTCOMES`; none without an end."""
    host: str = ""
    """Where it ran, as faults name it; none: unknown."""
    line: str = ""
    """Where it stands (file and line), for evidence."""
    edit: int = 0
    """The number of the change that its payload came with; 0: the payload was as scheduled."""


@dataclass(frozen=True, slots=True)
class FileRead:
    """What a callback got when it read an attachment."""

    task_id: str
    fence: int
    at_ns: int
    """When it had it, or was refused."""
    wanted: str
    """The SHA-256 of what it should be, in hexadecimal."""
    got: str
    """The same of what it was; none: it was refused."""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class FileSent:
    """A callback began to upload what it returns."""

    task_id: str
    fence: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class FileUse:
    """An attachment of a task that is there when the run is over."""

    task_id: str
    name: str
    problem: str = ""
    """Why it could not be fetched whole; none: it could."""


@dataclass(frozen=True, slots=True)
class FileLeft:
    """What should not be stored any more, or not be missing, when the run is over and the sweeps had their time."""

    what: str
    """"orphan", "unused", "removing", "use", "part" or "usage"; `stored_files.py` says what they are."""
    name: str


@dataclass(frozen=True, slots=True)
class Transition:
    """One write of a task's status, as the database's triggers saw it (`audit.py`).

    `..._before` is the row as it was, the plain name the row as it became. A move that ends a task deletes the
    assoc and writes the entity: that is one transition, from the assoc's last status to the entity's.
    """

    sequence: int
    """Grows with each write of one task (taken under its row lock); over many tasks only roughly."""
    task_id: str
    at_ns: int
    """Before the commit, by the clock of the host, whatever is done to the store's clock."""
    txid: int
    application: str
    """The writer's application_name and its backend's pid, for evidence."""
    before: str
    """Status; none: there was no assoc."""
    after: str
    """Status; none: the assoc went and the entity got no final status, which must never be."""
    token_before: str = ""
    token: str = ""
    last_token: str = ""
    """The token that the writer showed, for moves that end a claim: the statements write it down."""
    fence_before: int = 0
    fence: int = 0
    failures_before: int = 0
    failures: int = 0
    crashes_before: int = 0
    crashes: int = 0
    trigger_before_in_ns: int | None = None
    """How long after the write, by the store's own clock, the earlier next trigger was; negative: it had passed."""
    trigger_in_ns: int | None = None
    """The same for the next trigger that was written; None for an end, and for what waits and does not expire."""
    due_in_ns: int | None = None
    """The same for due_at."""
    cancel_requested_before: bool = False
    cancel_requested: bool = False
    session: str = ""
    """The key of its session, its place there, and its SessionPolicy; none: it is a plain task."""
    session_seq: int = 0
    session_policy: int = 0
    priority: int = 0
    """Of the assoc; 0: unknown."""
    open_edges_before: int = 0
    open_edges: int = 0
    """Of a node that waits: how many of its edges are not decided yet."""
    doom: int = 0
    """Why it is to end without a run (FailureKind); 0: it is not."""
    resources: str = ""
    """As in AckedTask."""
    parked_on: str = ""
    """The resource that it waits for: NAME/ or NAME/KEY; none: it is not parked."""
    line: str = ""
    """Its lambda and priority: tasks of one line are released in the order in which they were due."""
    due_at_ns: int | None = None
    """Since 1970: by it the store orders what is parked, wherever its clock stood when it wrote."""


@dataclass(frozen=True, slots=True)
class FinalRow:
    """How a task stands in the tables when the run is over."""

    task_id: str
    status: str
    """The entity's: final, or none while it lives."""
    assoc_status: str
    """The assoc's; none once it is gone."""
    fence: int
    failures: int
    crashes: int
    """Of whichever row has them."""
    failure_kind: int = 0
    """duly.v1.FailureKind; 0: none."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session that is in the tables when the run is over."""

    key: str
    length: int
    head: str = ""
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class GraphRow:
    """A graph that is in the tables when the run is over."""

    graph_id: str
    total: int
    open: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    finished: bool
    cancel_asked: bool = False


@dataclass(frozen=True, slots=True)
class NodeRow:
    """The place of a task in its graph."""

    task_id: str
    graph_id: str
    label: str
    any_of: bool = False


@dataclass(frozen=True, slots=True)
class EdgeRow:
    """One node waits for another, for an end that `fires_on` names by bits (`graph_rules.OUTCOME_BITS`)."""

    from_task: str
    to_task: str
    fires_on: int = 1


@dataclass(frozen=True, slots=True)
class TimeTableRow:
    """A time table that lets no tick go by, when the run is over; instants by the store's clock."""

    name: str
    every_ns: int
    first_ns: int
    """Its first tick after it was made."""
    next_ns: int
    """Ticks before this one were decided."""
    overlap: int = 1
    """duly.v1.Overlap: with 1 each tick has a task, with 2 those have that come when no task of it lives."""
    has_calendar: bool = False
    moves: bool = False
    """A tick in closed time moves to the next opening; else it is left out."""
    open_minutes: tuple[int, ...] = ()
    """Of the day in UTC, if it has a calendar. Each is an opening of its own; without any all is closed."""


@dataclass(frozen=True, slots=True)
class TickRow:
    """The task of a tick."""

    task_id: str
    name: str
    tick_ns: int


@dataclass(frozen=True, slots=True)
class UseRow:
    """What is written of a resource, or one of its keys, when the run is over."""

    name: str
    """NAME/ or NAME/KEY."""
    used: int
    held: int
    """The sum of what tasks hold of it."""


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A mark of a resource: whether a parked task that fits waits for whoever locked it."""

    sequence: int
    """In one order with the transitions."""
    txid: int
    name: str
    """NAME/ or NAME/KEY."""
    waits: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the system."""

    kind: str
    target: str
    from_ns: int
    until_ns: int
    """When it was healed; for what is done at once (a kill), when the part was up again, or `from_ns`."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """When the runner last saw a process alive: proof that what it ran was not over before."""

    pid: int
    process: str
    alive_ns: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A look at the running system, about once a second (`audit.sample`)."""

    at_ns: int
    untriggered: tuple[str, ...] = ()
    """Live rows whose next trigger is missing or too far away, each in words."""
    live: int = 0
    """Live rows."""
    connections: int = 0
    """To Postgres."""
    processes: int = 0
    """Of the system under test."""


@dataclass(frozen=True, slots=True)
class StaleWrite:
    """A write of a call whose token's claim was over (`replay.py`)."""

    at_ns: int
    what: str
    """The operation and the table."""
    task_id: str
    """None: the row is of no single task."""
    columns: str
    """What it changed, from what to what."""


@dataclass(frozen=True, slots=True)
class WatchStretch:
    """A watch of all that happens, from its beginning until it was stopped or lost."""

    number: int
    begun_ns: int
    """When its beginning was answered: what happens later is told."""
    until_ns: int
    """What happened before this was told, if all is well."""
    lost: str = ""
    """Why it could not go on; none: it was stopped."""


@dataclass(frozen=True, slots=True)
class Told:
    """Something that a watch told, for the first time: the watcher saw to it that what it is told again is the same."""

    watch: int
    """The number of the stretch."""
    kind: str
    """"run", "task" or "graph": what ended."""
    task_id: str = ""
    graph_id: str = ""
    status: str = ""
    """Of a task, as the store spells it."""
    run: int = 0


@dataclass(frozen=True, slots=True)
class AddressUse:
    """A use of an address of one use, or of one that nobody made."""

    key: str
    """Of the event; each key has one address."""
    value: str
    """The event that it was to send."""
    answer: str
    """"open": the event was sent; "used", "over", "unknown"; none: there was no answer."""
    tries: int = 1
    """How often it was sent: the one that was answered may find that an earlier one had used the address."""
    guessed: bool = False


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event of an address that is kept when the run is over."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something that outlived the graceful stop."""

    kind: str
    """"process", "connection", "file", ..."""
    description: str


SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run promised of itself, and of the system."""

    claim_timeout_ns: int
    heartbeat_timeout_ns: int
    enqueue_timeout_ns: int
    liveness_ns: int
    """After the last heal, the ack and the due time, whichever is last, each task is final within so long."""
    least_tasks: int = 1
    """Fewer acked tasks make the run inconclusive."""
    least_faults: Mapping[str, int] = field(default_factory=dict)
    """The same for faults, by kind; the kind "" counts all of them."""
    longest_wait_ns: int = 3600 * SECOND
    """How far ahead the next trigger of a waiting task (new, retriable_failure) may be beyond its due time."""
    explained_ns: int = 10 * SECOND
    """How long after a fault was healed what is lost may still be its consequence; leases are added."""
    clock_slack_ns: int = 5_000_000
    """How far the host's two clocks may drift apart in a run, and a statement's clock from its trigger's."""
    starved_ns: int = 0
    """How long the machine had no time for the system after the last heal; `liveness_ns` has it, up to the most."""
    most_starved_ns: int = 40 * SECOND
    """More makes the run inconclusive."""
    least_samples: int = 0
    """Fewer make the run inconclusive; so do fewer callback processes seen alive than `least_seen`."""
    least_seen: int = 0
    start_ns: int = 0
    """How long after it was due a task is claimed for the first time at the latest; 0: not judged."""
    statement_ns: int = 4 * SECOND
    """How long a statement may take: the store's clock may be moved while it does."""
    most_connections: int = 0
    """To Postgres, at any sample; 0: not judged."""
    most_processes: int = 0
    """At any sample; 0: not judged."""
    least_graphs: int = 0
    least_ticks: int = 0
    least_changes: int = 0
    """Fewer of these make the run inconclusive, too."""
    capacities: Mapping[str, int] = field(default_factory=dict)
    """The units of each resource, or of each of its keys."""
    file_grace_ns: int = 0
    """How long an attachment stays that no task uses."""
    least_files: int = 0
    """Fewer attachments that callbacks read make the run inconclusive."""
    paces: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Of resources without keys, all units of weight 1: how far apart they start, and how many may start at once."""


@dataclass(frozen=True, slots=True)
class History:
    """Everything about one run."""

    seed: int
    limits: Limits
    started_ns: int
    healed_ns: int
    """When the last fault was healed and scheduling was over."""
    finished_ns: int
    """When the rows were read for the last time."""
    acked: tuple[AckedTask, ...]
    executions: tuple[Execution, ...]
    transitions: tuple[Transition, ...]
    """In the order of their sequence."""
    final: tuple[FinalRow, ...]
    sessions: tuple[SessionRow, ...] = ()
    changes: tuple[Change, ...] = ()
    """Those of one task in the order in which they were sent; each was over before the next."""
    graphs: tuple[GraphRow, ...] = ()
    nodes: tuple[NodeRow, ...] = ()
    edges: tuple[EdgeRow, ...] = ()
    time_tables: tuple[TimeTableRow, ...] = ()
    ticks: tuple[TickRow, ...] = ()
    uses: tuple[UseRow, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    """In the order of their sequence."""
    faults: tuple[Fault, ...] = ()
    seen: tuple[Seen, ...] = ()
    samples: tuple[Sample, ...] = ()
    stale_writes: tuple[StaleWrite, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    file_reads: tuple[FileRead, ...] = ()
    files_sent: tuple[FileSent, ...] = ()
    file_uses: tuple[FileUse, ...] = ()
    files_left: tuple[FileLeft, ...] = ()
    watches: tuple[WatchStretch, ...] = ()
    told: tuple[Told, ...] = ()
    """In the order in which it was told."""
    address_uses: tuple[AddressUse, ...] = ()
    events: tuple[EventRow, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Lines of the journal that are no record, other than torn last lines of a file."""
    queue: str = ""
    """"store", where the HSC gives work to hosts, or "sqs"; none: unknown."""
    clock_moves: tuple[tuple[int, int], ...] = ()
    """When the store's clock was moved: the instants before and after, each."""
    exemptions: Mapping[str, str] = field(default_factory=dict)
    """Rules that this run may break, each with its reason: "C1.lost" or all of "C1". What they would have found
    is told as notes."""
