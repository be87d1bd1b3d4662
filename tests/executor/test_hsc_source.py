"""Asking the HSC for work while it does not answer."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest

from duly_core.host.claim_journal import ClaimJournal, Owner, read
from duly_executor.work.sources import HscSource, Requests
from duly_wire.v1 import hsc_pb2

SECOND = timedelta(seconds=1)


class LostHsc:
    """Loses every reply."""

    def __init__(self) -> None:
        self.asked: list[hsc_pb2.ClaimWorkRequest] = []

    async def ClaimWork(self, request: Any, timeout: float) -> NoReturn:  # noqa: N802
        self.asked.append(request)
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    async def SetResults(self, request: Any, timeout: float) -> NoReturn:  # noqa: N802
        raise NotImplementedError

    async def Release(self, request: Any, timeout: float) -> NoReturn:  # noqa: N802
        raise NotImplementedError


async def test_no_more_lost_requests_are_asked_for_again_than_the_hsc_takes_and_the_oldest_are_forgotten(
    tmp_path: Path,
) -> None:
    file = os.open(tmp_path / "journal", os.O_RDWR | os.O_CREAT, 0o600)
    journal = ClaimJournal(file, None, Owner.this_process("host:1:abc"), processes=1, slots=1, claims=4)
    hsc = LostHsc()
    source = HscSource(hsc, "executor", ["a"], Requests(journal, 3600 * SECOND), SECOND)

    for _ in range(503):
        with pytest.raises(grpc.aio.AioRpcError):
            await source.next_work(1, ())

    prefixes = [request.token_prefix for request in hsc.asked]
    assert set(hsc.asked[-1].lost_prefixes) == set(prefixes[-501:-1])
    assert set(read(file, journal.board.descriptor).prefixes) <= set(prefixes[-500:])
    os.close(file)
