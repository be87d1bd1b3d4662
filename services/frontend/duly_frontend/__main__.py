"""Wiring of the Frontend process: settings, store, servicers, server."""

import asyncio

from duly.v1 import (
    access_pb2,
    access_pb2_grpc,
    frontend_pb2,
    frontend_pb2_grpc,
    graphs_pb2,
    graphs_pb2_grpc,
    limits_pb2,
    limits_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
    settings_pb2,
    settings_pb2_grpc,
    time_tables_pb2,
    time_tables_pb2_grpc,
)
from duly_core.access.authorizer import open_authorizer
from duly_core.access.settings import AuthSettings
from duly_core.rpc.server import RpcServer, Service
from duly_core.rpc.settings import RpcSettings
from duly_core.service import Serve, run_service
from duly_core.store.access_cache import AccessCache
from duly_core.store.audit import StoredAuditLog
from duly_core.store.health import HealthFollower
from duly_core.store.lambda_cache import LambdaCache
from duly_core.store.local_notifications import LocalNotifications
from duly_core.store.notifications import Notifier
from duly_core.store.rights import FRONTEND
from duly_core.store.settings import StoreSettings
from duly_core.store.start import Migration
from duly_core.telemetry import observe_call
from duly_frontend.access import AccessServicer
from duly_frontend.events import log
from duly_frontend.graphs import GraphServicer
from duly_frontend.limits import LimitServicer
from duly_frontend.live_settings import SettingsServicer
from duly_frontend.registry import RegistryServicer
from duly_frontend.resource_needs import ResourceCache
from duly_frontend.scheduling_quotas import SchedulingQuotas
from duly_frontend.servicer import FrontendServicer
from duly_frontend.sessions import SessionServicer
from duly_frontend.settings import FrontendSettings
from duly_frontend.stores import open_stores
from duly_frontend.time_tables import TimeTableServicer


def build(
    notifications: LocalNotifications | None = None,
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings.

    Args:
        notifications: connects the services of this process; None: the others are processes of their own.
        migration: shared with the other services of this process.
        overrides: settings of [frontend].
    """
    settings = FrontendSettings.load(**overrides)
    store_settings = StoreSettings.load()
    rpc_settings = RpcSettings.load()
    auth_settings = AuthSettings.load()
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        async with open_stores(store_settings, settings) as stores:
            store = stores.writes
            known = LambdaCache(store)
            notifier = Notifier(store, notifications)
            resources = ResourceCache(stores.reads)
            quotas = SchedulingQuotas(stores.reads)
            frontend = FrontendServicer(stores, settings, known, notifier, rpc_settings, resources, quotas)
            limits = LimitServicer(stores, resources, quotas, notifier)
            sessions = SessionServicer(stores, notifier)
            graphs = GraphServicer(stores, settings, known, notifier, rpc_settings)
            registry = RegistryServicer(store, known)
            live = SettingsServicer(store)
            access = AccessServicer(store)
            time_tables = TimeTableServicer(store, Notifier(store, notifications), rpc_settings)
            server = RpcServer(
                settings.listen,
                [
                    Service(
                        frontend_pb2.DESCRIPTOR.services_by_name["FrontendService"].full_name,
                        lambda grpc: frontend_pb2_grpc.add_FrontendServiceServicer_to_server(frontend, grpc),
                    ),
                    Service(
                        access_pb2.DESCRIPTOR.services_by_name["AccessService"].full_name,
                        lambda grpc: access_pb2_grpc.add_AccessServiceServicer_to_server(access, grpc),
                    ),
                    Service(
                        graphs_pb2.DESCRIPTOR.services_by_name["GraphService"].full_name,
                        lambda grpc: graphs_pb2_grpc.add_GraphServiceServicer_to_server(graphs, grpc),
                    ),
                    Service(
                        registry_pb2.DESCRIPTOR.services_by_name["RegistryService"].full_name,
                        lambda grpc: registry_pb2_grpc.add_RegistryServiceServicer_to_server(registry, grpc),
                    ),
                    Service(
                        sessions_pb2.DESCRIPTOR.services_by_name["SessionService"].full_name,
                        lambda grpc: sessions_pb2_grpc.add_SessionServiceServicer_to_server(sessions, grpc),
                    ),
                    Service(
                        limits_pb2.DESCRIPTOR.services_by_name["LimitService"].full_name,
                        lambda grpc: limits_pb2_grpc.add_LimitServiceServicer_to_server(limits, grpc),
                    ),
                    Service(
                        settings_pb2.DESCRIPTOR.services_by_name["SettingsService"].full_name,
                        lambda grpc: settings_pb2_grpc.add_SettingsServiceServicer_to_server(live, grpc),
                    ),
                    Service(
                        time_tables_pb2.DESCRIPTOR.services_by_name["TimeTableService"].full_name,
                        lambda grpc: time_tables_pb2_grpc.add_TimeTableServiceServicer_to_server(
                            time_tables, grpc
                        ),
                    ),
                ],
                rpc_settings,
                observe_call,
                open_authorizer(auth_settings, AccessCache(stores.reads)),
                StoredAuditLog(store),
            )
            address = await server.start()
            if await migration.done(store_settings, stop, FRONTEND):
                log.info("frontend serves", address=address)
                await HealthFollower(server, stores.all, store_settings.unhealthy_after).run(stop)
            frontend.close()
            graphs.close()
            await server.stop()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("frontend", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
