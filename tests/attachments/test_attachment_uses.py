"""What tasks and runs use of attachments, from Schedule to the claim, the result, and whoever may read it."""

import asyncio
import os
from datetime import timedelta
from uuid import UUID

import pytest

import duly
from duly.encryption import AesGcm
from duly.graphs.new_graph import NewGraph
from duly_core.attachments.rules import AttachmentUse
from duly_core.postgres.pool import Store
from duly_core.tasks.task import NewTask, Scheduled, Scheduling
from duly_frontend.events import attachment_bytes
from duly_frontend.tasks import scheduling
from duly_wire.attachment_rules import PART_BYTES
from duly_wire.ids import new_task_id
from duly_wire.v1 import attachments_pb2, frontend_pb2, graphs_pb2, hsc_pb2, task_pb2
from tests.fixtures.attachments import Content, upload
from tests.fixtures.raw_http2 import DATA, END_STREAM, RawPeer, frame
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import until

INPUT = Content(b"a,b\n1,2\n")
OUTPUT = Content(os.urandom(PART_BYTES + 10))
LOG = Content(b"it went well\n")
UNKNOWN = Content(b"never uploaded")
OTHER = "shop/mail"


@pytest.fixture
async def frontend(storing, task_states):
    await task_states.register()
    await task_states.register(OTHER)  # before the Frontend reads what is registered
    await upload(storing, INPUT, OUTPUT, LOG)
    return storing


def new(*uses, name=LAMBDA, **fields):
    attachments = task_pb2.AttachmentUses(uses=uses).SerializeToString()
    return frontend_pb2.NewTask(**{"lambda": name, "payload": b"{}", "attachments": attachments} | fields)


async def schedule(frontend, *tasks):
    return list((await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=tasks))).results)


async def claim(hsc, name=LAMBDA):
    request = hsc_pb2.ClaimWorkRequest(
        holder="host", lambdas=[name], max_tasks=10, token_prefix=os.urandom(14)
    )
    request.timeout.FromTimedelta(timedelta(seconds=5))
    return list((await hsc.stub.ClaimWork(request)).tasks)


async def end(hsc, task, outcome=hsc_pb2.OUTCOME_SUCCESS, **fields):
    result = hsc_pb2.TaskResult(claim=task.claim, outcome=outcome, **fields)
    return list((await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]))).verdicts)


async def get(frontend, task_id):
    (result,) = (await frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=[task_id]))).results
    return result.task


async def fetch(frontend, task_id, content, *indexes, token=b""):
    request = attachments_pb2.FetchPartsRequest(
        task_id=task_id, hash=content.hash, indexes=indexes, claim_token=token
    )
    return await frontend.attachments.FetchParts(request)


async def count(store: Store, table: str) -> int:
    async with store.connection() as connection:
        cursor = await connection.execute(f"select count(*) from {table}".encode())  # noqa: S608
        ((number,),) = await cursor.fetchall()
    return int(number)


def each_id(task):
    return str(UUID(bytes=task.claim.task_id))


def named(uses):
    return [
        (use.name, task_pb2.AttachmentRole.Name(use.role).removeprefix("ATTACHMENT_ROLE_")) for use in uses
    ]


async def test_a_task_tells_its_uses_to_its_claim_and_the_claim_reads_their_content(frontend, hsc):
    (scheduled,) = await schedule(
        frontend, new(INPUT.use("in.csv", media_type="text/csv"), OUTPUT.use("big"))
    )

    (task,) = await claim(hsc)
    described = await fetch(frontend, scheduled.task_id, OUTPUT, token=task.claim.token)
    parts = [
        (await fetch(frontend, scheduled.task_id, OUTPUT, index, token=task.claim.token)).parts
        for index in (1, 0)
    ]
    stranger = await fetch(frontend, scheduled.task_id, OUTPUT, 0, token=os.urandom(16))
    unused = await fetch(frontend, scheduled.task_id, LOG, 0, token=task.claim.token)

    assert named(task.attachments) == [("in.csv", "INPUT"), ("big", "INPUT")]
    assert (task.attachments[0].hash, task.attachments[0].media_type) == (INPUT.hash, "text/csv")
    assert (described.size_bytes, described.part_hashes) == (len(OUTPUT.data), OUTPUT.part_hashes)
    assert [part.data for some in reversed(parts) for part in some] == OUTPUT.parts
    assert {stranger.error.code, unused.error.code} == {task_pb2.ERROR_CODE_NOT_FOUND}
    assert not stranger.parts


async def test_a_result_tells_its_uses_and_a_later_claim_token_reads_nothing(frontend, hsc):
    (scheduled,) = await schedule(frontend, new(INPUT.use("in.csv")))
    (task,) = await claim(hsc)
    kept = [
        OUTPUT.use("out", role=task_pb2.ATTACHMENT_ROLE_RESULT),
        LOG.use("log", role=task_pb2.ATTACHMENT_ROLE_STDOUT),
    ]

    first = await end(hsc, task, result=b"{}", attachments=kept)
    again = await end(hsc, task, result=b"{}", attachments=kept)

    ended = await get(frontend, scheduled.task_id)
    assert (first, again) == (
        [hsc_pb2.RESULT_VERDICT_APPLIED],
        [hsc_pb2.RESULT_VERDICT_ALREADY_APPLIED],
    )
    assert named(ended.attachments) == [("in.csv", "INPUT"), ("out", "RESULT"), ("log", "STDOUT")]
    assert (await fetch(frontend, scheduled.task_id, OUTPUT, 0)).parts[0].data == OUTPUT.parts[0]
    late = await fetch(frontend, scheduled.task_id, OUTPUT, 0, token=task.claim.token)
    assert late.error.code == task_pb2.ERROR_CODE_NOT_FOUND
    request = attachments_pb2.ListAttachmentsRequest(task_ids=[scheduled.task_id, str(new_task_id())])
    listed, unknown = (await frontend.attachments.ListAttachments(request)).results
    assert named(listed.attachments) == named(ended.attachments)
    assert unknown.error.code == task_pb2.ERROR_CODE_NOT_FOUND


async def test_a_run_that_fails_keeps_its_log_and_the_next_one_replaces_it(frontend, hsc):
    (scheduled,) = await schedule(frontend, new())
    (task,) = await claim(hsc)
    log = LOG.use("log", role=task_pb2.ATTACHMENT_ROLE_STDERR)
    retry = {"retry_after": {"nanos": 1000}}
    await end(
        hsc, task, hsc_pb2.OUTCOME_RETRIABLE_FAILURE, attachments=[log, UNKNOWN.use("gone", role=5)], **retry
    )
    failed = await get(frontend, scheduled.task_id)
    (task,) = await claim(hsc)
    await end(hsc, task, hsc_pb2.OUTCOME_SNOOZED, attachments=[OUTPUT.use("half", role=5)], **retry)

    snoozed = await get(frontend, scheduled.task_id)

    assert named(failed.attachments) == [("log", "STDERR")]
    assert named(snoozed.attachments) == [("half", "FILE")]


async def test_a_use_of_what_is_not_stored_is_refused_by_itself_and_nothing_of_its_task_is_written(
    frontend, task_states, store
):
    refused = [
        new(INPUT.use(), UNKNOWN.use("gone")),
        new(INPUT.use(size_bytes=1)),
        new(INPUT.use(), name=OTHER),
    ]

    results = await schedule(frontend, new(), *refused, new(INPUT.use()))

    assert [each.created for each in results] == [True, False, False, False, True]
    codes = {each.error.code for each in results[1:4]}
    assert codes == {task_pb2.ERROR_CODE_ATTACHMENT_MISSING}
    assert UNKNOWN.hash.hex() in results[1].error.message
    assert "shop" in results[3].error.message
    assert (await count(store, "task"), await count(store, "attachment_use")) == (2, 1)


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (INPUT.use(hash=b"short"), "attachments[0].hash"),
        (INPUT.use(size_bytes=-1), "attachments[0].size_bytes"),
        (INPUT.use("../../etc/passwd"), "attachments[0].name"),
        (INPUT.use("a\nb"), "attachments[0].name"),
        (INPUT.use(media_type="text/\x1b[2J"), "attachments[0].media_type"),
        (INPUT.use(role=task_pb2.ATTACHMENT_ROLE_RESULT), "attachments"),
        (INPUT.use(role=99), "attachments"),
    ],
)
async def test_an_invalid_use_names_its_field(frontend, use, field):
    (result,) = await schedule(frontend, new(use))

    assert (result.error.code, result.error.field) == (task_pb2.ERROR_CODE_INVALID_ARGUMENT, field)


async def test_bytes_that_are_no_uses_and_too_many_of_them_are_refused(frontend):
    many = new(*[INPUT.use(role=99)] * 101)  # they are counted before each is looked at

    results = await schedule(frontend, new(attachments=b"\xff\xff"), many, new(attachments=bytes(70_000)))

    assert "at most 100" in results[1].error.message
    assert {(each.error.code, each.error.field) for each in results} == {
        (task_pb2.ERROR_CODE_INVALID_ARGUMENT, "attachments")
    }


async def test_a_repeat_writes_nothing_and_with_other_attachments_it_is_a_conflict(frontend, store):
    task = new(INPUT.use(), idempotency_key="once")
    (first,) = await schedule(frontend, task)

    (again,) = await schedule(frontend, task)
    (other,) = await schedule(frontend, new(LOG.use(), idempotency_key="once"))

    assert (again.task_id, again.created) == (first.task_id, False)
    assert not again.HasField("error")
    assert other.error.code == task_pb2.ERROR_CODE_KEY_CONFLICT
    assert await count(store, "attachment_use") == 1


@pytest.mark.parametrize("bad", [UNKNOWN.use("gone", role=2), INPUT.use("..", role=2), INPUT.use(role=1)])
async def test_a_success_whose_attachments_are_invalid_or_not_stored_is_a_fatal_failure_with_its_log(
    frontend, hsc, bad
):
    (scheduled,) = await schedule(frontend, new())
    (task,) = await claim(hsc)

    verdicts = await end(hsc, task, result=b"{}", attachments=[LOG.use("log", role=3), bad])

    ended = await get(frontend, scheduled.task_id)
    assert verdicts == [hsc_pb2.RESULT_VERDICT_APPLIED]
    assert ended.status == task_pb2.TASK_STATUS_FATAL_FAILURE
    assert ended.last_failure.kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert "ctx.attach" in ended.last_failure.message
    assert named(ended.attachments) == ([("log", "STDOUT")] if bad.name == "gone" else [])


async def test_children_use_attachments_or_are_not_written_at_all(frontend, hsc, store):
    await schedule(frontend, new(), new())
    first, second = await claim(hsc)
    good, bad = (str(new_task_id()) for _ in range(2))

    await end(hsc, first, result=b"{}", children=[new(INPUT.use("in"), task_id=good)])
    await end(hsc, second, result=b"{}", children=[new(UNKNOWN.use("in"), task_id=bad)])

    assert named((await get(frontend, good)).attachments) == [("in", "INPUT")]
    assert not (await get(frontend, bad)).task_id
    assert await count(store, "attachment_use") == 1


async def test_a_node_reads_what_the_results_of_its_predecessors_name_and_nothing_else(frontend, hsc):
    nodes = [
        {"label": "a", "task": new(INPUT.use("in"))},
        {"label": "b", "task": new(), "waits_for": [{"label": "a"}]},
    ]
    written = await frontend.graphs.ScheduleGraph(graphs_pb2.ScheduleGraphRequest(name="g", nodes=nodes))
    (first,) = await claim(hsc)
    kept = [OUTPUT.use("out", role=2), LOG.use("log", role=3)]
    await end(hsc, first, result=b"{}", attachments=kept)

    (second,) = await claim(hsc)

    (before,) = second.graph.predecessors
    assert named(before.attachments) == [("out", "RESULT")]
    token, task_id = second.claim.token, written.task_ids[1]
    assert (await fetch(frontend, task_id, OUTPUT, 1, token=token)).parts[0].data == OUTPUT.parts[1]
    for content in (LOG, INPUT):
        assert (await fetch(frontend, task_id, content, 0, token=token)).error.code
    assert (await fetch(frontend, task_id, OUTPUT, 0)).error.code == task_pb2.ERROR_CODE_NOT_FOUND


async def test_a_graph_with_a_node_that_uses_what_is_not_stored_is_not_written(frontend, store):
    nodes = [{"label": "a", "task": new(INPUT.use())}, {"label": "b", "task": new(UNKNOWN.use("gone"))}]

    answer = await frontend.graphs.ScheduleGraph(graphs_pb2.ScheduleGraphRequest(name="g", nodes=nodes))

    assert answer.error.code == task_pb2.ERROR_CODE_ATTACHMENT_MISSING
    assert answer.error.field == "nodes['b'].task.attachments"
    assert (await count(store, "task"), await count(store, "attachment_use")) == (0, 0)


async def test_a_payload_that_is_an_attachment_needs_one(frontend):
    encoded = {"payload_encoding": task_pb2.ENCODING_ATTACHMENT}

    good, bad = await schedule(frontend, new(INPUT.use(), **encoded), new(**encoded))

    assert good.created
    assert bad.error.field == "payload_encoding"


async def test_tasks_are_written_in_portions_of_a_bounded_number_of_attachments():
    items = [
        scheduling.Item(
            new(), task=NewTask(new_task_id(), LAMBDA, b"", attachments=(AttachmentUse(b"", 0, "n"),) * uses)
        )
        for uses in (0, 3, 0, 2, 0, 9, 0, 0, 0, 0, 0, 0, 1)
    ]
    portions = []

    async def write(tasks):
        portions.append([len(task.attachments) for task in tasks])
        return [Scheduled(Scheduling.CREATED, task.task_id) for task in tasks]

    await scheduling.write(items, write, 4)

    assert portions == [[0, 3, 0], [2, 0], [9, 0, 0, 0], [0, 0, 0], [1]]
    assert all(item.scheduled.task_id == item.task.task_id for item in items)


MANY_USES = [INPUT.use(f"{number}.csv") for number in range(100)]


async def test_a_run_returns_a_hundred_files_and_keeps_a_hundred_more(frontend, hsc, store):
    result, file = task_pb2.ATTACHMENT_ROLE_RESULT, task_pb2.ATTACHMENT_ROLE_FILE
    for _ in range(2):
        await schedule(frontend, new())
    first, second = await claim(hsc)
    uses = [INPUT.use(f"{number}", role=role) for number in range(100) for role in (result, file)]

    await end(hsc, first, result=b"1", attachments=uses)
    await end(hsc, second, result=b"1", attachments=[*uses[:-1], INPUT.use("one more", role=result)])
    kept, refused = [await get(frontend, each_id(task)) for task in (first, second)]

    assert len(kept.attachments) == 200
    assert refused.last_failure.kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert "at most 100 in a result, not 101: pack some into one" in refused.last_failure.message


async def test_the_attachments_of_a_graph_and_of_what_a_run_adds_are_bounded_together(frontend, hsc, store):
    def graph(nodes):
        return graphs_pb2.ScheduleGraphRequest(
            name="g",
            nodes=[graphs_pb2.GraphNode(label=str(number), task=new(*MANY_USES)) for number in range(nodes)],
        )

    written = await frontend.graphs.ScheduleGraph(graph(11))
    count_of_uses = await count(store, "attachment_use")
    refused = await frontend.graphs.ScheduleGraph(graph(101))
    (parent, *_) = await claim(hsc)
    longest = [INPUT.use(f"{number:0255}") for number in range(100)]
    await end(hsc, parent, result=b"1", children=[new(*longest) for _ in range(20)])
    failed = await get(frontend, each_id(parent))

    assert not written.HasField("error")
    assert count_of_uses == 1_100
    assert refused.error.field == "nodes"
    assert "at most 10,000 go with a graph" in refused.error.message
    assert failed.last_failure.kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert "use too many attachments together" in failed.last_failure.message


async def test_an_encrypted_file_is_given_on_to_another_task(frontend):
    codec = AesGcm({"k": bytes(32)}, "k")
    async with duly.AsyncClient(frontend.address, codec=codec) as client:
        first = await client.schedule(LAMBDA, {"file": duly.Attachment(b"secret", name="s.txt")})
        came_with = (await client.get(first)).payload["file"]
        second = await client.schedule(LAMBDA, {"again": came_with})
        (use,) = await client.attachments(second)
        payload = (await client.get(second)).payload

        assert await client.read_attachment(payload["again"]) == b"secret"
        assert use.stored_bytes > len(b"secret")


@pytest.mark.parametrize("codec", [None, AesGcm({"k": bytes(32)}, "k")])
async def test_nodes_of_a_graph_are_given_files_and_a_repeat_makes_no_second_graph(frontend, codec):
    graph = NewGraph("files")
    first = graph.task(LAMBDA, {"file": duly.Attachment(b"one")}, label="first")
    graph.task(LAMBDA, [duly.Attachment(b"two"), {"and": duly.Attachment(b"one")}], after=first)
    async with duly.AsyncClient(frontend.address, codec=codec) as client:
        made = await client.schedule_graph(graph)
        again = await client.schedule_graph(graph)
        payloads = [(await client.get(each)).payload for each in made.task_ids.values()]
        attachments = [payloads[0]["file"], payloads[1][0], payloads[1][1]["and"]]
        read = [await client.read_attachment(each) for each in attachments]

    assert (made.created, again.created) == (True, False)
    assert read == [b"one", b"two", b"one"]


UNREAD_OF_ONE = 16


async def test_who_does_not_read_what_it_fetches_gets_no_more_and_keeps_nobody_else_waiting(frontend):
    (scheduled,) = await schedule(frontend, new(OUTPUT.use("big")))
    request = attachments_pb2.FetchPartsRequest(
        task_id=scheduled.task_id, hash=OUTPUT.hash, indexes=[0]
    ).SerializeToString()
    body = b"\0" + len(request).to_bytes(4) + request
    fetched = attachment_bytes.labels("fetched")._value
    before = fetched.get()

    with await asyncio.to_thread(RawPeer, frontend.address) as peer:
        for number in range(UNREAD_OF_ONE * 2):
            peer.call(1 + 2 * number, "/duly.v1.AttachmentService/FetchParts")
            peer.send(frame(DATA, END_STREAM, 1 + 2 * number, body))
        await until(lambda: fetched.get() - before >= UNREAD_OF_ONE * PART_BYTES)
        other = await fetch(frontend, scheduled.task_id, OUTPUT, 0)
        unread = fetched.get() - before - PART_BYTES

    assert len(other.parts) == 1
    assert unread == UNREAD_OF_ONE * PART_BYTES
    assert (await fetch(frontend, scheduled.task_id, OUTPUT, 0)).parts
