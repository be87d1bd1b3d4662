"""Declares the lambdas of an application without running them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from duly.transport.error_mapping import from_item
from duly_wire.v1 import registry_pb2

if TYPE_CHECKING:
    from duly.transport.caller import Caller

_AT_A_TIME = 100


async def register(caller: Caller, declared: Sequence[registry_pb2.Lambda]) -> list[str]:
    """Declare lambdas; return what the registry warns of, as "NAME: warning".

    Raises the error of the first that is refused; the others of its call are declared.
    """
    warnings = []
    for some in _divided(declared):
        request = registry_pb2.RegisterLambdasRequest(lambdas=some)
        response = await caller.call(caller.registry.RegisterLambdas, request)
        results = list(zip(some, response.results, strict=True))
        warnings += [f"{each.name}: {result.warning}" for each, result in results if result.warning]
        for each, result in results:
            if result.HasField("error"):
                result.error.message = f"lambda {each.name!r}: {result.error.message}"
                raise from_item(result.error)
    return warnings


def _divided(declared: Sequence[registry_pb2.Lambda]) -> Iterator[list[registry_pb2.Lambda]]:
    """Yield as many as one call takes; one with time tables goes alone, for it may have many."""
    some: list[registry_pb2.Lambda] = []
    for each in declared:
        if each.time_tables:
            yield [each]
            continue
        some.append(each)
        if len(some) == _AT_A_TIME:
            yield some
            some = []
    if some:
        yield some
