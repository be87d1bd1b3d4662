"""Each method of the Frontend has a route, and routes name fields that the messages have."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor

from duly_frontend.cells.routes import (
    ROUTES,
    ByField,
    ByItems,
    InOneCell,
    Place,
    Streamed,
    WhereFound,
)
from duly_frontend.cells.services import SERVICES, descriptor_of


def _methods() -> Iterator[tuple[str, MethodDescriptor]]:
    for base in SERVICES:
        service = descriptor_of(base)
        for method in service.methods:
            yield f"/{service.full_name}/{method.name}", method


METHODS = dict(_methods())


def test_each_method_has_a_route_and_no_route_is_of_another() -> None:
    assert ROUTES.keys() == METHODS.keys()


@pytest.mark.parametrize("path", sorted(METHODS))
def test_a_route_names_fields_that_are_there(path: str) -> None:
    route: Any = ROUTES[path]
    request, answer = METHODS[path].input_type, METHODS[path].output_type
    if isinstance(route, ByItems | InOneCell):
        items = _field(request, route.items)
        assert items.is_repeated
        if route.place.field:
            assert not _at(items.message_type, route.place).is_repeated
        if route.place.claim_token:
            assert _field(items.message_type, route.place.claim_token)
    if isinstance(route, ByItems):
        results = _field(answer, route.results)
        assert results.is_repeated
        assert _field(results.message_type, "error").message_type.name == "ItemError"
    if isinstance(route, ByItems):
        assert route.otherwise is None or _at(items.message_type, route.otherwise)
        assert all(_field(answer, name) for name in route.all_of)
        assert route.instead is None or _at(request, route.instead)
        assert not (route.instead and route.instead.claim_token) or _field(request, route.instead.claim_token)
    if isinstance(route, InOneCell):
        assert _field(answer, "error").message_type.name == "ItemError"
    if isinstance(route, ByField):
        assert not _at(request, route.place).is_repeated
        assert not route.place.claim_token or _field(request, route.place.claim_token)
    if isinstance(route, WhereFound):
        for name in route.absent:
            assert _at(answer, Place(None, name))  # type: ignore[arg-type]  # its path alone
    if isinstance(route, Streamed):
        assert set(route.methods) <= set(request.fields_by_name)


def _at(message: Descriptor, place: Place) -> FieldDescriptor:
    *before, last = place.field.split(".")
    for name in before:
        message = _field(message, name).message_type
    return _field(message, last)


def _field(message: Descriptor, name: str) -> FieldDescriptor:
    assert name in message.fields_by_name, f"{message.full_name} has no {name}"
    return message.fields_by_name[name]
