"""What becomes of results and releases that the HSC does not take as they are."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import grpc
import pytest

import duly
from duly_core.rpc.requests.field_count import check_field_count
from duly_executor.processes import frames
from duly_executor.processes.report_reader import ReportReader
from duly_executor.results import batch_sender
from duly_executor.results.reporter import ResultReporter
from duly_wire.v1 import callback_pb2, frontend_pb2, graphs_pb2, hsc_pb2, task_pb2
from tests.fixtures.host import claimed, until
from tests.fixtures.overload import overload

MANY_BYTES = 1_000_000
TIMEOUT = timedelta(seconds=1)


class Refusal(grpc.aio.AioRpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "says the test")


class FussyHsc:
    """Fails each call that has a claim in `poison`, in the way that is said there."""

    def __init__(self) -> None:
        self.poison: dict[bytes, list[Exception]] = {}
        self.taken: list[hsc_pb2.TaskResult] = []
        self.released: list[hsc_pb2.Claim] = []
        self.requests: list[hsc_pb2.SetResultsRequest] = []

    def _look(self, claims: Sequence[hsc_pb2.Claim]) -> None:
        for claim in claims:
            errors = self.poison.get(claim.token, [])
            if errors:
                raise errors[0] if len(errors) == 1 else errors.pop(0)

    async def SetResults(self, request: Any, timeout: float) -> Any:  # noqa: N802
        bad = [
            result for result in request.results if result.failure_kind != task_pb2.FAILURE_KIND_BAD_RESULT
        ]
        self._look([result.claim for result in bad])
        self.taken += request.results
        self.requests.append(request)
        return hsc_pb2.SetResultsResponse()

    async def Release(self, request: Any, timeout: float) -> Any:  # noqa: N802
        self._look(request.claims)
        self.released += request.claims
        return hsc_pb2.ReleaseResponse()


class Fixture:
    def __init__(self) -> None:
        self.hsc = FussyHsc()
        self.settled: list[hsc_pb2.Claim] = []
        self.reporter = ResultReporter(self.hsc, TIMEOUT, MANY_BYTES, self.settled.extend)  # type: ignore[arg-type]
        self.results = [
            hsc_pb2.TaskResult(claim=claimed().claim, outcome=hsc_pb2.OUTCOME_SUCCESS) for _ in range(9)
        ]
        self.bad = self.results[4]

    def poison(self, *errors: Exception) -> None:
        self.hsc.poison[self.bad.claim.token] = list(errors)

    async def all_settled(self) -> None:
        await until(lambda: len(self.settled) == len(self.results))

    def taken_of_bad(self) -> hsc_pb2.TaskResult:
        return next(result for result in self.hsc.taken if result.claim == self.bad.claim)


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> Fixture:
    monkeypatch.setattr(batch_sender, "backoff", lambda _: timedelta())
    return Fixture()


def test_a_callback_cannot_ask_for_a_delay_that_the_hsc_would_refuse() -> None:
    duly.Snooze(timedelta(days=365))
    duly.RetriableFailure("later", retry_after=timedelta(days=365))
    with pytest.raises(ValueError, match="between 0 and 365 days"):
        duly.Snooze(timedelta(days=366))
    with pytest.raises(ValueError, match="between 0 and 365 days"):
        duly.RetriableFailure("later", retry_after=timedelta(days=366))


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ],
)
async def test_a_result_that_is_refused_ends_as_a_bad_one_and_holds_up_no_other(
    reporting: Fixture, code: grpc.StatusCode
) -> None:
    reporting.poison(Refusal(code))

    reporting.reporter.results(reporting.results)
    await reporting.all_settled()

    replaced = reporting.taken_of_bad()
    assert replaced.outcome == hsc_pb2.OUTCOME_FATAL_FAILURE
    assert replaced.failure_kind == task_pb2.FAILURE_KIND_BAD_RESULT
    assert replaced.failure_message == f"the HSC refused the result: {code.name}: says the test"
    others = [result for result in reporting.hsc.taken if result.claim != reporting.bad.claim]
    assert {result.outcome for result in others} == {hsc_pb2.OUTCOME_SUCCESS}


async def test_requests_have_no_more_fields_than_the_hsc_takes_whatever_callbacks_add_to_their_results(
    reporting: Fixture,
) -> None:
    unknown = b"\xf8\x3f\x01" * 30_000  # a field of a number that Duly does not use
    for result in reporting.results:
        result.children.extend(frontend_pb2.NewTask(task_id=f"{number:040}") for number in range(6_000))
    reporting.bad.MergeFromString(unknown)

    reporting.reporter.results(reporting.results)
    await reporting.all_settled()

    assert len(reporting.hsc.taken) == len(reporting.results)
    for request in reporting.hsc.requests:
        check_field_count(request.SerializeToString(), request.DESCRIPTOR)


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        pytest.param(
            {"children": [frontend_pb2.NewTask()] * 59_500}, "too large: about 59,512 fields", id="tasks"
        ),
        pytest.param(
            {
                "nodes": [
                    graphs_pb2.GraphNode(waits_for=[graphs_pb2.GraphEdge(or_conditions=[1] * 9)] * 15_000)
                ]
            },
            "too large: about 60,020 fields",
            id="edges",
        ),
        pytest.param({"children": [frontend_pb2.NewTask()] * 18_000}, "", id="few enough"),
        pytest.param(
            {"nodes": [graphs_pb2.GraphNode(waits_for=[graphs_pb2.GraphEdge()] * 10_000)]},
            "",
            id="as many edges as a callback may add",
        ),
    ],
)
async def test_a_result_of_more_fields_than_the_hsc_takes_in_a_request_is_a_bad_one(
    result: dict[str, Any], refused: str
) -> None:
    told = hsc_pb2.TaskResult(outcome=hsc_pb2.OUTCOME_SUCCESS, **result)
    stream = asyncio.StreamReader()
    stream.feed_data(frames.write(callback_pb2.CallbackReport(results=[told])))

    report = await ReportReader(stream).read()

    assert report is not None
    assert report.results[0].failure_message.endswith(refused)
    assert bool(report.results[0].failure_message) == bool(refused)


async def test_a_doubtful_answer_that_passes_leaves_the_result_as_it_is(reporting: Fixture) -> None:
    # the last of these would be raised for ever
    reporting.poison(*[Refusal(grpc.StatusCode.INTERNAL) for _ in range(4)])
    errors = reporting.hsc.poison[reporting.bad.claim.token]
    reporting.results = [reporting.bad]

    reporting.reporter.results(reporting.results)
    while len(errors) > 1:  # noqa: ASYNC110 (it goes on as fast as this looks)
        await asyncio.sleep(0)
    errors.clear()
    await reporting.all_settled()

    assert reporting.taken_of_bad() == reporting.bad


@pytest.mark.long  # an HSC is overloaded for seconds
async def test_an_overloaded_hsc_costs_no_result(reporting: Fixture) -> None:
    # the last of these would be raised for ever
    reporting.poison(*[overload(timedelta(milliseconds=1)) for _ in range(12)])
    errors = reporting.hsc.poison[reporting.bad.claim.token]

    reporting.reporter.results(reporting.results)
    await until(lambda: len(errors) == 1)
    errors.clear()
    await reporting.all_settled()

    assert {result.outcome for result in reporting.hsc.taken} == {hsc_pb2.OUTCOME_SUCCESS}


async def test_an_unexpected_error_is_tried_again(reporting: Fixture) -> None:
    reporting.poison(ValueError("a bug"))

    reporting.reporter.results(reporting.results)
    reporting.hsc.poison[reporting.bad.claim.token][:] = [ValueError("a bug"), ValueError("another")]
    await until(lambda: len(reporting.hsc.poison[reporting.bad.claim.token]) == 1)
    reporting.hsc.poison.clear()

    await reporting.all_settled()
    assert reporting.taken_of_bad() == reporting.bad


async def test_a_claim_whose_release_is_refused_holds_up_no_other(reporting: Fixture) -> None:
    reporting.poison(Refusal(grpc.StatusCode.INVALID_ARGUMENT))

    reporting.reporter.release([result.claim for result in reporting.results])
    await reporting.all_settled()

    assert len(reporting.hsc.released) == 8
    assert reporting.bad.claim not in reporting.hsc.released
