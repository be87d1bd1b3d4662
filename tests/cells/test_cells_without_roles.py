"""What a caller whose roles cannot be read learns of cells: nothing."""

from contextlib import AsyncExitStack
from datetime import timedelta

import psycopg

from duly_core.access import cache as access_cache
from duly_wire.v1 import problems_pb2, problems_pb2_grpc
from tests.fixtures.routed_cells import serve_cells

GUESSED = (("authorization", "Bearer duly_guessed"),)


async def test_a_caller_whose_roles_cannot_be_read_learns_neither_which_cells_there_are_nor_how_they_stand(
    routed_cells, tmp_path, monkeypatch
):
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(serve_cells(routed_cells, tmp_path, mode="required"))
        board = problems_pb2_grpc.ProblemServiceStub(channel)
        monkeypatch.setattr(access_cache, "STALE", timedelta(0))
        for dsn in routed_cells.dsns.values():
            holder = await stack.enter_async_context(await psycopg.AsyncConnection.connect(dsn))
            await holder.execute("set idle_in_transaction_session_timeout = 0")
            await holder.execute("lock table access_version in access exclusive mode")

        answers = [
            await board.ListProblems(problems_pb2.ListProblemsRequest(cell=cell), metadata=GUESSED)
            for cell in ("", "b", "a-guess")
        ]
        texts = {each.problems[0].text for each in answers}

    assert texts == {"Postgres does not answer: the roles of callers cannot be read"}
    for answer in answers:
        (problem,) = answer.problems
        assert (list(answer.cells), list(problem.cells)) == ([], [])
        assert (problem.kind, problem.subject) == (problems_pb2.PROBLEM_KIND_STORE_AWAY, "")
