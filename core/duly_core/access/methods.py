"""What each RPC needs. Pure data; a test holds it against the services' descriptors."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from duly_core.access.roles import Action


class Reach(enum.Enum):
    """For which lambdas the action must be allowed before a call is served at all."""

    SOME = "some"
    """For any lambda: the servicer checks each lambda and task that the request names."""
    ALL = "all"
    """For all lambdas: the call changes or shows what belongs to nobody in particular."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a call needs."""

    action: Action
    reach: Reach = Reach.SOME
    or_action: Action | None = None
    """Also enough for the call to be served: the servicer says for what."""


_SCHEDULE = Need(Action.SCHEDULE)
_READ = Need(Action.READ)
_CHANGE = Need(Action.CHANGE)
_REDRIVE = Need(Action.REDRIVE)
_RUN = Need(Action.RUN)
_OPERATE = Need(Action.OPERATE, Reach.ALL)

NEEDS: Mapping[str, Need] = {
    "/duly.v1.FrontendService/Schedule": _SCHEDULE,
    "/duly.v1.FrontendService/ScheduleStream": _SCHEDULE,
    "/duly.v1.FrontendService/GetTask": _READ,
    "/duly.v1.FrontendService/FindTask": _READ,
    "/duly.v1.FrontendService/ListTasks": _READ,
    "/duly.v1.FrontendService/WaitTask": _READ,
    "/duly.v1.FrontendService/CancelTask": _CHANGE,
    "/duly.v1.FrontendService/UpdateTask": _CHANGE,
    "/duly.v1.FrontendService/CancelTasks": _CHANGE,
    "/duly.v1.FrontendService/RedriveTask": _REDRIVE,
    "/duly.v1.FrontendService/RedriveTasks": _REDRIVE,
    "/duly.v1.FrontendService/PurgeTasks": _REDRIVE,
    # The servicer holds each key against the grants.
    "/duly.v1.EventService/SendEvents": Need(Action.SEND),
    # With the token of a claim: who may run the task.
    "/duly.v1.EventAddressService/CreateEventAddresses": Need(Action.SEND, or_action=Action.RUN),
    # All of the namespace: the servicer says so.
    "/duly.v1.EventService/GetEventKeys": _READ,
    "/duly.v1.EventService/ListEventKeys": _READ,
    "/duly.v1.ExplainService/ExplainTask": _READ,
    "/duly.v1.GraphService/ScheduleGraph": _SCHEDULE,
    "/duly.v1.GraphService/GetGraph": _READ,
    "/duly.v1.GraphService/WaitGraph": _READ,
    "/duly.v1.GraphService/ListGraphs": _READ,
    "/duly.v1.GraphService/CancelGraph": _CHANGE,
    "/duly.v1.GraphService/PutGraphDefinition": Need(Action.REGISTER),
    "/duly.v1.GraphService/GetGraphDefinition": _READ,
    "/duly.v1.GraphService/ListGraphDefinitions": _READ,
    "/duly.v1.InspectionService/RevealTask": Need(Action.READ_PAYLOAD),
    "/duly.v1.InspectionService/GetActivity": Need(Action.READ, Reach.ALL),
    # Of all lambdas, only with the action for all: the servicer says so.
    "/duly.v1.InspectionService/GetTrends": _READ,
    "/duly.v1.InspectionService/GetServiceLevels": _READ,
    # Only what the caller may read is found.
    "/duly.v1.InspectionService/Search": _READ,
    # An operator of what the gate covers, or the owner of its lambda: the servicer says which gates.
    "/duly.v1.GateService/PutGate": Need(Action.OPERATE, or_action=Action.REGISTER),
    "/duly.v1.GateService/DeleteGates": Need(Action.OPERATE, or_action=Action.REGISTER),
    "/duly.v1.GateService/ListGates": _READ,
    "/duly.v1.GateService/PutBreaker": _OPERATE,
    "/duly.v1.GateService/DeleteBreakers": _OPERATE,
    "/duly.v1.GateService/ListBreakers": _READ,
    "/duly.v1.LimitService/PutResource": _OPERATE,
    "/duly.v1.LimitService/DeleteResource": _OPERATE,
    "/duly.v1.LimitService/ListResources": _READ,
    "/duly.v1.LimitService/GetBacklog": _READ,
    # Of lambdas that the caller operates: the servicer says which.
    "/duly.v1.ObjectiveService/PutObjective": Need(Action.OPERATE),
    "/duly.v1.ObjectiveService/DeleteObjectives": Need(Action.OPERATE),
    "/duly.v1.ObjectiveService/ListObjectives": _READ,
    "/duly.v1.PoolService/PutPools": _OPERATE,
    "/duly.v1.PoolService/DeletePools": _OPERATE,
    "/duly.v1.PoolService/ListPools": Need(Action.READ, Reach.ALL),
    # What hits lambdas that the caller may read: the servicer leaves out the rest.
    "/duly.v1.ProblemService/ListProblems": _READ,
    "/duly.v1.ProblemService/ListNotificationTargets": Need(Action.READ, Reach.ALL),
    "/duly.v1.ProblemService/TestNotificationTargets": _OPERATE,
    "/duly.v1.RegistryService/RegisterLambdas": Need(Action.REGISTER, or_action=Action.RUN),
    "/duly.v1.RegistryService/ListLambdas": _READ,
    "/duly.v1.RegistryService/GetLambda": _READ,
    # Its owner or an operator: the servicer says which.
    "/duly.v1.RegistryService/UpdateLambda": _CHANGE,
    "/duly.v1.RegistryService/DeleteLambda": _CHANGE,
    "/duly.v1.RegistryService/RestoreLambda": _CHANGE,
    "/duly.v1.RegistryService/SetFairWeights": _CHANGE,
    "/duly.v1.RegistryService/ListFairKeys": _READ,
    "/duly.v1.SessionService/GetSession": _READ,
    # Without a namespace it needs a role for all lambdas, with one a role for all of its own: the servicer says so.
    "/duly.v1.SessionService/ListSessions": _READ,
    "/duly.v1.SessionService/UnblockSession": _REDRIVE,
    "/duly.v1.SettingsService/ListSettings": Need(Action.READ, Reach.ALL),
    "/duly.v1.SettingsService/SetSettings": _OPERATE,
    "/duly.v1.SettingsService/ResetSettings": _OPERATE,
    "/duly.v1.TimeTableService/PutTimeTables": Need(Action.REGISTER),
    "/duly.v1.TimeTableService/GetTimeTables": _READ,
    "/duly.v1.TimeTableService/ListTimeTables": _READ,
    "/duly.v1.TimeTableService/DeleteTimeTables": Need(Action.REGISTER),
    "/duly.v1.TimeTableService/PauseTimeTables": Need(Action.REGISTER),
    "/duly.v1.TimeTableService/ResumeTimeTables": Need(Action.REGISTER),
    "/duly.v1.TimeTableService/BackfillTimeTable": Need(Action.REGISTER),
    # An owner or operator of its namespace; without one: of all lambdas. The servicer says so.
    "/duly.v1.TimeTableService/PutCalendars": Need(Action.REGISTER, or_action=Action.OPERATE),
    "/duly.v1.TimeTableService/GetCalendars": _READ,
    "/duly.v1.TimeTableService/ListCalendars": _READ,
    "/duly.v1.TimeTableService/DeleteCalendars": Need(Action.REGISTER, or_action=Action.OPERATE),
    # Only of lambdas that the caller may run; of its own host: the servicer says which.
    "/duly.v1.FleetService/ReportHost": _RUN,
    "/duly.v1.FleetService/ListHosts": _READ,
    "/duly.v1.FleetService/ListServices": Need(Action.READ, Reach.ALL),
    "/duly.v1.FleetService/ListQueues": _READ,
    # The servicer says which lambda: whoever may schedule or run its tasks may upload for them.
    "/duly.v1.AttachmentService/BeginUploads": Need(Action.SCHEDULE, or_action=Action.RUN),
    "/duly.v1.AttachmentService/UploadParts": Need(Action.SCHEDULE, or_action=Action.RUN),
    "/duly.v1.AttachmentService/FinishUploads": Need(Action.SCHEDULE, or_action=Action.RUN),
    # Of a task whose payload the caller may read, or with the token of a claim: the servicer says so.
    "/duly.v1.AttachmentService/FetchParts": Need(Action.READ, or_action=Action.RUN),
    "/duly.v1.AttachmentService/ListAttachments": _READ,
    # Under the token of a claim: the servicer says of which lambdas.
    "/duly.v1.OutputService/AppendOutput": _RUN,
    # Of a task whose payload the caller may read.
    "/duly.v1.OutputService/ReadOutput": _READ,
    "/duly.v1.WatchService/Watch": _READ,
    "/duly.v1.AccessService/AddGrants": Need(Action.GRANT),
    "/duly.v1.AccessService/RemoveGrants": Need(Action.GRANT),
    "/duly.v1.AccessService/ListGrants": Need(Action.AUDIT, Reach.ALL),
    "/duly.v1.AccessService/CreateToken": Need(Action.GRANT, Reach.ALL),
    "/duly.v1.AccessService/RevokeTokens": Need(Action.GRANT, Reach.ALL),
    "/duly.v1.AccessService/ListTokens": Need(Action.AUDIT, Reach.ALL),
    "/duly.v1.AccessService/ListAuditEvents": Need(Action.AUDIT, Reach.ALL),
    "/duly.v1.HscService/ClaimTask": _RUN,
    "/duly.v1.HscService/ClaimWork": _RUN,
    "/duly.v1.HscService/Heartbeat": _RUN,
    "/duly.v1.HscService/SetResults": _RUN,
    "/duly.v1.HscService/Release": _RUN,
    "/duly.v1.HscService/Work": _RUN,
    "/duly.v1.ControllerService/AttachExecutor": _RUN,
    "/duly.v1.ControllerService/NextWork": _RUN,
    "/duly.v1.ControllerService/GetHostSettings": _RUN,
}

AUDITED = frozenset(
    path
    for path, need in NEEDS.items()
    if need.action
    in {
        Action.SEND,
        Action.CHANGE,
        Action.REDRIVE,
        Action.REGISTER,
        Action.OPERATE,
        Action.GRANT,
        Action.READ_PAYLOAD,
    }
)
"""Calls that are written into the audit log. Those that schedule are not: each task says who scheduled it. Programs read
payloads and results with GetTask and WaitTask, which are not; people with RevealTask, which is."""

AUDITED_IF_KNOWN = frozenset(
    {
        "/duly.v1.FrontendService/CancelTask",
        "/duly.v1.FrontendService/UpdateTask",
        "/duly.v1.GraphService/CancelGraph",
    }
)
"""Of these, those that clients make for single tasks all the time: kept only where it is known who calls (decision 0038), or if they kill callbacks."""

KNOWN_CALLERS = frozenset({"/duly.v1.AccessService/GetAccess", "/duly.v1.FrontendService/CompleteTasks"})
"""Methods that need no role: who calls must only say who it is. Who completes a task has its token."""

ANSWERED_WITHOUT_ROLES = frozenset({"/duly.v1.ProblemService/ListProblems"})
"""Methods that are served while the store, which has the roles, does not answer: they say that it does not, and nothing else
(decision 0112). The caller still shows a token or a certificate."""

OPEN_METHODS = frozenset(
    {
        "/duly.v1.AccessService/GetSignIn",
        "/duly.v1.EventAddressService/GetEventAddress",
        "/duly.v1.EventAddressService/UseEventAddress",
    }
)
"""Methods that need no known caller: the token in the request is the right, or the answer says how to sign in."""

OPEN_SERVICES = frozenset({"/grpc.health.v1.Health/"}) | OPEN_METHODS
"""What nobody has to be known for, by the begin of the path: a probe of a load balancer has no token."""
