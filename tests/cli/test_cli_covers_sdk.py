"""The command line offers what the SDK's client does: each method has a command, each parameter an option."""

import functools
import inspect
from typing import get_type_hints

import pytest
from typer.main import get_command

import duly
from duly.callbacks.lambda_of import ScheduleOptions
from duly.tasks.filters import CancelFilter, DeadLetterFilter, PurgeFilter, TaskFilter
from duly.time_tables.new_time_table import TimeTableOptions
from duly_cli.__main__ import app

METHODS = {
    "attachments": "attachments list",
    "output": "logs",
    "fetch": "attachments fetch",
    "read_attachment": "attachments fetch",
    "schedule": "schedule",
    "schedule_many": "schedule",
    "explain": "explain",
    "get": "get",
    "get_many": "get",
    "wait": "wait",
    "wait_many": "wait",
    "cancel": "cancel",
    "cancel_many": "cancel",
    "complete": "complete",
    "fail": "complete",
    "cancel_where": "cancel",
    "purge": "purge",
    "update": "update",
    "update_many": "update",
    "list": "list",
    "lambdas": "lambdas list",
    "get_lambda": "lambdas show",
    "transfer_lambda": "lambdas transfer",
    "roll_back_lambda": "lambdas rollback",
    "ramp_lambda": "lambdas ramp",
    "end_ramp": "lambdas ramp",
    "delete_lambda": "lambdas delete",
    "restore_lambda": "lambdas restore",
    "set_fair_weights": "lambdas fair",
    "fair_keys": "lambdas fair",
    "register": "register",
    "sign_in_provider": "login",
    "dead_letters": "dead-letters list",
    "redrive": "redrive",
    "redrive_many": "redrive",
    "redrive_where": "redrive",
    "send_event": "events send",
    "send_events": "events send",
    "get_event_key": "events show",
    "event_keys": "events list",
    "get_session": "sessions show",
    "sessions": "sessions list",
    "unblock_session": "sessions unblock",
    "unblock_sessions": "sessions unblock",
    "get_graph": "graphs show",
    "wait_graph": "graphs wait",
    "cancel_graph": "graphs cancel",
    "list_graphs": "graphs list",
    "put_graph_definition": "graphs put",
    "run_graph": "graphs run",
    "graph_definitions": "graphs definitions",
    "settings": "settings list",
    "set_setting": "settings set",
    "set_settings": "settings set",
    "reset_settings": "settings reset",
    "resources": "resources list",
    "backlog": "backlog list",
    "hosts": "hosts list",
    "services": "services list",
    "queues": "queues list",
    "put_resource": "resources set",
    "delete_resource": "resources delete",
    "pools": "pools list",
    "autoscaler_leader": "autoscaler explain",
    "put_pool": "pools set",
    "delete_pool": "pools delete",
    "put_gate": "gates set",
    "gate_hits": "gates set",
    "delete_gate": "gates delete",
    "gates": "gates list",
    "put_objective": "slo set",
    "delete_objective": "slo reset",
    "objectives": "slo objectives",
    "put_breaker": "breakers set",
    "delete_breaker": "breakers delete",
    "breakers": "breakers list",
    "tables": "tables list",
    "table": "tables show",
    "create_table": "tables create",
    "change_table": "tables set",
    "pause_table": "tables pause",
    "resume_table": "tables resume",
    "delete_table": "tables delete",
    "backfill_table": "tables backfill",
    "calendars": "calendars list",
    "calendar": "calendars check",
    "put_calendar": "calendars set",
    "delete_calendar": "calendars delete",
    "access": "whoami",
    "grants": "grants list",
    "add_grants": "grants add",
    "remove_grants": "grants delete",
    "create_token": "tokens create",
    "tokens": "tokens list",
    "revoke_tokens": "tokens revoke",
    "audit_events": "audit list",
    "reveal": "reveal",
    "activity": "activity",
    "service_levels": "slo show",
    "search": "search",
    "watch": "events watch",
    "event_address": "events address",
    "problems": "status",
    "notification_targets": "notifications list",
    "test_notification_target": "notifications test",
}
OPTIONS = {
    "statuses": "status",
    "resources": "resource",
    "priorities": "priority",
    "failure_kinds": "kind",
    "finished_after": "since",
    "finished_before": "until",
    "task": "task_ids",
    "names": "names",
    "graph": "graph_id",
    "attributes": "attribute",
}
"""Parameters whose options have another name."""
WRITTEN_IN_PYTHON = {"graph", "schedule_graph", "get_graph_definition"}
"""From the shell: `graph put FILE`, `graph run NAME`, `graph definitions`."""
FILTERS = {"cancel_where": CancelFilter, "list": TaskFilter, "purge": PurgeFilter}
OPTIONS_OF = {
    "schedule": ScheduleOptions,
    "create_table": TimeTableOptions,
    "change_table": TimeTableOptions,
}
ANOTHER_WAY = {
    ("attachments", "task"): "its id",
    ("output", "task"): "its id",
    ("fetch", "attachment"): "a task's id, and a name",
    ("read_attachment", "attachment"): "a task's id, and a name",
    ("fetch", "progress"): "a bar, on a terminal",
    ("explain", "task"): "its id",
    ("pools", "names"): "duly pools show NAME",
    ("table", "planned"): "duly tables preview --next",
    ("table", "planned_from"): "duly tables preview --from",
    ("put_calendar", "open"): "--open",
    ("get_graph", "nodes"): "always",
    ("put_gate", "kind"): "--pause, --drop or --delay",
    ("put_gate", "owner"): "who runs the command",
    ("put_gate", "duration"): "--until takes both",
    ("put_gate", "expires_at"): "--until takes both",
    ("put_breaker", "owner"): "who runs the command",
    ("put_objective", "start_within"): "--within",
    ("list_graphs", "page_size"): "--limit decides",
    ("put_graph_definition", "graph"): "a file",
    ("schedule", "result_type"): "the command prints JSON",
    ("run_graph", "timeout"): "the SDK's default",
    ("complete", "timeout"): "the SDK's default",
    ("fail", "timeout"): "the SDK's default",
    ("send_event", "timeout"): "the SDK's default",
    ("send_events", "timeout"): "the SDK's default",
    ("send_events", "events"): "one at a time",
    ("event_keys", "page_size"): "--limit decides",
    ("schedule_many", "tasks"): "--lines: a payload a line",
    ("get_many", "tasks"): "task ids",
    ("wait_many", "tasks"): "task ids",
    ("cancel_many", "tasks"): "task ids",
    ("redrive_many", "tasks"): "task ids",
    ("unblock_session", "key"): "keys",
    ("unblock_sessions", "sessions"): "--blocked",
    ("update_many", "updates"): "task ids",
    ("wait", "raise_on_failure"): "the exit code says so",
    ("wait_many", "raise_on_failure"): "the exit code says so",
    ("list", "page_size"): "--limit decides",
    ("list", "attributes"): "--where",
    ("cancel_where", "attributes"): "--where",
    ("purge", "attributes"): "--where",
    ("sessions", "page_size"): "--limit decides",
    ("hosts", "page_size"): "--limit decides",
    ("hosts", "include_lambdas"): "duly hosts HOST_ID",
    ("queues", "page_size"): "--limit decides",
    ("dead_letters", "page_size"): "--limit decides",
    ("set_settings", "values"): "one at a time",
    ("add_grants", "grants"): "principal, role and patterns; or a file",
    ("remove_grants", "grants"): "principal, role and patterns; or a file",
    ("audit_events", "page_size"): "--limit decides",
}


def methods() -> list[str]:
    return [
        name
        for name, member in inspect.getmembers(duly.Client, inspect.isfunction)
        if not name.startswith("_") and name != "close"
    ]


def parameters(method: str) -> set[str]:
    names = set(inspect.signature(getattr(duly.Client, method)).parameters) - {"self"}
    if "which" in names:
        names = names - {"which"} | set(get_type_hints(FILTERS.get(method, DeadLetterFilter)))
    if "options" in names and method in OPTIONS_OF:
        names = names - {"options"} | set(OPTIONS_OF[method].__annotations__)
    return {name for name in names if (method, name) not in ANOTHER_WAY}


commands = functools.cache(get_command)


def command(name: str) -> object:
    found = commands(app)
    for word in name.split():
        found = found.commands[word]  # type: ignore[attr-defined]
    return found


def test_every_method_of_the_client_has_a_command() -> None:
    assert set(methods()) == set(METHODS) | WRITTEN_IN_PYTHON


@pytest.mark.parametrize("method", METHODS)
def test_every_parameter_of_a_method_is_an_option_or_argument(method: str) -> None:
    offered = {each.name for each in command(METHODS[method]).params}  # type: ignore[attr-defined]

    missing = {name for name in parameters(method) if OPTIONS.get(name, name) not in offered}

    assert missing == set()


def test_an_option_bears_the_name_that_the_sdk_has_for_it() -> None:
    options = {word for each in command("schedule").params for word in each.opts}  # type: ignore[attr-defined]

    assert {"--expires-at", "--idempotency-key", "--collection", "--priority", "--timeout"} <= options
