"""Attachments in payloads and results, through the very path of a real attempt, with a service in memory."""

import io
from dataclasses import dataclass
from pathlib import Path

import pydantic
import pytest

import duly
from duly.encryption import AesGcm
from duly.graphs.new_graph import NewGraph
from duly.testing import run

_CODEC = AesGcm({"k": bytes(32)}, "k")
_LARGE = 9 * 1024 * 1024 + 7


@dataclass
class Declared:
    table: duly.Attachment
    others: list[duly.Attachment]


class Model(pydantic.BaseModel):
    table: duly.Attachment


def _app(callback: object, codec: object = None, **options: object) -> duly.App:
    app = duly.App(codec=codec)  # type: ignore[arg-type]
    app.callback("a", **options)(callback)  # type: ignore[arg-type]
    return app


@pytest.mark.parametrize("codec", [None, _CODEC])
@pytest.mark.parametrize("size", [0, 1, 4 * 1024 * 1024, _LARGE])
def test_a_callback_reads_a_file_of_its_payload_and_returns_one(
    tmp_path: Path, codec: object, size: int
) -> None:
    content = bytes(range(251)) * (size // 251 + 1)
    path = tmp_path / "table.csv"
    path.write_bytes(content[:size])

    def turned(payload: dict[str, duly.Attachment], ctx: duly.TaskContext) -> dict[str, object]:
        table = payload["table"]
        assert (table.name, table.size_bytes) == ("table.csv", size)
        with table.open() as file:
            assert file.read() == table.read()
        return {"turned": ctx.attach(table.read()[::-1], name="turned.csv", media_type="text/csv")}

    attempt = run(_app(turned, codec), "a", {"table": duly.Attachment(path)})

    assert attempt.outcome is duly.Outcome.SUCCESS, attempt
    result = attempt.result["turned"]
    assert (result.name, result.media_type) == ("turned.csv", "text/csv")
    assert result.read() == content[:size][::-1]
    assert result.encrypted is (codec is not None)
    assert result.save(tmp_path / "saved").read_bytes() == content[:size][::-1]


def test_attachments_stand_in_dataclasses_and_pydantic_models() -> None:
    def joined(payload: Declared) -> Model:
        texts = [each.read() for each in (payload.table, *payload.others)]
        return Model(table=duly.Attachment(b"+".join(texts), name="joined"))

    def read(payload: Model) -> str:
        return payload.table.read().decode()

    payload = Declared(duly.Attachment(b"a"), [duly.Attachment(io.BytesIO(b"b")), duly.Attachment(b"c")])
    attempt = run(_app(joined), "a", payload)

    assert attempt.outcome is duly.Outcome.SUCCESS, attempt
    assert attempt.result["table"].read() == b"a+b+c"
    assert run(_app(read), "a", Model(table=duly.Attachment(b"text"))).result == "text"


def test_a_payload_that_is_no_attachment_is_refused_before_the_callback_runs() -> None:
    def never(payload: Declared) -> None:
        raise AssertionError(payload)

    forged = {"table": {"$duly.attachment": {"hash": "00", "size": 1, "name": "../x"}}, "others": []}
    attempts = [run(_app(never), "a", each) for each in ({"table": "a", "others": []}, forged)]

    assert {each.failure_kind for each in attempts} == {duly.FailureKind.BAD_PAYLOAD}
    assert attempts[0].failure_message == "payload.table: expected Attachment, got str"
    assert "hexadecimal" in attempts[1].failure_message


@pytest.mark.parametrize("codec", [None, _CODEC])
def test_a_result_above_its_limit_is_an_attachment_as_a_whole(codec: object) -> None:
    def large() -> dict[str, object]:
        return {"text": "x" * 10_000, "file": duly.Attachment(b"f")}

    attempt = run(_app(large, codec, result_limit=1000), "a")

    assert attempt.outcome is duly.Outcome.SUCCESS, attempt
    assert attempt.result["text"] == "x" * 10_000
    assert attempt.result["file"].read() == b"f"


def test_what_a_callback_keeps_is_sent_with_any_outcome() -> None:
    def failing(payload: None, ctx: duly.TaskContext) -> None:
        ctx.keep(b"line\n", name="out.log", role=duly.AttachmentRole.STDOUT)
        raise RuntimeError("no")

    attempt = run(_app(failing), "a")

    assert attempt.outcome is duly.Outcome.RETRIABLE_FAILURE
    assert [(each.role, each.attachment.name, each.attachment.read()) for each in attempt.kept] == [
        (duly.AttachmentRole.STDOUT, "out.log", b"line\n")
    ]


def test_results_of_predecessors_have_attachments() -> None:
    def read(payload: None, ctx: duly.TaskContext) -> str:
        file = ctx.result_of("before")["file"]
        assert isinstance(file, duly.Attachment)
        return file.read().decode()

    attempt = run(_app(read), "a", results={"before": {"file": duly.Attachment(b"of before")}})

    assert attempt.result == "of before", attempt


def test_an_attachment_that_cannot_be_read_makes_the_result_a_failure_and_not_a_success_without_it() -> None:
    def missing() -> duly.Attachment:
        return duly.Attachment("/nonexistent/file")

    attempt = run(_app(missing), "a")

    assert attempt.outcome is duly.Outcome.RETRIABLE_FAILURE
    assert "FileNotFoundError" in attempt.failure_message


def test_a_checkpoint_cannot_have_an_attachment() -> None:
    def keeps(payload: None, ctx: duly.TaskContext) -> None:
        ctx.checkpoint({"file": duly.Attachment(b"x")})

    attempt = run(_app(keeps), "a")

    assert "stands where none can be" in attempt.failure_message


@pytest.mark.parametrize("codec", [None, _CODEC])
def test_tasks_and_nodes_that_a_callback_adds_have_attachments(codec: object) -> None:
    def adds(payload: dict[str, duly.Attachment], ctx: duly.TaskContext) -> None:
        ctx.schedule("b", {"came with it": payload["file"], "made here": duly.Attachment(b"made")})
        ctx.add_node("b", [duly.Attachment(b"of a node")], label="n")

    attempt = run(_app(adds, codec), "a", {"file": duly.Attachment(b"came")}, results={})

    assert attempt.outcome is duly.Outcome.SUCCESS, attempt
    (child,), node = attempt.scheduled, attempt.added["n"]
    assert [each.read() for each in child.payload.values()] == [b"came", b"made"]
    assert node.payload[0].read() == b"of a node"


def test_attachments_do_not_leave_their_namespace_with_a_task_that_a_callback_adds() -> None:
    def adds(payload: None, ctx: duly.TaskContext) -> None:
        ctx.schedule("shop/b", {"file": duly.Attachment(b"x")})

    attempt = run(_app(adds), "a")

    assert "attachments stay in their namespace" in attempt.failure_message


def test_a_definition_of_a_graph_keeps_no_attachments() -> None:
    graph = NewGraph("g")
    graph.task("a", {"file": duly.Attachment(b"x")}, label="first")

    for send in (graph.to_definition, graph.to_proto):
        with pytest.raises(duly.EncodingError, match="the payload of 'first' has attachments"):
            send()
