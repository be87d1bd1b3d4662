"""What people and programs are told of an answer that lacks a cell, and that the rest of it is there."""

import warnings
from pathlib import Path

import grpc
import pytest

import duly
from duly.transport.partial_answers import warn_of
from duly_cli.startup.partial_answers import not_shown, say_what_is_missing
from duly_console.frontend_calls import FrontendCalls, FrontendStubs
from duly_wire import missing_cells
from duly_wire.v1 import registry_pb2, registry_pb2_grpc
from tests.fixtures.routed_cells import RoutedCells, serves


async def test_programs_are_warned_and_pages_told_and_both_have_what_the_other_cells_have(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, tmp_path: Path
) -> None:
    registry = registry_pb2_grpc.RegistryServiceStub(channel_of_cells)
    lambdas = [registry_pb2.Lambda(name=name, owner="us") for name in ("plain", "b/other")]
    await registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        assert [each.name for each in await client.lambdas()] == ["b/other", "plain"]  # and no warning

        await routed_cells.lines["b"].cut()
        await serves(channel_of_cells, "b", expected=False)

        with pytest.warns(
            duly.PartialAnswerWarning, match="not shown: cell b, which does not answer"
        ) as told:
            assert [each.name for each in await client.lambdas()] == ["plain"]
        assert [each.message.cells for each in told] == [("b",)]
    calls = FrontendCalls(FrontendStubs(channel_of_cells), "", 10)
    listed = await calls.within(5)(calls.stubs.registry.ListLambdas, registry_pb2.ListLambdasRequest())
    assert len(listed.lambdas) == 1
    assert calls.missing_cells == {"b"}


def test_commands_write_one_line_to_stderr_however_often_they_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        say_what_is_missing()
        for _ in range(3):
            warn_of([("duly-cells-missing", "b,c")])
    written = capsys.readouterr()
    assert (written.out, written.err) == ("", "duly: not shown: cells b and c, which do not answer\n")


def test_a_command_says_nothing_of_what_it_looks_up_for_itself_and_all_of_what_it_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings():
        say_what_is_missing()
        with not_shown():
            warn_of([("duly-cells-missing", "b")])
            warn_of([("duly-cells-later", "b")])
        warn_of([("duly-cells-missing", "c")])
    assert capsys.readouterr().err.splitlines() == [
        "duly: not written yet: cell b, which does not answer, and gets it when it is back",
        "duly: not shown: cell c, which does not answer",
    ]


@pytest.mark.parametrize("metadata", [None, [], [("duly-cells-missing-bin", b"b")], [("other", "b")]])
def test_an_answer_that_lacks_nothing_says_nothing(metadata: list[tuple[str, str | bytes]] | None) -> None:
    warn_of(metadata)
    assert missing_cells.read(metadata) == ()
