"""The Go program of docs/clients.md uses messages, fields, enums and RPCs that the protos have."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from duly_wire.v1 import frontend_pb2, task_pb2

_PAGE = (Path(__file__).parents[2] / "docs/clients.md").read_text(encoding="utf-8")
_FILES = (frontend_pb2.DESCRIPTOR, task_pb2.DESCRIPTOR)
_MESSAGES = {name: message for file in _FILES for name, message in file.message_types_by_name.items()}
_VALUES = {
    f"{name}_{value.name}"
    for file in _FILES
    for name, enum in file.enum_types_by_name.items()
    for value in enum.values
}


@pytest.fixture
def program() -> str:
    """The program, as the page has it."""
    (found,) = re.findall(r"^```go\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(found, str)
    return found


def in_go(field: FieldDescriptor) -> str:
    """Return the name of the field that protoc-gen-go makes."""
    return "".join(part.capitalize() for part in field.name.split("_"))


def test_every_name_of_the_stubs_exists(program: str) -> None:
    oneofs = {f"{name}_{in_go(field)}" for name, message in _MESSAGES.items() for field in message.fields}
    clients = {f"New{service}Client" for service in _FILES[0].services_by_name}

    named = set(re.findall(r"dulyv1\.(\w+)", program))

    assert len(named) > 5
    assert named - set(_MESSAGES) - oneofs - clients - _VALUES == set()


def test_every_field_and_rpc_exists(program: str) -> None:
    fields = {in_go(field) for message in _MESSAGES.values() for field in message.fields}
    oneofs = {"When"}
    rpcs = {method.name for method in frontend_pb2.DESCRIPTOR.services_by_name["FrontendService"].methods}

    set_in_literals = set(re.findall(r"(?:^\t\t|[{,] ?)([A-Z]\w+):", program, re.MULTILINE))
    read = set(re.findall(r"(?:result|Task|Error|written|waited)\.(?:Get)?([A-Z]\w+)", program))
    called = set(re.findall(r"frontend\.([A-Z]\w+)\(", program))

    assert "IdempotencyKey" in set_in_literals
    assert (set_in_literals | read) - fields - oneofs == set()
    assert called == {"Schedule", "WaitTask"}
    assert called <= rpcs


def test_no_task_has_both_a_key_and_an_id(program: str) -> None:
    tasks = re.split(r"^\t\}, \{$", program, flags=re.MULTILINE)

    assert [("IdempotencyKey" in task, "TaskId: " in task) for task in tasks] == [
        (True, False),
        (False, True),
    ]
