"""Where an Executor's work comes from: its Controller, where there are queues, or else the HSC itself."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import grpc

from duly_core.config.timing import RATE_ERROR
from duly_core.host.claim_journal import ClaimJournal
from duly_core.process import failpoints
from duly_core.process.clock import nanoseconds, since_boot_ns
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.tasks.claim_tokens import new_prefix
from duly_wire.queue_names import QueueName, queues_for
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import controller_pb2, hsc_pb2, task_pb2

if TYPE_CHECKING:
    from duly_wire.v1.controller_pb2_grpc import ControllerServiceAsyncStub

ANSWER_MARGIN = timedelta(seconds=10)
"""A call is given up so long after it should have been answered."""
_LAST_WORD = timedelta(seconds=1)
_MOST_LOST = 500
"""Lost requests that are asked for again. The HSC refuses more than 1,000; claims under older ones run out."""
_PARTIAL_POLL = timedelta(seconds=1)
_WITH_LABELS = timedelta(seconds=2)
_MOST_LAMBDAS = 2_000
"""As many as the HSC takes in a request."""


@dataclass(frozen=True, slots=True)
class Work:
    """Claimed tasks."""

    tasks: Sequence[hsc_pb2.ClaimedTask]
    claims_sent_boot_ns: int
    """Since when the claims live, at the earliest (CLOCK_BOOTTIME)."""
    terms: hsc_pb2.LeaseTerms
    token_prefix: bytes
    """Of their claims; it stays journaled until these are."""


class Queues(NamedTuple):
    """Which tasks a source asks for."""

    lambdas: Sequence[str]
    """Empty: all that the Executor serves."""
    priorities: Sequence[task_pb2.Priority.ValueType]
    """Empty: all."""
    never: Sequence[str] = ()
    """Of these lambdas none: other requests are for them."""


ALL = Queues((), ())


class LabelQueues:
    """The queues of tasks that require labels of this host, as its Controller told last: all sources ask for them, too."""

    def __init__(self, labels: Sequence[str], served: Collection[str]) -> None:
        """Args: `labels` are those of the host, `served` what it serves in any case."""
        self._labels = labels
        self._served = served
        self._names: list[str] = []

    @property
    def has_labels(self) -> bool:
        """Whether there can be any."""
        return bool(self._labels)

    def take(self, known: Iterable[str]) -> None:
        """Serve from now on those of these queues whose labels the host has."""
        self._names = queues_for(self._labels, self._served, known)

    def beside(self, queues: Sequence[str]) -> list[str]:
        """Return those whose queue without labels is one of these."""
        if not self._names:
            return []
        among = frozenset(queues)
        return [name for name in self._names if QueueName.parse(name).base in among]


class Requests:
    """The requests for claims, by token prefix: journaled before they are sent, and while their outcome is unknown."""

    def __init__(self, journal: ClaimJournal, claims_live: timedelta) -> None:
        """Args: `claims_live` is how long a claim lives that a request made whose answer never came."""
        self._journal = journal
        self._claims_live_ns = nanoseconds(claims_live)
        self._lost: dict[bytes, int] = {}
        """Those without an answer, and when they were sent."""

    @contextmanager
    def request(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Send one within this: its new prefix, and those of lost ones to tell of. If it fails, all of them are lost.

        Whoever answers hands back what the lost ones brought. The new prefix stays journaled until its claims are.
        """
        oldest = since_boot_ns() - self._claims_live_ns
        self._forget([prefix for prefix, sent in self._lost.items() if sent < oldest])
        lost, self._lost = self._lost, {}
        prefix = new_prefix()
        self._journal.note_prefix(prefix)
        sent = since_boot_ns()
        try:
            yield prefix, list(lost)
        except BaseException:
            self._lost |= {**lost, prefix: sent}
            self._forget(sorted(self._lost, key=self._lost.__getitem__)[:-_MOST_LOST])
            raise
        for each in lost:
            self._journal.forget_prefix(each)

    async def finish(self, tell: Callable[[list[bytes]], Awaitable[object]]) -> None:
        """Tell of the lost requests, if there are any."""
        if self._lost:
            with suppress(grpc.aio.AioRpcError):  # then they run out, or others find them in the journal
                await tell(list(self._lost))
                self._forget(list(self._lost))

    def _forget(self, prefixes: Iterable[bytes]) -> None:
        for prefix in prefixes:
            del self._lost[prefix]
            self._journal.forget_prefix(prefix)


class ControllerSource:
    """NextWork: the Controller takes references from queues and claims them."""

    def __init__(
        self,
        controller: "ControllerServiceAsyncStub",
        executor_id: str,
        requests: Requests,
        poll_timeout: timedelta,
        only: Queues = ALL,
    ) -> None:
        self._controller = controller
        self._executor_id = executor_id
        self._only = only
        self.requests = requests
        self._poll_timeout = poll_timeout

    async def next_work(self, most: int, without: Collection[str]) -> Work:
        """Wait for up to `most` tasks, none of the lambdas `without`; two calls may be open at a time.

        Raises:
            grpc.aio.AioRpcError: the outcome is unknown, or it is a refusal; ask again.
        """
        timeout = self._poll_timeout + ANSWER_MARGIN
        with self.requests.request() as (prefix, lost):
            request = controller_pb2.NextWorkRequest(
                executor_id=self._executor_id,
                max_tasks=most,
                timeout=to_duration(_shorter(self._poll_timeout, without)),
                lost_prefixes=lost,
                token_prefix=prefix,
                except_lambdas=[*without, *self._only.never] if self._only.never else without,
                lambdas=self._only.lambdas,
                priorities=self._only.priorities,
            )
            response = await self._controller.NextWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        sent = response.claim_sent_since_boot.ToNanoseconds()
        return Work(response.tasks, sent, response.terms, prefix)

    async def finish(self) -> None:
        """Say what was asked for and never arrived, so that nobody waits for the end of its claims."""
        await self.requests.finish(
            lambda lost: self._controller.NextWork(
                controller_pb2.NextWorkRequest(executor_id=self._executor_id, lost_prefixes=lost),
                timeout=_LAST_WORD.total_seconds(),
            )
        )


class HscSource:
    """ClaimWork: the HSC claims what is due. A reply that was lost is asked for again under the same tokens."""

    def __init__(
        self,
        hsc: HscCallStream,
        executor_id: str,
        lambdas: Collection[str],
        requests: Requests,
        poll_timeout: timedelta,
        only: Queues = ALL,
        label_queues: LabelQueues | None = None,
    ) -> None:
        self._label_queues = label_queues or LabelQueues((), ())
        self._hsc = hsc
        self._executor_id = executor_id
        self._lambdas = only.lambdas or sorted(frozenset(lambdas).difference(only.never))
        self._priorities = only.priorities
        self.requests = requests
        # the queues that a call does not name yet wait for its end
        self._poll_timeout = (
            min(poll_timeout, _WITH_LABELS) if self._label_queues.has_labels else poll_timeout
        )
        self._was_answered = False

    async def next_work(self, most: int, without: Collection[str]) -> Work:
        """Wait for up to `most` tasks, none of the lambdas `without`; two calls may be open at a time.

        Raises:
            grpc.aio.AioRpcError: the outcome is unknown, or it is a refusal; ask again.
        """
        timeout = self._poll_timeout + ANSWER_MARGIN
        # the first answer comes at once: it says whether this host's timing fits the HSC's
        poll_timeout = _shorter(self._poll_timeout, without) if self._was_answered else timedelta()
        with self.requests.request() as (prefix, lost):
            request = hsc_pb2.ClaimWorkRequest(
                holder=self._executor_id,
                lambdas=[
                    name
                    for name in (*self._lambdas, *self._label_queues.beside(self._lambdas))[:_MOST_LAMBDAS]
                    if name not in without
                ],
                max_tasks=most,
                timeout=to_duration(poll_timeout),
                token_prefix=prefix,
                lost_prefixes=lost,
                priorities=self._priorities,
                keeps_cells=True,
            )
            sent = since_boot_ns()  # before sending: the store's lease begins later, never earlier
            response = await self._hsc.ClaimWork(request, timeout=timeout.total_seconds())
            await _came(response.tasks)
        self._was_answered = True
        # by the HSC's clock, which may be fast
        waited = int(response.waited.ToNanoseconds() * (1 - 2 * RATE_ERROR))
        return Work(response.tasks, sent + waited, response.terms, prefix)

    async def finish(self) -> None:
        """Say what was asked for and never arrived, so that nobody waits for the end of its claims."""
        await self.requests.finish(
            lambda lost: self._hsc.Release(
                hsc_pb2.ReleaseRequest(token_prefixes=lost), timeout=_LAST_WORD.total_seconds()
            )
        )


def _shorter(poll_timeout: timedelta, without: Collection[str]) -> timedelta:
    """How long to wait: a call that leaves lambdas out must end soon, for there may be room for them again."""
    return min(poll_timeout, _PARTIAL_POLL) if without else poll_timeout


async def _came(tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
    if tasks:
        await failpoints.hit("executor.take.before")
