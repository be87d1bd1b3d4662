"""Clients that give files to tasks, and purge and redrive these tasks; some begin uploads that they never end."""

import asyncio
import hashlib
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import duly
from duly.attachments.sending import encoded_payloads, fields_of
from duly.graphs.new_graph import NewGraph
from duly_core.attachments.folder import FolderBlobs
from duly_core.process.clock import since_boot_ns
from duly_wire.attachment_rules import PART_BYTES, hash_of
from duly_wire.v1 import attachments_pb2, frontend_pb2, task_pb2
from tests.chaos.calls import Calls
from tests.chaos.contents import CONTENTS, ERAS, content, sha256_of
from tests.chaos.history import AckedTask
from tests.chaos.kinds import BY_NAME
from tests.chaos.scheduled import Scheduled, acked_task

_EVERY_S = 0.6
_ERA_S = 5.0
_ONE_IN_GRAPH = 4
_ONE_IN_KEPT = 4
"""Tasks that stay until the run is over."""
_ONE_IN_LEFT = 8
"""Rounds in which an upload is begun and not ended, and in which a blob is left that no upload has."""
_PURGE_AFTER_S = (0.5, 3.0)
_REDRIVE_AFTER_S = (0.3, 2.0)
_TIMEOUT = timedelta(seconds=4)
_ABANDONED = 1_000
"""The first number of contents that are not uploaded to their end."""


class FileClients:
    """Beside the other clients of a run."""

    def __init__(self, calls: Calls, random: Random, folder: Path, *, peaceful: bool) -> None:
        """Make them; `folder` is where the contents are stored. `peaceful`: nothing is redriven."""
        self._client = calls
        self._random = random
        self._blobs = FolderBlobs.open(str(folder))
        self._peaceful = peaceful
        self._scheduled: list[Scheduled] = []
        self._running: set[asyncio.Task[None]] = set()
        self._era = 0
        self.problems: list[str] = []
        """Answers that must not be."""

    async def run(self, seconds: float) -> None:
        """Schedule for so long; calls may go on beyond."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while (passed := loop.time() - started) < seconds:
            self._era = int(passed / _ERA_S)
            self._start(self._graph() if self._one_in(_ONE_IN_GRAPH) else self._task())
            if self._one_in(_ONE_IN_LEFT):
                self._start(self._abandon())
                self._blobs.put(uuid4(), 0, b"of an upload that was started again")
            await asyncio.sleep(_EVERY_S)

    async def finish(self, within: timedelta) -> None:
        """Wait for the calls under way; those that last longer stay unanswered."""
        if self._running:
            await asyncio.wait(self._running, timeout=within.total_seconds())
        self._client.stop()
        for call in list(self._running):
            call.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._client.close()

    def acked(self) -> tuple[AckedTask, ...]:
        """What was acknowledged."""
        return tuple(map(acked_task, self._scheduled))

    def _one_in(self, number: int) -> bool:
        return self._random.randrange(number) == 0

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(call)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, call: "asyncio.Task[None]") -> None:
        self._running.discard(call)
        if not call.cancelled() and (error := call.exception()) is not None:
            self.problems.append(f"a client with files failed: {type(error).__name__}: {error}")

    def _number(self) -> int:
        return self._era % ERAS * CONTENTS + self._random.randrange(CONTENTS)

    async def _task(self) -> None:
        """Upload, schedule, and upload again if that was removed meanwhile."""
        kind = BY_NAME[self._random.choice(("reads_file", "reads_file", "fails_with_file"))]
        number, returns, is_kept = self._number(), self._number(), self._one_in(_ONE_IN_KEPT)
        for _ in range(10):
            collection = f"files-{self._random.getrandbits(64):x}"
            payload = _given(kind.name, number) | {"returns": returns, "gives_on": is_kept}
            new = duly.NewTask(kind.lambda_name, payload, collection=collection)
            fields = await self._client.anywhere(lambda caller, new=new: fields_of(caller, new, _TIMEOUT))  # type: ignore[misc]
            task = frontend_pb2.NewTask(**fields)
            answer, tries = await self._client.call("Schedule", frontend_pb2.ScheduleRequest(tasks=[task]))
            (result,) = answer.results
            if result.error.code == task_pb2.ERROR_CODE_ATTACHMENT_MISSING:
                continue  # between the two calls was more than the grace
            if result.HasField("error"):
                self.problems.append(f"Schedule of {kind.name} refused: {result.error.message}")
                return
            scheduled = Scheduled(kind, task, task_id=result.task_id, acked_ns=since_boot_ns())
            self._scheduled.append(scheduled)
            if kind.name == "fails_with_file" and not self._peaceful:
                await self._redrive(scheduled)
            if not is_kept and tries == 1:  # else a late try might write anew what was purged
                await self._purge([scheduled], collection)
            return

    async def _graph(self) -> None:
        """Schedule a graph of which one node returns a file, and the others read it."""
        kinds = [BY_NAME[name] for name in ("makes_file", "gets_file", "takes_file", "takes_file")]
        payloads = [
            {"kind": "makes_file", "returns": self._number()},
            _given("gets_file", self._number()),
            *[{"kind": "takes_file"}] * 2,
        ]
        for _ in range(10):
            graph = NewGraph("chaos.files")
            first = None
            for kind, payload in zip(kinds, payloads, strict=True):
                node = graph.task(kind.lambda_name, payload, after=first)
                first = first or node
            stored = await self._client.anywhere(
                lambda caller, graph=graph: encoded_payloads(caller, graph.attaching, _TIMEOUT)  # type: ignore[misc]
            )
            request = graph.to_proto(payloads=stored)
            answer, _ = await self._client.call("ScheduleGraph", request, "graphs")
            if answer.error.code != task_pb2.ERROR_CODE_ATTACHMENT_MISSING:
                break
        if answer.HasField("error"):
            self.problems.append(f"ScheduleGraph of files refused: {answer.error.message}")
            return
        now_ns = since_boot_ns()
        nodes = [
            Scheduled(kind, node.task, task_id=task_id, acked_ns=now_ns, graph_id=answer.graph_id)
            for kind, node, task_id in zip(kinds, request.nodes, answer.task_ids, strict=True)
        ]
        self._scheduled += nodes

    async def _redrive(self, scheduled: Scheduled) -> None:
        """Let it run again if it has failed by now."""
        await asyncio.sleep(self._random.uniform(*_REDRIVE_AFTER_S))
        request = frontend_pb2.RedriveTaskRequest(task_ids=[scheduled.task_id])
        answer, _ = await self._client.call("RedriveTask", request)
        (result,) = answer.results
        if result.HasField("error") and result.error.code != task_pb2.ERROR_CODE_NOT_A_DEAD_LETTER:
            self.problems.append(f"redrive of {scheduled.task_id}: {result.error.message}")

    async def _purge(self, chosen: list[Scheduled], collection: str) -> None:
        """Delete what has ended of a collection, twice: some take their time."""
        for _ in range(2):
            await asyncio.sleep(self._random.uniform(*_PURGE_AFTER_S))
            for each in chosen:
                each.purge_asked = True
            await self._client.call("PurgeTasks", frontend_pb2.PurgeTasksRequest(collection=collection))

    async def _abandon(self) -> None:
        """Begin an upload, and never end it."""
        data = content(_ABANDONED + self._random.randrange(_ABANDONED))
        content_hash, part_hashes = _hashes(data)
        upload = attachments_pb2.AttachmentUpload(
            hash=content_hash, size_bytes=len(data), part_hashes=part_hashes
        )
        request = attachments_pb2.BeginUploadsRequest(uploads=[upload])
        setattr(request, "lambda", BY_NAME["reads_file"].lambda_name)
        answer, _ = await self._client.call("BeginUploads", request, "attachments")
        (result,) = answer.results
        if result.missing_parts:
            part = attachments_pb2.AttachmentPart(hash=content_hash, index=0, data=data[:PART_BYTES])
            sent = attachments_pb2.UploadPartsRequest(parts=[part])
            setattr(sent, "lambda", BY_NAME["reads_file"].lambda_name)
            await self._client.call("UploadParts", sent, "attachments")


def _given(kind: str, number: int) -> dict[str, Any]:
    """Return the payload of a task that is given a file."""
    file = duly.Attachment(content(number), name=f"{number}.txt")
    return {"kind": kind, "file": file, "sha": sha256_of(number)}


def _hashes(data: bytes) -> tuple[bytes, bytes]:
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
    hashes = [hashlib.sha256(part).digest() for part in parts]
    return hash_of(hashes), b"".join(hashes)
