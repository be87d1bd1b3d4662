"""The plans of the hot statements: rows are found by index, also by a connection that saw the tables empty.

Plans are made once and kept, so each statement is prepared and run as the pool would on tables of the worst moments: new
ones, such as a wave went through and autovacuum truncated, such as held a handful when they were analyzed, or rows in
one status only. Then thousands of rows come, beside a hundred thousand that are finished, and Postgres is asked what
the statement does, and how many partitions it thought of.
"""

import re
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.fairness.statements import FAIRNESS
from duly_core.gates.statements import GATES
from duly_core.postgres.pool import connect_arguments
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import (
    ENTITIES,
    FAIR,
    GATED,
    GATED_FAIR,
    LOCKS,
    READS,
    TRANSITIONS,
    UNWATCHED,
    load,
)
from duly_core.postgres.task_fields import FIELDS
from duly_core.upkeep.retention import Retention
from duly_wire.ids import new_task_id
from tests.fixtures import time_tables
from tests.fixtures.task_states import LAMBDA, SECOND

BACKLOG = 5_000
FOR_PEOPLE = ("events_of_keys", "waits_of_keys", "event_keys")
EVENTS = {name: each for name, each in load("events/events.sql").items() if name not in FOR_PEOPLE}
DAY = timedelta(days=1)
DEAD = {"dead_letter_pkey"}
ENTITY, ASSOC = {"task_first_pkey"}, {"task_assoc_pkey"}
END = {"task_pkey"}  # of the partitioned table: each row finds its partition when it is written
OTHER_PARTITION = re.compile(r"task_(rest|\d+)_\w+")
PLANNED_FOR_ALL = {
    "look_at_keys",
    "dead_with_keys",
    "existing",
    "applied_before",
    "completed_before",
    "redrive",
    "claim_work",
    "claim_work_gated",
    "claim_work_fair",
    "claim_work_gated_fair",
    "claim_again",
    "graph_places",
    "growing_graph",
    "former_blockers",
}
"""What is not on the path of a task that goes well, or finds the tasks itself, may think of all partitions; it runs on
those that it needs."""
READS_ALL_HELD = {"claimed_under", "claim_again", "enqueued_gated"}
"""They look for prefixes of tokens, for replies that were lost and callers that died; the last once after a change of gates."""
AS_GOOD = {
    "task_first_lambda_task_id_idx": "task_first_pkey",
    "event_wait_by_task": "event_wait_pkey",
    "event_key_unfinished": "event_key_pkey",
    "unique_key_by_task": "unique_key_pkey",
}
"""Entities may be found by lambda and id as well; what does not know the lambda skips over the few that there are. So may waits be
found by task or by key. A key of a unique task has one task, and is found by either. Keys with waits for an event are few, and are found by
themselves, too."""
WATCHES = {"watch_pkey"}
"""Of these the first row is read, if there is one."""
SMALL = {
    "gate",
    "gate_version",
    "breaker",
    "breaker_count",
    "deleted_lambda",
    "lambda",
    "fair_lambda",
    "fair_weight",
    "lambda_ramp",
}
"""Tables of at most some thousands of rows: how they are read does not matter where no task waits for it."""
OF_SMALL = {*GATES, *FAIRNESS, "queues_of"}
"""Statements that read them, and whose indexes there are not looked at."""
READY, WATCHED, EXPIRING = {"task_assoc_ready"}, {"task_assoc_watched"}, {"task_assoc_expiring"}
BY_KEY = {"task_assoc_fair", "fair_weight_pkey"}
SESSIONS, WAITING_UNTIL, IN_SESSION = (
    {"session_pkey"},
    {"task_assoc_waiting_until"},
    {"task_assoc_in_session"},
)
GRAPHS, NODES = {"graph_pkey"}, {"graph_node_pkey"}
NODES_BY_TASK = {"graph_node_by_task"}
LAMBDAS, KEYS = {"lambda_pkey"}, {"idempotency_key_pkey"}
UNIQUE_KEYS, MERGED = {"unique_key_pkey"}, {"merged_task_pkey"}
USES, QUOTAS = {"resource_use_pkey"}, {"resource_quotas", "lambda_with_needs"}
GATE, PARKED = {"gate_gate_id_key"}, {"task_assoc_parked"}

IDS = [new_task_id() for _ in range(3)]
HASHES = ["0" * 64] * 3
EVENT_KEYS = ["/a", "/b", "/c"]
TOKENS = [new_task_id() for _ in range(3)]
ROOM = {"lambdas": [LAMBDA] * 2, "priorities": [1, 3], "room": [10, 10]}
HELD = {"task_ids": IDS, "tokens": TOKENS}
GATED_ROWS = {
    "gated_lambdas": [LAMBDA],
    "gate_sets": ["1"],
    "set_firsts": [1],
    "set_lasts": [1],
    "set_probes_until": [datetime.now(UTC) - timedelta(hours=1)],
    "gate_ids": [1],
    "gate_priorities": [3],
    "gate_collections": ["a"],
    "gate_sessions": ["s"],
}
PICK_BEHIND = GATED_ROWS | {
    "window": 100,
    "behind": [],
    "behind_lambdas": [],
    "behind_priorities": [],
}
A_GATE = {
    "name": "a",
    "kind": "pause",
    "pattern": LAMBDA,
    "collection": "a",
    "priority": 1,
    "session": None,
    "delay": None,
    "owner": "ann",
    "reason": "",
    "expires_at": None,
    "duration": SECOND,
}
A_BREAKER = {
    "lambda": LAMBDA,
    "failure_rate": 0.5,
    "minimum": 10,
    "window": SECOND,
    "pause": SECOND,
    "probes": 3,
    "owner": "ann",
    "reason": "",
}
SWEPT = {
    "gate_id": 1,
    "lambdas": [LAMBDA] * 2,
    "priorities": [1, 3],
    "collection": "a",
    "session": None,
    "since": None,
    "limit": 10,
}
NONE = {
    "started_at": [None] * 3,
    "failure_messages": [None] * 3,
    "failure_kinds": [1] * 3,
    "tracebacks": [None] * 3,
}
OF_GATES = {
    "read_gates": ({"version": 0}, set()),
    "list_gates": ({"most": 10}, PARKED),
    "lock_gates": ({}, set()),
    "try_to_lock_gates": ({}, set()),
    "raise_gate_version": ({}, set()),
    "notify_gates_changed": ({}, set()),
    "count_gates": ({"name": "a", "owner": "ann"}, set()),
    "gates_named": ({"names": ["a"]}, set()),
    "gates_in_force": ({"names": ["a"]}, set()),
    "keep_gate": (A_GATE, set()),
    "insert_gate": (A_GATE, set()),
    "delete_gates": ({"names": ["a"]}, set()),
    "expire_gates": ({}, set()),
    "breaker_lambdas": ({}, set()),
    "count_ends": ({"task_ids": IDS, "failed": [1, 0, 1]}, ENTITY),
    "count_silent": ({"task_ids": IDS}, ENTITY | {"attempt_first_pkey"}),
    "list_breakers": ({"lambdas": [LAMBDA]}, set()),
    "lock_breakers": ({}, set()),
    "put_breaker": (A_BREAKER, set()),
    "delete_breakers": ({"lambdas": [LAMBDA]}, set()),
    "move_breaker": ({"lambda": LAMBDA, "state": "open"}, set()),
    "open_gate": ({"name": "b", "lambda": LAMBDA, "reason": ""}, set()),
    "probes_pass": ({"name": "a", "until": datetime.now(UTC)}, set()),
    "note_probes": ({"lambda": LAMBDA, "probed": 1}, set()),
    "gate_named": ({"name": "a"}, set()),
    "audit_breaker": ({"request": "{}"}, set()),
    "forget_counts": ({}, set()),
}
NO_FIELDS = {field.array: [] for field in FIELDS}
"""The arrays of new tasks: what is empty is null."""
UNIQUE = {"task_ids": IDS, "lambdas": [LAMBDA] * 3, "unique_keys": ["u", "v", "w"]}

CASES = {
    "schedule": (
        NO_FIELDS
        | {
            "task_ids": [new_task_id() for _ in range(3)],
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "expires_at": [None] * 3,
            "scheduled_by": [None] * 3,
            "keys": ["a", "b", None],
            "resources": [None] * 3,
            "tell": True,
        },
        LAMBDAS | END,
    ),
    "schedule_plain": (
        {
            "task_ids": [new_task_id() for _ in range(3)],
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "scheduled_by": [None] * 3,
            "fair_keys": [None] * 3,
            "names": [LAMBDA],
            "tell": True,
        },
        LAMBDAS,
    ),
    "schedule_one": (
        {
            "task_id": new_task_id(),
            "lambda_name": LAMBDA,
            "collection": "",
            "priority": 3,
            "encoding": 1,
            "payload": b"{}",
            "scheduled_at": None,
            "delay": SECOND,
            "scheduled_by": None,
            "fair_key": None,
            "tell": True,
        },
        LAMBDAS,
    ),
    "schedule_in_sessions": (
        NO_FIELDS
        | {
            "task_ids": [new_task_id() for _ in range(3)],
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "expires_at": [None] * 3,
            "scheduled_by": [None] * 3,
            "keys": ["a", "b", None],
            "resources": [None] * 3,
            "sessions": ["s1", "s2", "s1"],
            "session_orders": [1, 1, 1],
            "session_policies": [1, 1, 1],
        },
        LAMBDAS | END | SESSIONS,
    ),
    "schedule_graph": (
        NO_FIELDS
        | {
            "graph_id": new_task_id(),
            "name": "g",
            "digest": b"",
            "definition": None,
            "version": None,
            "fail_fast": False,
            "task_ids": [new_task_id() for _ in range(3)],
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "expires_at": [None] * 3,
            "scheduled_by": [None] * 3,
            "max_runtimes": [None, SECOND, None],
            "labels": ["a", "b", "c"],
            "waits_for": [0, 1, 1],
            "first_edges": [1, 1, 2],
            "any_of": [False] * 3,
            "ignore_failure": [False] * 3,
            "timeouts_final": [False] * 3,
            "handled": [0] * 3,
            "edges_from": IDS[:2],
            "edges_to": IDS[1:],
            "conditions": [1, 1],
            "fires_on": [1, 1],
        },
        LAMBDAS | END,
    ),
    "grow_graph": (
        NO_FIELDS
        | {
            "graph_id": new_task_id(),
            "task_ids": [new_task_id() for _ in range(3)],
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "expires_at": [None] * 3,
            "scheduled_by": [None] * 3,
            "max_runtimes": [None, SECOND, None],
            "labels": ["a", "b", "c"],
            "open_edges": [0, 1, 1],
            "waits_for": [0, 1, 1],
            "first_edges": [1, 1, 2],
            "any_of": [False] * 3,
            "ignore_failure": [False] * 3,
            "timeouts_final": [False] * 3,
            "handled": [0] * 3,
            "runs": [True, False, False],
            "skipped": [False] * 3,
            "now_handled": 0,
            "handled_labels": ["z"],
            "handled_ends": [2],
            "edges_from": IDS[:2],
            "edges_to": IDS[1:],
            "conditions": [1, 1],
            "fires_on": [1, 1],
        },
        LAMBDAS | END | GRAPHS | NODES | {"task_event_pkey"},
    ),
    "growing_graph": (
        {"task_id": new_task_id(), "labels": ["a", "b"]},
        NODES | NODES_BY_TASK | GRAPHS | ASSOC | ENTITY,
    ),
    "cancel_graph": ({"task_ids": IDS, "by": None}, ASSOC | END),
    "lock_graph_of": ({"task_id": new_task_id()}, NODES_BY_TASK | GRAPHS),
    "redriven_nodes": ({"task_ids": IDS}, ASSOC),
    "lock_nodes": ({"graph_id": new_task_id()}, NODES | ASSOC | USES | QUOTAS),
    "tasks_by_key": ({"lambdas": [LAMBDA] * 2, "keys": ["a", "b"]}, KEYS),
    "graph_digest": ({"graph_id": new_task_id()}, GRAPHS),
    "live_nodes": ({"graph_id": new_task_id()}, NODES | ASSOC),
    "running_graphs": ({"graph_ids": IDS}, GRAPHS),
    "graph_places": (
        {"task_ids": IDS, "most": 10, "most_bytes": 1000},
        NODES_BY_TASK | ASSOC | ENTITY | {"attachment_use_pkey"},
    ),
    "registered": ({"names": [LAMBDA]}, LAMBDAS),
    "enter_nodes": ({"limit": 10}, set()),
    "end_waiting": ({"task_ids": IDS, "without_session": []}, ASSOC | END),
    "lock_over": ({"limit": 10}, WAITING_UNTIL | SESSIONS | GRAPHS | USES | QUOTAS),
    "cancel_waiting": ({"task_ids": IDS, "without_session": [], "by": None}, ASSOC | END),
    "lock_waiting": ({"task_ids": IDS}, ASSOC | SESSIONS | GRAPHS | USES | QUOTAS),
    "lock_cancelled": (HELD, ASSOC | SESSIONS | GRAPHS),
    "lock_blocked": ({"keys": ["/s1", "/s2"], "blocked_by": IDS[:2]}, SESSIONS),
    "unblock_sessions": ({"keys": ["/s1", "/s2"], "by": None}, set()),
    "sessions": ({"keys": ["/s1", "/s2"], "tasks": 10}, SESSIONS | ASSOC | IN_SESSION),
    "former_blockers": ({"keys": ["/s1", "/s2"], "task_ids": IDS[:2]}, ENTITY),
    "blocked_sessions": ({"limit": 10}, {"session_blocked"}),
    "resources": (
        {"after": "", "skipped": 0, "limit": 10},
        {"resource_pkey", "resource_use_pkey", "task_assoc_parked"},
    ),
    "resource_keys": (
        {"resource": "database", "after": "", "limit": 10},
        {"resource_use_pkey", "task_assoc_parked"},
    ),
    "backlog": (
        {"names": [LAMBDA], "priorities": [1, 2, 3, 4], "most": 10},
        LAMBDAS | {"task_assoc_ready", "task_assoc_watched", "task_assoc_parked"},
    ),
    "scheduling_quotas": ({}, {"resource_scheduling_quotas"}),
    "resource_kinds": ({"names": ["database", "tenant"]}, {"resource_pkey"}),
    "resources_as_declared": ({"names": ["database", "tenant"]}, {"resource_pkey"}),
    "session_keys": (
        {"after": "/s1", "before": "0", "blocked": False, "limit": 10},
        SESSIONS | {"session_blocked"},
    ),
    "tick": (
        {
            "task_ids": [new_task_id() for _ in range(3)],
            "tables": ["table-1", "table-2", "table-3"],
            "instants": [datetime.now(UTC)] * 3,
            "due_at": [datetime.now(UTC)] * 3,
            "keys": ["tick-1", "tick-2", "tick-3"],
        },
        {"time_table_pkey"},
    ),
    "tick_in_sessions": (
        {
            "task_ids": [new_task_id() for _ in range(3)],
            "tables": ["table-999", "table-1999", "table-999"],
            "instants": [datetime.now(UTC)] * 3,
            "due_at": [datetime.now(UTC)] * 3,
            "keys": ["tick-1", "tick-2", "tick-3"],
        },
        {"time_table_pkey"} | SESSIONS,
    ),
    "existing": (
        NO_FIELDS
        | {
            "task_ids": IDS,
            "lambdas": [LAMBDA] * 3,
            "collections": [""] * 3,
            "priorities": [3] * 3,
            "encodings": [1] * 3,
            "payloads": [b"{}"] * 3,
            "keys": ["a", "b", None],
            "resources": [None] * 3,
            "sessions": [None] * 3,
        },
        ENTITY | KEYS,
    ),
    "enqueue": (ROOM | {"enqueue_timeout": SECOND}, READY | ASSOC | QUOTAS),
    "claim_work": (
        {
            "lambdas": [LAMBDA] * 2,
            "priorities": [1, 3],
            "sizes": [100, 100],
            "skips": [0, 0],
            "holders": ["host", "other"],
            "prefixes": [b"0" * 14, b"1" * 14],
            "callers": 2,
            "most": 100,
            "claim_timeout": SECOND,
            "within": SECOND,
        },
        READY | ASSOC | ENTITY | LAMBDAS | QUOTAS,
    ),
    "claimed_under": ({"prefixes": [b"0" * 14]}, WATCHED),
    "claim_again": (
        {"holder": "host", "prefix": b"1" * 14, "lost": [b"0" * 14], "claim_timeout": SECOND},
        WATCHED | ASSOC | ENTITY | LAMBDAS,
    ),
    "enqueue_again": (ROOM | {"enqueue_timeout": SECOND, "limit": 10}, WATCHED | ASSOC),
    "dequeue": ({"limit": 10}, WATCHED | ASSOC),
    "dequeue_gated": (GATED_ROWS | {"task_ids": IDS}, ASSOC),
    "enqueued_gated": (GATED_ROWS | {"limit": 10}, WATCHED),
    "drop_gated": (SWEPT, GATE | READY | ASSOC | END),
    "delay_gated": (SWEPT, GATE | READY | ASSOC),
    "park_gated": (SWEPT, GATE | READY | ASSOC),
    "probe_gated": (
        {"lambdas": [LAMBDA] * 2, "priorities": [1, 3], "gate_id": 1, "limit": 10},
        READY | ASSOC,
    ),
    "release_gated": ({"parked_on": "gate:a", "parked_key": "1", "limit": 10}, PARKED | ASSOC),
    "unpark_gated": ({"task_ids": IDS}, ASSOC),
    "unpark_replaced": ({"task_ids": IDS}, ASSOC),
    "look_at_keys": (UNIQUE | {"keys": ["a", "b", None]}, ENTITY | ASSOC | KEYS | UNIQUE_KEYS | MERGED),
    "dead_with_keys": ({"task_ids": IDS}, ENTITY),
    "lock_keys": (UNIQUE, UNIQUE_KEYS),
    "take_keys": (UNIQUE, UNIQUE_KEYS),
    "let_keys_go": (UNIQUE, UNIQUE_KEYS),
    "note_merged": ({"task_ids": IDS, "holders": IDS}, MERGED),
    "parked_on_gates": ({}, PARKED | GATE),
    "behind_gated": (
        GATED_ROWS
        | {
            "lambdas": [LAMBDA] * 2,
            "priorities": [1, 3],
            "since": [None, datetime.now(UTC)],
            "most": [10, 10],
        },
        READY,
    ),
    "queues_of": ({"name": LAMBDA, "pattern": f"^{LAMBDA}$"}, set()),
    "live_by_status": (
        {"lambdas": [LAMBDA], "priorities": [1, 3], "collection": None, "session": None, "most": 10},
        READY | WATCHED | IN_SESSION,
    ),
    "put_back": ({"task_ids": IDS, "delay": SECOND}, ASSOC),
    "reclaim": (
        {"status": "enqueued", "trigger_in": SECOND, "limit": 10, "as_of": None},
        WATCHED | ASSOC | LAMBDAS | END,
    ),
    "quarantine_silent": ({"limit": 10, "as_of": None}, WATCHED | ASSOC | LAMBDAS | END),
    "cancel_silent": ({"limit": 10, "as_of": None}, WATCHED | ASSOC | END),
    "expire": ({"limit": 10}, EXPIRING | ASSOC | END),
    "claim": (
        HELD | {"lambdas": [LAMBDA] * 3, "holders": ["host"] * 3, "claim_timeout": SECOND},
        ASSOC | ENTITY | LAMBDAS,
    ),
    "claimed_before": (HELD, ASSOC | ENTITY | LAMBDAS),
    "claim_repeated": (HELD | {"claim_timeout": SECOND, "longest_lease": SECOND}, ASSOC | ENTITY | LAMBDAS),
    "heartbeat": (
        HELD
        | {
            "progress": [None] * 3,
            "notes": [None] * 3,
            "heartbeat_timeout": SECOND,
            "longest_lease": SECOND,
        },
        ASSOC,
    ),
    "finish": (
        HELD | {"started_at": [None] * 3, "results": [None] * 3, "encodings": [None] * 3},
        ASSOC | END,
    ),
    "finish_one": (
        {
            "task_id": IDS[0],
            "token": TOKENS[0],
            "started_at": None,
            "result": None,
            "encoding": None,
        },
        ASSOC | END,
    ),
    "fail": (
        HELD
        | NONE
        | {"outcomes": ["crashed"] * 3, "retry_after": [None] * 3}
        | {"held_back": [LAMBDA, "another"], "hold_back": [SECOND] * 2},
        ASSOC | END | LAMBDAS,
    ),
    "snooze": (
        HELD | {"retry_after": [SECOND] * 3, "started_at": [None] * 3, "failure_messages": [None] * 3},
        ASSOC,
    ),
    "hand_over": (
        HELD | {"hashes": HASHES, "complete_within": [SECOND] * 3, "started_at": [None] * 3},
        ASSOC | END,
    ),
    "wait_for_event": (
        HELD
        | {
            "started_at": [None] * 3,
            "waits": ["first:1"] * 3,
            "needs_all": [False] * 3,
            "timeouts": [SECOND] * 3,
            "until_at": [None] * 3,
            "key_task_ids": IDS,
            "keys": EVENT_KEYS,
        },
        ASSOC | ENTITY | END | {"event_pkey", "event_wait_pkey"},
    ),
    "end_event_waits": (
        {"task_ids": IDS, "keys": EVENT_KEYS, "seqs": [1, 2, 3]},
        ASSOC | ENTITY | END | {"event_pkey", "event_wait_pkey", "event_wait_by_task"},
    ),
    "note_given": ({"keys": EVENT_KEYS, "given_to": IDS}, {"event_key_pkey"}),
    "lock_unfinished_event_keys": (
        {"keys": EVENT_KEYS, "limit": 10},
        {"event_key_unfinished", "event_key_pkey"},
    ),
    "time_out_event_waits": ({"limit": 10}, ASSOC | END | {*WAITING_UNTIL, "event_wait_by_task"}),
    "lock_event_keys": ({"keys": EVENT_KEYS}, {"event_key_pkey"}),
    "lock_waited_keys": (
        {"key_task_ids": IDS, "key_tokens": TOKENS, "keys": EVENT_KEYS},
        ASSOC | {"event_key_pkey"},
    ),
    "put_events_aside": (
        {
            "task_ids": IDS,
            "tokens": TOKENS,
            "refused_task_ids": IDS,
            "waits": ["first:1"] * 3,
            "keys": EVENT_KEYS,
            "reasons": ["expected bool"] * 3,
        },
        ASSOC | ENTITY,
    ),
    "sent_before": ({"keys": EVENT_KEYS, "event_ids": EVENT_KEYS}, {"event_key_event_id_key"}),
    "send_events": (
        {
            "keys": EVENT_KEYS,
            "event_ids": EVENT_KEYS,
            "encodings": [1] * 3,
            "values": [b"{}"] * 3,
            "sent_by": [None] * 3,
            "kept_for": DAY,
            "most": 1_000,
        },
        {"event_key_pkey", "event_key_event_id_key"},
    ),
    "lock_event_waits": ({"keys": EVENT_KEYS, "after": IDS, "limit": 10}, ASSOC | {"event_wait_pkey"}),
    "received_much": (
        {
            "task_ids": IDS,
            "refused_task_ids": IDS,
            "waits": EVENT_KEYS,
            "keys": EVENT_KEYS,
            "most": 100,
            "most_bytes": 1000,
        },
        ENTITY,
    ),
    "complete": (
        {"task_ids": IDS, "hashes": HASHES, "results": [None] * 3, "encodings": [None] * 3, "by": [None] * 3},
        ASSOC | END,
    ),
    "fail_handed_over": (
        {
            "task_ids": IDS,
            "hashes": HASHES,
            "outcomes": ["retriable_failure"] * 3,
            "retry_after": [None] * 3,
            "failure_kinds": [1] * 3,
            "failure_messages": [None] * 3,
        },
        ASSOC | END | LAMBDAS | {"attempt_pkey"},
    ),
    "completed_before": (
        {"task_ids": IDS, "hashes": HASHES, "results": [None] * 3, "encodings": [None] * 3},
        ASSOC | ENTITY | {"attempt_first_pkey"},
    ),
    "lock_uncompleted": ({"limit": 10}, WAITING_UNTIL | SESSIONS | GRAPHS | USES | QUOTAS),
    "release": (HELD | {"started_at": [None] * 3, "reasons": [None] * 3}, ASSOC),
    "applied_before": (HELD, ASSOC | ENTITY),
    "failures_of_dead_letters": ({"task_ids": IDS}, ENTITY),
    "cancel": ({"task_ids": IDS, "only_if_requested": False, "by": None}, ASSOC | END),
    "redrive": (
        {"task_ids": IDS, "ahead": [SECOND] * 3, "as_of": None, "by": None, "keyed": []},
        ENTITY | LAMBDAS | DEAD | SESSIONS,
    ),
    "request_cancel": ({"task_ids": IDS, "by": None, "kill": True}, ASSOC),
    "update_pending": (
        {
            "task_ids": IDS,
            "payloads": [b"{}"] * 3,
            "encodings": [1] * 3,
            "priorities": [None] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "by": None,
        },
        ASSOC | END | LAMBDAS,
    ),
    "update_waiting": (
        {
            "task_ids": IDS,
            "payloads": [b"{}"] * 3,
            "encodings": [1] * 3,
            "priorities": [None] * 3,
            "scheduled_at": [None] * 3,
            "delays": [SECOND] * 3,
            "by": None,
        },
        ASSOC | END | LAMBDAS,
    ),
    "next_triggers": ({"lambdas": [LAMBDA] * 2, "priorities": [1, 3], "within": SECOND}, READY),
    "next_timeout": ({}, WATCHED | EXPIRING | WAITING_UNTIL | {"resource_use_skipped"}),
    "live": ({"task_ids": IDS}, ASSOC),
    "attempts": ({"task_ids": IDS, "tracebacks": 3}, {"attempt_first_pkey"}),
}

OF_TURNS = {
    "give_turns": (
        {
            "lambdas": [LAMBDA] * 2,
            "priorities": [1, 3],
            "since": [None, datetime.now(UTC)],
            "most": [10, 10],
        },
        READY | ASSOC,
    ),
    "note_fair_lambdas": ({}, {"task_assoc_fair"}),
    "fair_lambdas": ({}, set()),
    "put_fair_weights": ({"lambda": LAMBDA, "keys": ["a"], "weights": [2], "removed": ["b"]}, set()),
    "fair_weights": ({"lambda": LAMBDA, "most": 10}, set()),
    "waiting_by_key": ({"queue": LAMBDA, "from_key": "", "most": 10, "most_tasks": 10}, {"task_assoc_fair"}),
}
TURNS = {
    "takes_turns": [True] * 2,
    "from_keys": ["", "a"],
    "from_used": [0, 1],
    "is_weighted": [True] * 2,
    "reaches": [10, 10],
}

CASES |= {f"{name}_gated": (CASES[name][0] | PICK_BEHIND, CASES[name][1]) for name in GATED} | OF_GATES
CASES |= {f"{name}_unwatched": CASES[name] for name in UNWATCHED}
CASES |= {f"{name}_fair": (CASES[name][0] | TURNS, CASES[name][1] | BY_KEY) for name in FAIR} | OF_TURNS
CASES |= {
    f"{name}_gated_fair": (CASES[name][0] | PICK_BEHIND | TURNS, CASES[name][1] | BY_KEY)
    for name in GATED_FAIR
}
STATEMENTS = (
    TRANSITIONS
    | READS
    | LOCKS
    | load("tasks/unique.sql")
    | GATES
    | EVENTS
    | FAIRNESS
    | {"give_turns": ENTITIES["give_turns"]}
    | {each.name: each for twins in (GATED, FAIR, GATED_FAIR, UNWATCHED) for each in twins.values()}
)

FILL = """
insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    select overlay(gen_random_uuid()::text placing (select left(duly_first_id(now())::text, 13)) from 1)::uuid,
        %(lambda)s, '', 3, 1, '', now(), now()
    from generate_series(1, %(count)s);
insert into task_assoc (
    task_id, lambda, collection, priority, fair_key, status, next_trigger_at, due_at, expires_at, fence, token, holder
)
    select task_id, %(lambda)s, '', 3, case when number %% 2 = 0 then 'key' || number %% 50 end, case number %% 3 when 0 then 'new' when 1 then 'enqueued' else 'claimed' end::task_status,
        now() + number * interval '1 s' - interval '20 s', now(), now() + number * interval '1 s' - interval '20 s',
        1, case number %% 3 when 2 then task_id end, case number %% 3 when 2 then 'host' end
    from (select task_id, row_number() over () as number from task where status is null) as numbered
"""
FINISHED = """
insert into task (
    task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at,
    status, finished_at, fence, failures, crashes
)
select overlay(gen_random_uuid()::text placing (select left(duly_first_id(now())::text, 13)) from 1)::uuid,
    %s, '', 3, 1, '', now(), now(), 'success', now(), 1, 0, 0
from generate_series(1, 100000)
"""


def numbered(sql):
    """The statement with its parameters as Postgres numbers them, and their names in that order."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)b", sql)))
    return re.sub(r"%\((\w+)\)b", lambda found: f"${names.index(found[1]) + 1}", sql).replace(
        "%%", "%"
    ), names


def fill(connection, count=BACKLOG):
    connection.execute(psycopg.ClientCursor(connection).mogrify(FILL, {"lambda": LAMBDA, "count": count}))
    connection.execute(
        "insert into idempotency_key select lambda, task_id::text, task_id, now() from task where status is null"
    )
    connection.execute(
        "insert into unique_key select lambda, coalesce((array['u', 'v', 'w'])[number], task_id::text), task_id, now()"
        " from (select lambda, task_id, row_number() over () as number from task_assoc) as numbered"
        " on conflict (lambda, key) do update set task_id = excluded.task_id"
    )
    connection.execute("insert into merged_task select gen_random_uuid(), task_id from task_assoc")


def nodes(plan):
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


@pytest.fixture
async def connection(dsn, task_states):
    """A connection with the pool's own settings, that makes literals of parameters."""
    arguments = connect_arguments(StoreSettings(dsn=dsn))
    with psycopg.connect(**arguments, autocommit=True, cursor_factory=psycopg.ClientCursor) as opened:
        opened.execute("alter table task_assoc set (autovacuum_enabled = false)")  # it would make plans anew
        opened.execute("alter table task_first set (autovacuum_enabled = false)")
        opened.execute("set statement_timeout = '60s'")  # for what fills the tables
        await Retention(task_states.store, DAY, DAY, DAY).run_once()
        yield opened


def test_every_statement_of_the_task_path_has_a_case():
    assert CASES.keys() == STATEMENTS.keys()


def leave_new(_connection):
    """As after the migration."""


def empty_after_a_wave(connection):
    fill(connection)
    clear(connection)
    analyze(connection)


def hold_a_handful(connection):
    fill(connection, 10)
    analyze(connection)


def hold_rows_that_run(connection):
    fill(connection)
    connection.execute("update task_assoc set status = 'claimed', token = task_id, holder = 'host'")
    analyze(connection)


def clear(connection):
    connection.execute("truncate idempotency_key")
    connection.execute("delete from task_assoc")
    connection.execute("delete from task")


def analyze(connection):
    connection.execute("vacuum (analyze) task_assoc, task, idempotency_key")


def execute(name, names, parameters):
    """The call of a prepared statement, and its values."""
    values = [parameters[each] for each in names]
    return f"execute {name}({', '.join(['%s'] * len(values))})" if values else f"execute {name}", values


def some(connection, status):
    """Ids of that status, in order: the lowest, one from the middle, the highest."""
    rows = connection.execute(
        "select task_id from task_assoc where status::text = %s order by task_id", [status]
    ).fetchall()
    return [rows[place][0] for place in (0, len(rows) // 2, -1)]


@pytest.mark.parametrize(
    "prepare",
    [
        empty_after_a_wave,
        # long: moments at which statistics say less that is wrong
        pytest.param(leave_new, marks=pytest.mark.long),
        pytest.param(hold_a_handful, marks=pytest.mark.long),
        pytest.param(hold_rows_that_run, marks=pytest.mark.long),
    ],
)
async def test_plans_made_at_the_worst_moment_find_rows_by_index_when_the_tables_are_full(
    connection, prepare
):
    prepare(connection)
    executions = {}
    for name, (parameters, _) in CASES.items():
        sql, names = numbered(STATEMENTS[name].sql)
        connection.execute(f"prepare {name} as {sql}")
        executions[name] = names
        connection.execute("begin")
        connection.execute(*execute(name, names, parameters))
        connection.execute("rollback")
    clear(connection)
    connection.execute(FINISHED, [LAMBDA])
    fill(connection)
    connection.execute(time_tables.FILL, [LAMBDA, BACKLOG])

    wrong = {}
    for name, (parameters, expected) in CASES.items():
        asked = dict(parameters)
        if "task_ids" in asked and not name.startswith(("schedule", "tick")):  # rows that there are
            asked["task_ids"] = some(connection, "enqueued" if name == "claim" else "claimed")
            if "tokens" in asked:
                asked["tokens"] = asked["task_ids"]
        text, values = execute(name, executions[name], asked)
        connection.execute("begin")
        (((explained,),),) = connection.execute(f"explain (analyze, format json) {text}", values).fetchall()
        connection.execute("rollback")
        plan = list(nodes(explained["Plan"]))
        used = {node["Index Name"] for node in plan if "Index Name" in node}
        used |= {index for node in plan for index in node.get("Conflict Arbiter Indexes", ())}
        if name in PLANNED_FOR_ALL:
            ran = {node["Index Name"] for node in plan if "Index Name" in node and node["Actual Loops"]}
            used -= {index for index in used - ran if OTHER_PARTITION.fullmatch(index)}
        if name in OF_SMALL:
            plan = [node for node in plan if node.get("Relation Name") not in SMALL]
            used -= {index for index in used if index.startswith(tuple(f"{table}_" for table in SMALL))}
        walked = [node["Node Type"] for node in plan if node["Node Type"] == "Seq Scan"]
        passed_over = sum(
            node.get(counted, 0) * node["Actual Loops"]
            for node in plan
            for counted in ("Rows Removed by Filter", "Rows Removed by Join Filter")
            + (("Actual Rows",) if "Index Name" in node else ())
        )
        used = {AS_GOOD.get(index, index) for index in used - WATCHES}
        wanted = {AS_GOOD.get(index, index) for index in expected}
        too_much = passed_over > BACKLOG / 10 and name not in READS_ALL_HELD
        if used != wanted or walked or too_much:
            wrong[name] = (used ^ wanted, walked, passed_over)
    assert wrong == {}


async def test_the_pool_makes_plans_once(task_states):
    async with task_states.store.connection() as connection:
        cursor = await connection.execute("show plan_cache_mode")

        assert await cursor.fetchone() == ("force_generic_plan",)
        assert connection.prepare_threshold == 0
