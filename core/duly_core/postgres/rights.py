"""What each service may do in Postgres: the roles that `duly migrate --roles` makes, and their rights, as data."""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import psycopg
from psycopg.rows import TupleRow

FRONTEND = "duly_frontend"
STORE_CONSUMER = "duly_store_consumer"
HSC = "duly_hsc"
AUTOSCALER = "duly_autoscaler"

Rights: TypeAlias = dict[str, str]

_LETTERS = {"s": "select", "i": "insert", "u": "update", "d": "delete"}

TABLES: dict[str, Rights] = {
    FRONTEND: {
        "access_token": "siu",
        "access_version": "su",
        "alembic_version": "s",
        "cell": "siud",
        "cell_directory": "su",
        "cell_namespace": "siud",
        "operator_change": "siu",
        "attachment": "siu",
        "attachment_store": "s",
        "attachment_usage": "siu",
        "attachment_use": "sid",
        "attempt": "siud",
        "audit_event": "si",
        "dead_letter": "siud",
        "event": "si",
        "event_address": "siu",
        "event_key": "siu",
        "event_wait": "sd",
        "fair_lambda": "s",
        "fair_weight": "siud",
        "graph": "siu",
        "graph_definition": "si",
        "graph_edge": "si",
        "graph_node": "siu",
        "start_objective": "siud",
        "trend_point": "siu",
        "host": "siu",
        "host_lambda": "siud",
        "deleted_lambda": "siud",
        "idempotency_key": "siud",
        "unique_key": "siud",
        "task_attribute": "si",
        "merged_task": "si",
        "lambda": "siud",
        "lambda_declaration": "siud",
        "lambda_ramp": "siud",
        "own_setting": "s",
        "problem": "siud",
        "problem_board": "su",
        "notification_target": "siu",
        "resource": "siud",
        "resource_use": "siud",
        "role_grant": "sid",
        "service_instance": "siu",
        "session": "siud",
        "setting": "siud",
        "former_setting": "siud",
        "store_epoch": "s",
        "task": "siud",
        "task_assoc": "siud",
        "task_event": "si",
        "task_event_sweep": "s",
        "task_output": "sid",
        "time_table": "siud",
        "calendar": "siud",
        "turn": "su",
        "watch": "siud",
        "watch_key": "sid",
        "gate": "siud",
        "gate_version": "su",
        "breaker": "siud",
        "breaker_count": "sd",
        "worker_pool": "siud",
        "pool_plan": "s",
        "autoscaler_lease": "s",
    },
    STORE_CONSUMER: {
        "alembic_version": "s",
        "cell": "s",
        "cell_directory": "s",
        "cell_namespace": "s",
        "operator_change": "sd",
        "attachment": "sud",
        "attachment_store": "su",
        "attachment_usage": "su",
        "attachment_use": "sd",
        "attempt": "siud",
        "dead_letter": "siud",
        "event": "sd",
        "event_address": "sd",
        "event_key": "sud",
        "event_wait": "sd",
        "fair_lambda": "si",
        "fair_weight": "s",
        "graph": "sud",
        "graph_edge": "sd",
        "graph_node": "sud",
        "trend_point": "siud",
        "host": "sd",
        "host_lambda": "s",
        "idempotency_key": "sid",
        "unique_key": "sud",
        "task_attribute": "sid",
        "merged_task": "sd",
        "lambda": "s",
        "own_setting": "siud",
        "resource": "s",
        "resource_use": "siud",
        "service_instance": "siud",
        "session": "siud",
        "setting": "s",
        "former_setting": "s",
        "store_epoch": "siu",
        "task": "siud",
        "task_assoc": "siud",
        "task_event": "sid",
        "task_event_sweep": "su",
        "task_output": "sd",
        "time_table": "su",
        "calendar": "s",
        "turn": "su",
        "watch": "sd",
        "watch_key": "sd",
        "gate": "siud",
        "gate_version": "su",
        "breaker": "su",
        "breaker_count": "siud",
        "audit_event": "i",
    },
    HSC: {
        "access_token": "s",
        "access_version": "s",
        "alembic_version": "s",
        "cell": "s",
        "cell_directory": "s",
        "cell_namespace": "s",
        "attachment": "su",
        "attachment_use": "sid",
        "attempt": "siud",
        "audit_event": "i",
        "dead_letter": "siud",
        "event": "s",
        "event_key": "siu",
        "event_wait": "siu",
        "fair_lambda": "s",
        "fair_weight": "s",
        "graph": "su",
        "graph_edge": "si",
        "graph_node": "siu",
        "trend_point": "siu",
        "idempotency_key": "si",
        "lambda": "s",
        "lambda_ramp": "s",
        "own_setting": "s",
        "resource": "s",
        "resource_use": "siud",
        "role_grant": "s",
        "service_instance": "siu",
        "session": "siud",
        "setting": "s",
        "task": "siud",
        "task_assoc": "siud",
        "task_event": "sid",
        "merged_task": "s",
        "task_attribute": "si",
        "unique_key": "siud",
        "watch": "s",
        "watch_key": "s",
        "gate": "s",
        "gate_version": "s",
        "breaker": "s",
        "breaker_count": "siu",
    },
    AUTOSCALER: {
        "alembic_version": "s",
        "cell": "s",
        "cell_directory": "s",
        "cell_namespace": "s",
        "audit_event": "i",
        "autoscaler_lease": "su",
        "breaker": "s",
        "fair_lambda": "s",
        "fair_weight": "s",
        "gate": "s",
        "gate_version": "s",
        "host": "su",
        "host_lambda": "s",
        "lambda": "s",
        "pool_plan": "siu",
        "service_instance": "siu",
        "task": "s",
        "task_assoc": "s",
        "worker_pool": "s",
    },
}
"""By role and table: s(elect), i(nsert), u(pdate), d(elete)."""

PARTITIONED: dict[str, Rights] = {STORE_CONSUMER: {"task": "sd", "attempt": "sd"}}
"""The rights on each partition by itself: retention looks through one partition at a time."""

OWNERS_FUNCTIONS: dict[str, tuple[str, ...]] = {
    STORE_CONSUMER: ("duly_add_partition", "duly_drop_partition", "duly_forget_audit_events"),
    FRONTEND: ("duly_add_label_queues",),
    HSC: ("duly_add_label_queues",),
    "duly_client": ("duly_schedule",),
}
"""The functions that run with their owner's rights, and who may call them. All may call the others: these add no rights."""


def table_rights(role: str) -> Iterator[tuple[str, str]]:
    """Yield each table and right of a role, such as ("task", "select")."""
    for table, letters in sorted(TABLES[role].items()):
        for letter in letters:
            yield table, _LETTERS[letter]


def rights_of(letters: str) -> str:
    """Return rights as SQL writes them.

    >>> rights_of("si")
    'select, insert'
    """
    return ", ".join(_LETTERS[letter] for letter in letters)


async def missing_rights(connection: psycopg.AsyncConnection[TupleRow], role: str) -> tuple[str, list[str]]:
    """Return the user of a connection, and which rights of a role the user does not have."""
    wanted = [*table_rights(role)]
    cursor = await connection.execute(
        """
        select current_user::text, array(
            select format('%%s on %%s', asked.privilege, asked.name)
            from unnest(%(tables)s::text[], %(privileges)s::text[]) with ordinality
                as asked (name, privilege, place)
            where not coalesce(has_table_privilege(to_regclass(asked.name), asked.privilege), false)
            order by place
        ) || array(
            select format('execute on %%s', asked.name)
            from unnest(%(functions)s::text[]) as asked (name)
            where not coalesce(has_function_privilege(to_regproc(asked.name), 'execute'), false)
        )
        """,
        {
            "tables": [f'"{table}"' for table, _ in wanted],
            "privileges": [privilege for _, privilege in wanted],
            "functions": [*OWNERS_FUNCTIONS.get(role, ())],
        },
    )
    ((user, lacking),) = await cursor.fetchall()
    return user, lacking


def names(roles: Iterable[str] = (*TABLES, *OWNERS_FUNCTIONS)) -> list[str]:
    """Return the roles that are made, each once."""
    return list(dict.fromkeys(roles))
