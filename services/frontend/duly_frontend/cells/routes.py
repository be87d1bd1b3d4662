"""How each call finds its cells. Pure data; a test holds it against the services' descriptors."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duly_wire.v1 import event_addresses_pb2, task_pb2


class Form(enum.Enum):
    """How a field says which cell it is of."""

    LAMBDA = "lambda"
    """A lambda, or its queue: the cell of its namespace."""
    NAMESPACE = "namespace"
    TASK = "task"
    """A task's id as text. It does not say its cell: the task is located."""
    CLAIM = "claim"
    """A task's id and the token of its claim: the cell in which the task is held under it. Others may make a task of the same id elsewhere."""
    COMPLETION_TOKEN = "completion token"  # noqa: S105 (no password)
    """Its first bytes are the task's id. The cell whose task has the token."""
    GRAPH = "graph"
    """A graph's id as text: located, too."""
    TIME_TABLE = "time table"
    """A time table's name, which has no namespace: located by each call, for it may go and come in another cell."""


LOCATED = frozenset({Form.TASK, Form.CLAIM, Form.COMPLETION_TOKEN, Form.GRAPH, Form.TIME_TABLE})
"""Forms that do not say a cell: cells are asked who has it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A field that says the cell of a request, or of an item."""

    form: Form
    field: str = ""
    """Its path, such as `table.lambda`. Empty: the item itself."""
    claim_token: str = ""
    """A field next to it, the token of the task's claim: with it the form is CLAIM."""


@dataclass(frozen=True, slots=True)
class ByItems:
    """The items of a request go to their cells. The answer has their results in the request's order."""

    items: str
    place: Place
    results: str = "results"
    all_of: Sequence[str] = ()
    """Fields of the answer that hold if they hold in each cell."""
    waits: bool = False
    """A call may take as long as its caller says: who is slow is not given up."""
    instead: Place | None = None
    """If the request has this field, it says the cell of all items."""
    otherwise: Place | None = None
    """Says the cell of an item that lacks `place`. Of one that has both, another cell than that of `place` refuses it."""


@dataclass(frozen=True, slots=True)
class ByField:
    """One field says the cell of the call."""

    place: Place
    empty_is_all: bool = False
    """Without it the call is of all cells."""


@dataclass(frozen=True, slots=True)
class InOneCell:
    """All items must be of one cell: the answer's `error` names the cells if they are not."""

    items: str
    place: Place


@dataclass(frozen=True, slots=True)
class WhereFound:
    """Each cell is asked for what only one of them has. Where it is not there nothing happens."""

    absent: Mapping[str, int]
    """The field of the answer, and its value, that says so: `state`, or `error.code`."""


@dataclass(frozen=True, slots=True)
class AllCells:
    """Each cell answers; `merging` makes one answer of theirs."""


@dataclass(frozen=True, slots=True)
class Operators:
    """What operators own: all cells have the same."""

    writes: bool
    """Written to all cells, else read from the own one, or from another that answers."""


@dataclass(frozen=True, slots=True)
class Gates:
    """Gates are where the lambdas live that they hold: those of a namespace in its cell, those on `*` in all cells."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """Calls over a stream: each is routed for itself."""

    methods: Mapping[str, str] = field(default_factory=dict)
    """The method that serves a field of the stream's request."""


@dataclass(frozen=True, slots=True)
class Watching:
    """A long poll of one cell, or of several with a position in each."""


Route = ByItems | ByField | InOneCell | WhereFound | AllCells | Operators | Gates | Streamed | Watching

_LAMBDA = Place(Form.LAMBDA, "lambda")
_NAME = Place(Form.LAMBDA, "name")
_NAMESPACE = Place(Form.NAMESPACE, "namespace")
_TASK = Place(Form.TASK, "task_id")
_TASK_OR_CLAIM = Place(Form.TASK, "task_id", claim_token="claim_token")  # noqa: S106 (a field's name)
_GRAPH = Place(Form.GRAPH, "graph_id")
_TASKS = ByItems("task_ids", Place(Form.TASK))
_ONE_LAMBDA_OR_ALL = ByField(_LAMBDA, empty_is_all=True)
_OWNED = Operators(writes=False)
_CHANGES_OWNED = Operators(writes=True)
_TABLES = ByItems("names", Place(Form.TIME_TABLE))

ROUTES: Mapping[str, Route] = {
    "/duly.v1.FrontendService/Schedule": ByItems("tasks", _LAMBDA),
    "/duly.v1.FrontendService/ScheduleStream": Streamed({"schedule": "Schedule"}),
    "/duly.v1.FrontendService/GetTask": _TASKS,
    "/duly.v1.FrontendService/FindTask": ByItems("keys", _LAMBDA),
    "/duly.v1.FrontendService/ListTasks": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.FrontendService/WaitTask": ByItems(
        "task_ids", Place(Form.TASK), all_of=("all_final",), waits=True
    ),
    "/duly.v1.FrontendService/CancelTask": _TASKS,
    "/duly.v1.FrontendService/UpdateTask": ByItems("updates", _TASK),
    "/duly.v1.FrontendService/CancelTasks": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.FrontendService/RedriveTask": _TASKS,
    "/duly.v1.FrontendService/RedriveTasks": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.FrontendService/PurgeTasks": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.FrontendService/CompleteTasks": ByItems("completions", Place(Form.COMPLETION_TOKEN, "token")),
    "/duly.v1.EventService/SendEvents": ByItems("events", _NAMESPACE),
    "/duly.v1.EventService/GetEventKeys": ByField(_NAMESPACE),
    "/duly.v1.EventService/ListEventKeys": ByField(_NAMESPACE),
    "/duly.v1.EventAddressService/CreateEventAddresses": ByItems(
        "addresses", _NAMESPACE, instead=_TASK_OR_CLAIM
    ),
    "/duly.v1.EventAddressService/GetEventAddress": WhereFound(
        {"state": event_addresses_pb2.EVENT_ADDRESS_STATE_UNKNOWN}
    ),
    "/duly.v1.EventAddressService/UseEventAddress": WhereFound(
        {"state": event_addresses_pb2.EVENT_ADDRESS_STATE_UNKNOWN}
    ),
    "/duly.v1.ExplainService/ExplainTask": ByField(_TASK),
    "/duly.v1.GraphService/ScheduleGraph": InOneCell("nodes", Place(Form.LAMBDA, "task.lambda")),
    "/duly.v1.GraphService/GetGraph": ByField(_GRAPH),
    "/duly.v1.GraphService/WaitGraph": ByField(_GRAPH),
    "/duly.v1.GraphService/ListGraphs": AllCells(),
    "/duly.v1.GraphService/CancelGraph": ByField(_GRAPH),
    "/duly.v1.GraphService/PutGraphDefinition": InOneCell("nodes", Place(Form.LAMBDA, "task.lambda")),
    "/duly.v1.GraphService/GetGraphDefinition": WhereFound({"error.code": task_pb2.ERROR_CODE_NOT_FOUND}),
    "/duly.v1.GraphService/ListGraphDefinitions": AllCells(),
    "/duly.v1.InspectionService/RevealTask": ByField(_TASK),
    "/duly.v1.InspectionService/GetActivity": AllCells(),
    "/duly.v1.InspectionService/GetTrends": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.InspectionService/GetServiceLevels": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.InspectionService/Search": AllCells(),
    "/duly.v1.GateService/PutGate": Gates(),
    "/duly.v1.GateService/DeleteGates": Gates(),
    "/duly.v1.GateService/ListGates": AllCells(),
    "/duly.v1.GateService/PutBreaker": ByField(Place(Form.LAMBDA, "breaker.lambda")),
    "/duly.v1.GateService/DeleteBreakers": ByItems("lambdas", Place(Form.LAMBDA)),
    "/duly.v1.GateService/ListBreakers": AllCells(),
    "/duly.v1.LimitService/PutResource": _CHANGES_OWNED,
    "/duly.v1.LimitService/DeleteResource": _CHANGES_OWNED,
    "/duly.v1.LimitService/ListResources": AllCells(),
    "/duly.v1.LimitService/GetBacklog": AllCells(),
    # a prefix is of one namespace, as a lambda is
    "/duly.v1.ObjectiveService/PutObjective": ByField(Place(Form.LAMBDA, "objective.lambda")),
    "/duly.v1.ObjectiveService/DeleteObjectives": ByItems("lambdas", Place(Form.LAMBDA)),
    "/duly.v1.ObjectiveService/ListObjectives": AllCells(),
    "/duly.v1.PoolService/PutPools": _CHANGES_OWNED,
    "/duly.v1.PoolService/DeletePools": _CHANGES_OWNED,
    "/duly.v1.PoolService/ListPools": AllCells(),
    "/duly.v1.ProblemService/ListProblems": AllCells(),
    "/duly.v1.ProblemService/ListNotificationTargets": _OWNED,
    "/duly.v1.ProblemService/TestNotificationTargets": _OWNED,
    "/duly.v1.RegistryService/RegisterLambdas": ByItems("lambdas", _NAME),
    "/duly.v1.RegistryService/ListLambdas": AllCells(),
    "/duly.v1.RegistryService/GetLambda": ByField(_NAME),
    "/duly.v1.RegistryService/UpdateLambda": ByField(_NAME),
    "/duly.v1.RegistryService/DeleteLambda": ByField(_NAME),
    "/duly.v1.RegistryService/RestoreLambda": ByField(_NAME),
    "/duly.v1.RegistryService/SetFairWeights": ByField(_NAME),
    "/duly.v1.RegistryService/ListFairKeys": ByField(_NAME),
    "/duly.v1.SessionService/GetSession": ByField(_NAMESPACE),
    # its namespace is absent, or given and empty: `Form.NAMESPACE` tells these apart
    "/duly.v1.SessionService/ListSessions": ByField(_NAMESPACE, empty_is_all=True),
    "/duly.v1.SessionService/UnblockSession": ByField(_NAMESPACE),
    "/duly.v1.SettingsService/ListSettings": _OWNED,
    "/duly.v1.SettingsService/SetSettings": _CHANGES_OWNED,
    "/duly.v1.SettingsService/ResetSettings": _CHANGES_OWNED,
    "/duly.v1.TimeTableService/PutTimeTables": ByItems(
        "tables", Place(Form.LAMBDA, "table.lambda"), otherwise=Place(Form.TIME_TABLE, "table.name")
    ),
    "/duly.v1.TimeTableService/GetTimeTables": _TABLES,
    "/duly.v1.TimeTableService/ListTimeTables": _ONE_LAMBDA_OR_ALL,
    "/duly.v1.TimeTableService/DeleteTimeTables": _TABLES,
    "/duly.v1.TimeTableService/PauseTimeTables": _TABLES,
    "/duly.v1.TimeTableService/ResumeTimeTables": _TABLES,
    "/duly.v1.TimeTableService/BackfillTimeTable": ByField(Place(Form.TIME_TABLE, "name")),
    "/duly.v1.TimeTableService/PutCalendars": _CHANGES_OWNED,
    "/duly.v1.TimeTableService/GetCalendars": _OWNED,
    "/duly.v1.TimeTableService/ListCalendars": AllCells(),
    "/duly.v1.TimeTableService/DeleteCalendars": _CHANGES_OWNED,
    "/duly.v1.FleetService/ReportHost": AllCells(),
    "/duly.v1.FleetService/ListHosts": AllCells(),
    "/duly.v1.FleetService/ListServices": AllCells(),
    "/duly.v1.FleetService/ListQueues": AllCells(),
    "/duly.v1.AttachmentService/BeginUploads": ByField(_LAMBDA),
    "/duly.v1.AttachmentService/UploadParts": ByField(_LAMBDA),
    "/duly.v1.AttachmentService/FinishUploads": ByField(_LAMBDA),
    "/duly.v1.AttachmentService/FetchParts": ByField(_TASK_OR_CLAIM),
    "/duly.v1.AttachmentService/ListAttachments": _TASKS,
    "/duly.v1.OutputService/AppendOutput": ByItems(
        "items",
        Place(Form.CLAIM, "task_id", claim_token="claim_token"),  # noqa: S106 (a field's name)
    ),
    "/duly.v1.OutputService/ReadOutput": ByField(_TASK),
    "/duly.v1.WatchService/Watch": Watching(),
    "/duly.v1.AccessService/GetAccess": _OWNED,
    "/duly.v1.AccessService/GetSignIn": _OWNED,
    "/duly.v1.AccessService/AddGrants": _CHANGES_OWNED,
    "/duly.v1.AccessService/RemoveGrants": _CHANGES_OWNED,
    "/duly.v1.AccessService/ListGrants": _OWNED,
    "/duly.v1.AccessService/CreateToken": _CHANGES_OWNED,
    "/duly.v1.AccessService/RevokeTokens": _CHANGES_OWNED,
    "/duly.v1.AccessService/ListTokens": _OWNED,
    "/duly.v1.AccessService/ListAuditEvents": AllCells(),
}
