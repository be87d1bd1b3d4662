import asyncio
import inspect
import os
import subprocess
import sys
import threading
from datetime import timedelta

import grpc
import pytest

import duly
from duly_wire.v1 import task_pb2
from tests.fixtures.waiting import until


@pytest.fixture
async def client(frontend):
    opened = duly.Client(frontend.address)
    yield opened
    frontend.open.set()
    await asyncio.to_thread(opened.close)


async def test_it_schedules_reads_waits_lists_and_cancels(client, frontend, make_task):
    def use():
        receipt = client.schedule("mail.send", {"to": "ann"})
        frontend.tasks[str(receipt)] = make_task(str(receipt), result=b"1")
        many = client.schedule_many([duly.NewTask("mail.send")] * 2)
        return (
            client.wait(receipt).result,
            client.get(receipt).task_id == client.get_many([receipt])[0].task_id == str(receipt),
            [task.task_id for task in client.list()] == [str(receipt)],
            [task.status.name for task in client.wait_many([receipt])],
            (client.cancel("t"), client.cancel_many(["t"])),
            client.lambdas()[0].name,
            len(many),
        )

    cancelled = duly.TaskStatus.CANCELLED
    assert await asyncio.to_thread(use) == (
        1, True, True, ["SUCCESS"], (cancelled, [cancelled]), "mail.send", 2,
    )  # fmt: skip


async def test_it_schedules_a_callback_by_its_lambdas_name(client, frontend):
    app = duly.App()

    @app.callback("mail.send")
    def send(to: str) -> None: ...

    await asyncio.to_thread(client.schedule, send, "ann")

    (task,) = frontend.requests[0].tasks
    assert (getattr(task, "lambda"), task.payload) == ("mail.send", b'"ann"')


async def test_its_errors_are_those_of_the_async_client(client, frontend):
    frontend.item_errors["bad"] = task_pb2.ItemError(
        code=task_pb2.ERROR_CODE_UNKNOWN_LAMBDA, message="unknown"
    )

    with pytest.raises(duly.UnknownLambdaError):
        await asyncio.to_thread(client.schedule, "bad")


async def test_its_error_names_the_task_of_which_the_outcome_is_unknown(client, frontend):
    frontend.failures.extend([(grpc.StatusCode.UNAVAILABLE,)] * 100)

    def use():
        with pytest.raises(duly.UnavailableError) as raised:
            client.schedule("mail.send", timeout=timedelta(seconds=0.5))
        return raised.value.task_id

    task_id = await asyncio.to_thread(use)

    assert {task.task_id for request in frontend.requests for task in request.tasks} == {task_id}


async def test_the_iterable_of_many_is_drawn_from_in_the_thread_that_asked(client):
    def use():
        asked = threading.get_ident()

        def tasks():
            assert threading.get_ident() == asked
            yield duly.NewTask("mail.send")

        return client.schedule_many(tasks())

    assert len(await asyncio.to_thread(use)) == 1


def test_its_methods_have_the_arguments_and_the_help_of_the_async_clients():
    methods = dict(inspect.getmembers(duly.Client, inspect.isfunction))

    listed, waited = methods["list"], methods["wait_graph"]

    assert inspect.signature(listed).return_annotation == "Iterator[Task]"
    assert [*inspect.signature(waited).parameters] == ["self", "graph", "timeout"]
    assert "async for" not in listed.__doc__
    assert "for task in client.list(" in listed.__doc__


async def test_a_text_in_place_of_names_is_refused(client):
    with pytest.raises(TypeError, match="give a list of names"):
        await asyncio.to_thread(client.reset_settings, "store.retention")


async def test_calls_of_several_threads_travel_together(client, frontend):
    frontend.open.clear()
    first = [asyncio.create_task(asyncio.to_thread(client.schedule, "mail.send")) for _ in range(4)]
    await frontend.until_arrived(1)
    frontend.open.set()

    receipts = await asyncio.gather(*first)

    sent = [task.task_id for request in frontend.requests for task in request.tasks]
    assert sorted(sent) == sorted(map(str, receipts))


async def test_a_closed_client_refuses_to_work_and_may_be_closed_again(client):
    await asyncio.to_thread(client.close)

    with pytest.raises(duly.ClosedError):
        client.schedule("mail.send")
    client.close()


async def test_closing_ends_another_threads_wait(client, frontend):
    frontend.open.clear()
    waiting = asyncio.create_task(asyncio.to_thread(client.wait, "t"))
    await frontend.until_arrived(1)

    await asyncio.to_thread(client.close)

    with pytest.raises(duly.ClosedError):
        await waiting


@pytest.mark.parametrize("refused", [False, True])
async def test_a_frontend_that_answered_a_lone_schedule_is_waited_for_when_it_is_away(frontend, refused):
    def use():
        with duly.Client(frontend.address, unreachable_after=timedelta(0)) as client:
            if refused:
                frontend.failures.append((grpc.StatusCode.INVALID_ARGUMENT,))
                with pytest.raises(duly.InvalidTaskError):
                    client.schedule("mail.send")
            else:
                client.schedule("mail.send")
            frontend.failures += [(grpc.StatusCode.UNAVAILABLE,)] * 2
            return client.schedule("mail.send")

    assert (await asyncio.to_thread(use)).created


async def test_closing_waits_for_the_schedule_of_another_thread(client, frontend):
    frontend.open.clear()
    scheduling = asyncio.create_task(asyncio.to_thread(client.schedule, "mail.send"))
    await frontend.until_arrived(1)
    closing = asyncio.create_task(asyncio.to_thread(client.close))
    await until(lambda: client._closed)
    frontend.open.set()

    assert (await scheduling).created
    await closing
    assert len(frontend.requests) == 1


@pytest.mark.parametrize("used_before", [False, True])
async def test_a_thread_that_comes_late_to_a_closed_client_is_told_so(
    client, frontend, monkeypatch, used_before
):
    if used_before:
        await asyncio.to_thread(client.schedule, "mail.send")
    checked = client._check_usable

    def close_after_the_first_check():
        checked()
        monkeypatch.setattr(client, "_check_usable", checked)
        client.close()

    monkeypatch.setattr(client, "_check_usable", close_after_the_first_check)

    with pytest.raises(duly.ClosedError):
        await asyncio.to_thread(client.schedule, "mail.send")
    assert len(frontend.requests) == used_before
    assert (client._direct._channel is not None) is used_before


async def test_a_forked_child_is_told_to_make_its_own(client, monkeypatch):
    child = os.getpid() + 1
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: child)
        with pytest.raises(duly.ClosedError, match="before a fork"):
            client.schedule("mail.send")


async def test_closing_in_a_forked_child_waits_for_nothing(client, monkeypatch):
    child = os.getpid() + 1
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: child)
        client.close()

    assert await asyncio.to_thread(client.lambdas) is not None


FORK = """
import gc, os, signal, sys
import duly
client = duly.Client(sys.argv[1])
for _ in range(int(sys.argv[2])):
    client.schedule("mail.send")
child = os.fork()
if not child:
    signal.alarm(20)  # a child that hangs is killed
    if sys.argv[3] == "closes":
        client.close()
    if sys.argv[3] == "makes its own":
        try:
            duly.Client(sys.argv[1]).lambdas()
        except duly.ClosedError as error:
            os._exit("make clients after the fork" not in str(error))
        os._exit(1)
    del client
    gc.collect()
    os._exit(0)
_, status = os.waitpid(child, 0)
client.schedule("mail.send")  # what the child did is not the parent's loss
client.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("what", ["drops", "closes", "makes its own"])
@pytest.mark.parametrize("schedules", [0, 3])
async def test_a_forked_child_may_drop_the_client_that_it_inherited_and_is_refused_another(
    frontend, what, schedules
):
    frontend.serves_streams = True
    # a process of its own: this one has threads of gRPC's, which do not survive a fork
    command = [sys.executable, "-c", FORK, frontend.address, str(schedules), what]

    ran = await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL)

    assert await asyncio.wait_for(ran.wait(), 60) == 0
