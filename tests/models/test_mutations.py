"""The machine finds it when a guard is taken out of a statement: each of these is one, and each must be found."""

import os

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.guards import STATEMENT_GUARDS, InStatement
from tests.models.test_machine import machine_on

SEARCH = settings(
    max_examples=400,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    report_multiple_bugs=False,
    phases=[Phase.generate],  # that it is found counts here; nobody reads the example
    suppress_health_check=list(HealthCheck),
)

SHARED = (
    "a result needs no token",
    "a failure needs no token",
    "a snooze needs no token",
    "a task is handed over without a token",
    "a release needs no token",
    "a heartbeat needs no token",
    "a claim takes what another holds",
    "work is picked and claimed whatever its status",
    "a claim of work leaves the fence as it was",
    "work is claimed before its time",
    "holders are reclaimed before their time",
    "a reclaim is not charged",
    "a snoozed task forgets its token",
    "a cancel ends what does not ask for it",
)
"""Guards that chaos runs are done without as well."""

OWN = {
    "a failure is not counted": (
        "fail",
        "failures = planned.failures",
        "failures = assoc.failures",
    ),
    "a failure of what was handed over is not counted": (
        "fail_handed_over",
        "failures = planned.failures",
        "failures = assoc.failures",
    ),
    "a completed task forgets its token": (
        "complete",
        "left(asked.hash, 32)::uuid as last_token",
        "null::uuid as last_token",
    ),
    "a claim takes what has expired": ("claim", "assoc.expires_at > (select duly_now())", "true"),
    "a claim takes another lambda's task": ("claim", "assoc.lambda = asked.lambda and ", ""),
    "a claim that has ended is claimed again by its own token": (
        "claim",
        "and assoc.last_token is distinct from asked.token",
        "",
    ),
    "a claim leaves the fence as it was": (
        "claim",
        "fence = assoc.fence + 1",
        "fence = greatest(assoc.fence, 1)",
    ),
    "a reclaimed task keeps the old token as its last": (
        "reclaim",
        "last_token = null, token = null",
        "last_token = assoc.token, token = null",
    ),
    "a redriven task begins with an old fence": (
        "redrive",
        "due_at, due_at, fence, last_token\n    from",
        "due_at, due_at, 0, last_token\n    from",
    ),
    "a changed task's message is still good": (
        "update_pending",
        "set status = 'new'",
        "set status = case when assoc.status = 'enqueued' then assoc.status else 'new' end",
    ),
    "a repeat is compared with what its task was changed to": (
        "update_pending",
        "task.scheduled_as is null and",
        "false and",
    ),
    "tasks are enqueued before their time": (
        "enqueue",
        "assoc.next_trigger_at <= (select now from clock)",
        "assoc.next_trigger_at <= (select now from clock) + interval '5 s'",
    ),
    "work is claimed though it has expired": (
        "claim_work",
        "(assoc.expires_at is null or assoc.expires_at > (select now from clock))",
        "true",
    ),
    "work is picked whatever its status": (
        "claim_work",
        "assoc.status in ('new', 'retriable_failure')",
        "assoc.status is not null",
    ),
    "claims of work have tokens of another caller": (
        "claim_work",
        "(%(prefixes)b::bytea[])[1 + placed.place %% %(callers)b::int4]",
        "(%(prefixes)b::bytea[])[1]",
    ),
    "claims of work have holders of another caller": (
        "claim_work",
        "(%(holders)b::text[])[1 + placed.place %% %(callers)b::int4]",
        "(%(holders)b::text[])[1]",
    ),
    "a look for work takes more than was asked for": ("claim_work", "limit %(most)b", "limit %(most)b + 1"),
    "a look for work tells of what it has just claimed": (
        "claim_work",
        "assoc.next_trigger_at > (select now from clock)",
        "assoc.next_trigger_at is not null",
    ),
    "claims whose reply was not lost are claimed anew": (
        "claim_again",
        "= any (%(lost)b::bytea[])",
        "is not null",
    ),
    "a lost claim is claimed anew by another holder": (
        "claim_again",
        "and holder = %(holder)b",
        "and holder <> %(holder)b || '?'",
    ),
    "a lost claim keeps its old lease": (
        "claim_again",
        "next_trigger_at = (select duly_now()) + %(claim_timeout)b",
        "next_trigger_at = assoc.next_trigger_at",
    ),
    "what runs is claimed anew": (
        "claim_again",
        "status = 'claimed' and holder",
        "token is not null and holder",
    ),
    "claims of other prefixes are found": ("claimed_under", "= any (%(prefixes)b::bytea[])", "is not null"),
    "what a queue held waits longer when there is no queue any more": (
        "dequeue",
        "next_trigger_at = (select duly_now())",
        "next_trigger_at = (select duly_now()) + interval '5 s'",
    ),
    "put_back postpones what was not sent": (
        "put_back",
        "assoc.status::text = 'enqueued'",
        "assoc.status::text in ('enqueued', 'new')",
    ),
    "a heartbeat shortens the lease": ("heartbeat", "%(heartbeat_timeout)b", "%(heartbeat_timeout)b / 2"),
}
MUTATIONS = {name: STATEMENT_GUARDS[name] for name in SHARED} | {
    name: (InStatement(*edit),) for name, edit in OWN.items()
}


# found within a second or so; `make models` tries the others, too
QUICK = {
    "a heartbeat needs no token",
    "a claim takes what another holds",
    "tasks are enqueued before their time",
    "a reclaim is not charged",
    "a heartbeat shortens the lease",
    "work is claimed before its time",
    "work is claimed though it has expired",
    "work is picked whatever its status",
    "a claim of work leaves the fence as it was",
    "claims of other prefixes are found",
    "claims whose reply was not lost are claimed anew",
}
CHOSEN = (
    MUTATIONS
    if os.environ.get("DULY_MODEL_EXHAUSTIVE")
    else {name: MUTATIONS[name] for name in MUTATIONS if name in QUICK}
)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_guard_is_still_in_its_statement(mutation):
    for edit in MUTATIONS[mutation]:
        statement = edit.home()[edit.name]

        assert edit.mutated(statement).sql != statement.sql


@pytest.mark.long  # each searches for seconds, and some for minutes
@pytest.mark.parametrize("mutation", CHOSEN)
@pytest.mark.timeout(600)
def test_a_guard_that_is_taken_out_is_missed(world, monkeypatch, mutation):
    for edit in MUTATIONS[mutation]:
        statements = edit.home()
        monkeypatch.setitem(statements, edit.name, edit.mutated(statements[edit.name]))

    # the store may refuse by a CHECK what the guard would have kept from it
    with pytest.raises((AssertionError, psycopg.errors.CheckViolation)):
        run_state_machine_as_test(machine_on(world), settings=SEARCH)
