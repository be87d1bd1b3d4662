"""Makes all servicers of a Frontend, with the parts that they share."""

from collections.abc import Callable, Mapping
from datetime import timedelta

from duly_core.access.settings import AuthSettings
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.settings import AttachmentSettings
from duly_core.config.live_sections import LiveFrontendSettings, LiveSloSettings
from duly_core.config.timing import Timing
from duly_core.lambdas.cache import LambdaCache
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.rpc.settings import RpcSettings
from duly_core.watches.presence import FIRST_BEGINS_AFTER
from duly_frontend.access.service import AccessServicer
from duly_frontend.attachments.service import AttachmentServicer
from duly_frontend.cells.named import refuse_cells
from duly_frontend.event_addresses.service import EventAddressServicer
from duly_frontend.explain.service import ExplainServicer
from duly_frontend.fleet.inspection_service import InspectionServicer
from duly_frontend.fleet.service import FleetServicer
from duly_frontend.gates.service import GateServicer
from duly_frontend.graphs.service import GraphServicer
from duly_frontend.lambdas.service import RegistryServicer
from duly_frontend.limits.scheduling_quotas import SchedulingQuotas
from duly_frontend.limits.service import LimitServicer
from duly_frontend.live_settings.service import SettingsServicer
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.pools.service import PoolServicer
from duly_frontend.problems.service import ProblemServicer
from duly_frontend.sent_events.service import EventServicer
from duly_frontend.sessions.service import SessionServicer
from duly_frontend.settings import FrontendSettings
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.slo.service import ObjectiveServicer
from duly_frontend.stores import FrontendStores
from duly_frontend.task_output.service import OutputServicer
from duly_frontend.tasks.service import FrontendServicer
from duly_frontend.time_tables.service import TimeTableServicer
from duly_frontend.watches.service import WatchServicer
from duly_wire.v1 import fleet_pb2


class Servicers:
    """`all` are for one RpcServer; `close` ends their long polls."""

    def __init__(  # noqa: PLR0913 (each servicer needs some of them)
        self,
        stores: FrontendStores,
        settings: FrontendSettings,
        *,
        attachments: AttachmentSettings,
        blobs: BlobThreads | None,
        timing: Timing,
        rpc: RpcSettings | None = None,
        notifications: LocalNotifications | None = None,
        own_settings: Mapping[str, str] | None = None,
        live: Callable[[], LiveFrontendSettings] | None = None,
        heartbeat_timeout: Callable[[], timedelta] | None = None,
        host_settings: Callable[[], fleet_pb2.HostSettings | None] = lambda: None,
        first_watch_begins_after: timedelta = FIRST_BEGINS_AFTER,
        deliveries: Deliveries | None = None,
        auth: AuthSettings | None = None,
        slo: Callable[[], LiveSloSettings] = LiveSloSettings,
        accepted: AcceptedCalls | None = None,
        plans_at: Callable[[Store], Store | None] = lambda own: own,
    ) -> None:
        """Make them.

        Args:
            stores: pools of connections.
            settings: of this service.
            attachments: where attachments are.
            blobs: the threads that read and write them; None: there are no attachments.
            timing: of leases.
            rpc: the limits of calls and of answers; None: the defaults.
            notifications: shared with the other services of this process; None: there are no others.
            own_settings: what this process's configuration says, by name, where that is not the default.
            live: returns the limits of calls that hold now; None: those of `settings`.
            heartbeat_timeout: returns how long leases are now; None: as `timing` says.
            host_settings: returns what operators have set of what hosts follow; None: it is unknown yet.
            first_watch_begins_after: how long services may go by what they read when nobody watched.
            deliveries: of notifications; None: there are no targets.
            auth: how people sign in; None: nobody is identified.
            slo: tells what is promised now.
            accepted: counts calls that schedule, those of streams among them; None: nobody does.
            plans_at: returns the store that has the autoscaler's plans; None: it does not answer.
        """
        known = LambdaCache(stores.writes)
        notifier = Notifier(stores.writes, notifications)
        resources = ResourceCache(stores.reads)
        quotas = SchedulingQuotas(stores.reads)
        frontend = FrontendServicer(stores, settings, known, notifier, rpc, resources, quotas, live, accepted)
        graphs = GraphServicer(stores, settings, known, notifier, rpc, live, resources)
        fleet = FleetServicer(stores, known, host_settings)
        output = OutputServicer(stores, settings.output_limit, stores.load.output)
        watches = WatchServicer(stores, stores.writes.settings.watch_retention, first_watch_begins_after)
        self.all: list[object] = [
            frontend,
            graphs,
            RegistryServicer(stores, known, resources, notifier),
            SessionServicer(stores, notifier),
            EventServicer(stores, notifier, live or (lambda: settings)),
            EventAddressServicer(stores, notifier, live or (lambda: settings), settings.public_url),
            LimitServicer(stores, resources, quotas, notifier),
            SettingsServicer(stores.writes, own_settings, timing),
            ExplainServicer(stores, heartbeat_timeout or (lambda: timing.heartbeat_timeout), plans_at),
            GateServicer(stores),
            ObjectiveServicer(stores, slo),
            PoolServicer(stores),
            ProblemServicer(stores, deliveries=deliveries),
            TimeTableServicer(stores, Notifier(stores.writes, notifications), rpc, resources),
            fleet,
            InspectionServicer(stores, known, rpc, slo),
            AttachmentServicer(stores, attachments, known, blobs, stores.load.parts, stores.load.answers),
            output,
            watches,
            AccessServicer(stores.writes, auth or AuthSettings()),
        ]
        refuse_cells(self.all)
        self._closing = (frontend, graphs, output, watches, fleet)

    def close(self) -> None:
        """Answer the calls that wait, and refuse others."""
        for servicer in self._closing:
            servicer.close()
