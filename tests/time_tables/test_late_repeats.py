"""What is asked for again when its time has passed is answered as a repeat, if it was written."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.tasks.schedule import schedule as write
from duly_core.tasks.task import NewTask
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.task_states import LAMBDA

OLD = UUID(int=new_task_id().int - (2 * 86_400_000 << 80))
"""An id that was made two days ago."""
HOUR = timedelta(hours=1)


def asked(**fields):
    return frontend_pb2.NewTask(**{"lambda": LAMBDA, "payload": b"{}"} | fields)


async def schedule(frontend, *tasks):
    return list((await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))).results)


def instant(moment):
    timestamp = Timestamp()
    timestamp.FromDatetime(moment)
    return timestamp


async def test_an_id_of_another_day_is_a_repeat_where_its_task_is_there(frontend, task_states):
    await write(task_states.store, [NewTask(OLD.bytes, LAMBDA, b"{}")])

    new, repeated, other = await schedule(
        frontend, asked(), asked(task_id=str(OLD)), asked(task_id=str(OLD), payload=b"other")
    )

    assert new.created
    assert (repeated.task_id, repeated.created, repeated.HasField("error")) == (str(OLD), False, False)
    assert other.error.code == task_pb2.ERROR_CODE_KEY_CONFLICT


async def test_an_id_of_another_day_is_refused_where_there_is_no_such_task(frontend, task_states):
    (result,) = await schedule(frontend, asked(task_id=str(OLD)))

    assert (result.error.field, result.created) == ("task_id", False)
    assert "more than a day from now, and there is no such task" in result.error.message


@pytest.mark.parametrize("by", ["task_id", "idempotency_key"])
async def test_a_task_that_expired_meanwhile_is_a_repeat(frontend, task_states, by):
    key = str(new_task_id())
    before = datetime.now(UTC) - HOUR
    written = NewTask(
        UUID(key).bytes,
        LAMBDA,
        b"{}",
        expires_at=before,
        idempotency_key=key if by == "idempotency_key" else None,
    )
    await write(task_states.store, [written])

    (repeated,) = await schedule(frontend, asked(expires_at=instant(before), **{by: key}))
    (refused,) = await schedule(frontend, asked(expires_at=instant(before)))

    assert (repeated.task_id, repeated.HasField("error")) == (key, False)
    assert (refused.error.field, refused.task_id) == ("expires_at", "")
