"""ControllerService: Executors attach, and ask for work."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta

from duly_controller import events
from duly_controller.claimer import Claimed, Claimer
from duly_controller.events import log
from duly_controller.executor_registry import AttachedExecutor, ExecutorRegistry, served_by
from duly_controller.lambda_registration import LambdaRegistration
from duly_controller.queue_poller import QueuePoller
from duly_controller.reference_buffer import ReferenceBuffer, ReferenceSlice
from duly_controller.work_requests import WorkRequests
from duly_core.errors import InvalidRequestError, NotAttachedError
from duly_core.process import failpoints
from duly_core.rpc.requests.checks import check_holder, check_prefixes, read_duration, read_priorities
from duly_core.rpc.stubs import Context
from duly_core.tasks.claim_tokens import Tokens, new_prefix
from duly_wire.enums import Priority
from duly_wire.v1 import controller_pb2, controller_pb2_grpc, fleet_pb2

_MOST_TASKS = 2_000
_MOST_LAMBDAS = 2_000
"""As many as the HSC takes in a request for work."""
_LONGEST_WAIT = timedelta(seconds=30)
_LONGEST_ASKED = timedelta(days=1)
"""A longer timeout is a mistake; up to this it is cut."""
_CLOSED_PAUSE = timedelta(seconds=1)


class ControllerServicer(controller_pb2_grpc.ControllerServiceServicer):
    """NextWork picks, claims and hands out; what cannot be handed out any more is released."""

    def __init__(
        self,
        host_id: str,
        executors: ExecutorRegistry,
        registration: LambdaRegistration,
        poller: QueuePoller,
        buffer: ReferenceBuffer,
        work_requests: WorkRequests,
        claimer: Claimer,
        freshness: timedelta,
        *,
        has_queue: bool = True,
        on_attach: Callable[[], object] = lambda: None,
        host_settings: Callable[[], fleet_pb2.HostSettings | None] = lambda: None,
        frontend_address: str = "",
    ) -> None:
        """Make one.

        Args:
            host_id: the host's name.
            executors: those that are attached.
            registration: brings their lambdas to the Frontend.
            poller: receives references from queues.
            buffer: holds them.
            work_requests: who waits for work.
            claimer: claims references.
            freshness: how long a buffered reference may be handed out after it was received.
            has_queue: whether references come through queues. Without, Executors ask the HSC.
            on_attach: called when an Executor has attached.
            host_settings: the live settings of this host; None: they are unknown yet.
            frontend_address: where Executors ask for attachments.
        """
        self._host_id = host_id
        self._registry = executors
        self._registration = registration
        self._poller = poller
        self._buffer = buffer
        self._work_requests = work_requests
        self._claimer = claimer
        self._freshness = freshness.total_seconds()
        self._has_queue = has_queue
        self._on_attach = on_attach
        self._host_settings = host_settings
        self._frontend_address = frontend_address
        self._unwanted: set[asyncio.Task[None]] = set()

    async def AttachExecutor(  # noqa: N802 (the wire's name)
        self, request: controller_pb2.AttachExecutorRequest, _context: Context
    ) -> controller_pb2.AttachExecutorResponse:
        lambdas = served_by(request)
        check_holder("executor_id", request.executor_id)
        if not lambdas or request.pid <= 0:
            raise InvalidRequestError(
                "pid" if lambdas else "lambdas", "pid and at least one lambda must be given"
            )
        if not self._has_queue and len(lambdas) > _MOST_LAMBDAS:
            raise InvalidRequestError(
                "lambdas",
                f"{len(lambdas):,} are more than the {_MOST_LAMBDAS:,} that one application may have: make several",
            )
        problems = await self._registration.register(request.lambdas)
        if problems:
            raise InvalidRequestError("lambdas", "; ".join(problems))
        try:
            self._registry.attach(request, lambdas)
        except ProcessLookupError:
            raise InvalidRequestError("pid", f"there is no process {request.pid} on this host") from None
        self._poller.serve(self._registry.all_lambdas())
        events.attached(request.executor_id, request.pid, lambdas, len(self._registry))
        self._on_attach()
        return controller_pb2.AttachExecutorResponse(
            host_id=self._host_id, ask_hsc=not self._has_queue, frontend_address=self._frontend_address
        )

    async def NextWork(  # noqa: N802
        self, request: controller_pb2.NextWorkRequest, _context: Context
    ) -> controller_pb2.NextWorkResponse:
        executor = self._registry.get(request.executor_id)
        if executor is None:
            raise NotAttachedError("attach first: this Controller does not know this Executor")
        check_prefixes("lost_prefixes", request.lost_prefixes)
        lost = executor.give_up(request.lost_prefixes)
        if lost:
            log.warning(
                "unanswered NextWork; claims released", executor=executor.executor_id, calls=len(lost)
            )
            self._in_background(self._claimer.release(prefixes=lost))
        if request.lost_prefixes and not request.max_tasks:  # it wants nothing more
            return controller_pb2.NextWorkResponse()
        if not 1 <= request.max_tasks <= _MOST_TASKS:
            raise InvalidRequestError("max_tasks", f"must be from 1 to {_MOST_TASKS:,}")
        timeout = min(read_duration("timeout", request.timeout, _LONGEST_ASKED), _LONGEST_WAIT)
        if request.token_prefix:
            check_prefixes("token_prefix", [request.token_prefix])
        priorities = read_priorities("priorities", request.priorities)
        if (
            self._work_requests.closed.is_set()
        ):  # not at once: a caller that repeats its call would keep us busy
            await asyncio.sleep(min(timeout, _CLOSED_PAUSE).total_seconds())
            return controller_pb2.NextWorkResponse()
        prefix = request.token_prefix or new_prefix()
        executor.open_calls[prefix] = False
        try:
            wanted = executor.lambdas.difference(request.except_lambdas)
            if request.lambdas:
                wanted = wanted.intersection(request.lambdas)
            with self._work_requests.asking(wanted, request.max_tasks, priorities):
                claimed = await self._find_work(
                    executor, wanted, priorities, request.max_tasks, timeout, Tokens(prefix)
                )
            if claimed is None:
                return controller_pb2.NextWorkResponse()
            if executor.open_calls[prefix]:
                self._in_background(self._claimer.release(claimed.claims()))
                return controller_pb2.NextWorkResponse()
        finally:
            executor.open_calls.pop(prefix, None)
        await failpoints.hit("controller.next_work.before_answer")
        return _response(claimed)

    async def GetHostSettings(  # noqa: N802
        self, _request: controller_pb2.GetHostSettingsRequest, _context: Context
    ) -> controller_pb2.GetHostSettingsResponse:
        return controller_pb2.GetHostSettingsResponse(
            settings=self._host_settings(), label_queues=self._registry.label_queues
        )

    async def _find_work(
        self,
        executor: AttachedExecutor,
        lambdas: frozenset[str],
        priorities: frozenset[Priority],
        most: int,
        timeout: timedelta,
        tokens: Tokens,
    ) -> Claimed | None:
        """Wait for tasks, claimed; None if none came in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout.total_seconds()
        while not self._work_requests.closed.is_set():
            slices = self._buffer.take(lambdas, most, loop.time() - self._freshness, priorities)
            if slices:
                claimed = await self._claim(executor, slices, tokens)
                if claimed.tasks:
                    return claimed
                self._work_requests.taken()
            elif not await self._something_comes(end - loop.time()):
                break
        return None

    async def _something_comes(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._work_requests.arrival()
        except TimeoutError:
            return False
        return True

    async def _claim(
        self, executor: AttachedExecutor, slices: list[ReferenceSlice], tokens: Tokens
    ) -> Claimed:
        """Claim to the end even if the Executor hangs up meanwhile, and then hand back what it cannot get."""
        claiming = asyncio.get_running_loop().create_task(
            self._claimer.claim(slices, executor.executor_id, tokens)
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            self._in_background(self._hand_back(claiming))
            raise
        if self._registry.get(executor.executor_id) is not executor:
            self._in_background(
                self._hand_back(claiming)
            )  # it died meanwhile, and what it held has been dealt with
            raise NotAttachedError("this Executor's process has ended")
        return claimed

    def _in_background(self, work: Coroutine[object, object, None]) -> None:
        handing_back = asyncio.get_running_loop().create_task(work)
        self._unwanted.add(handing_back)
        handing_back.add_done_callback(self._unwanted.discard)

    async def _hand_back(self, claiming: asyncio.Task[Claimed]) -> None:
        try:
            claimed = await claiming
        except Exception:  # noqa: BLE001 (nobody waits for this task; unanswered claims run out)
            log.exception("release of claims failed unexpectedly")
        else:
            await self._claimer.release(claimed.claims())

    async def finish(self, within: timedelta) -> None:
        """Wait until what nobody can get any more is handed back."""
        if self._unwanted:
            await asyncio.wait(set(self._unwanted), timeout=within.total_seconds())


def _response(claimed: Claimed) -> controller_pb2.NextWorkResponse:
    response = controller_pb2.NextWorkResponse(tasks=claimed.tasks, terms=claimed.terms)
    response.claim_sent_since_boot.FromNanoseconds(claimed.sent_boot_ns)
    return response
