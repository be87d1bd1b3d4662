"""The page of RPCs: services, requests and answers, from the comments of the .proto files."""

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, MethodDescriptorProto

from scripts.reference.markdown import code, page, sentence, table
from scripts.reference.protos import File, files

_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6  # numbers of FileDescriptorProto's fields, which comments are found by
_FIELDS, _VALUES, _METHODS = 2, 2, 2
_CLIENTS = "duly/v1/frontend.proto"
_INTERNAL = {"duly/v1/callback.proto"}
_INTRODUCTION = """
The files are in `proto/duly/v1`, KEDA's in `proto/externalscaler`. Every server answers gRPC reflection and the standard health service.
Clients call `FrontendService`; the other services connect Duly's own processes.
[Other languages](../clients.md#other-languages) shows a call without the SDK.

Every RPC takes many items and answers each one by itself. [Errors](errors.md) lists the codes.
"""


def text() -> str:
    """Return the page."""
    wire = sorted(
        (file for file in files() if file.name not in _INTERNAL), key=lambda file: file.name != _CLIENTS
    )
    services = [_service(file, index) for file in wire for index in range(len(file.descriptor.service))]
    messages = [
        _message(file, index, message)
        for file in wire
        for index, message in enumerate(file.descriptor.message_type)
    ]
    enums = [enum(file, index) for file in wire for index in range(len(file.descriptor.enum_type))]
    return page("RPCs", _INTRODUCTION, *services, "## Messages\n", *messages, "## Enumerations\n", *enums)


def enum(file: File, index: int, heading: str = "###") -> str:
    """Return an enumeration's values and their meaning."""
    found = file.descriptor.enum_type[index]
    rows = [
        (code(value.name), str(value.number), sentence(file.comment(_ENUMS, index, _VALUES, number)))
        for number, value in enumerate(found.value)
    ]
    return _section(heading, found.name, file.comment(_ENUMS, index)) + table(
        ("value", "number", "meaning"), rows
    )


def _service(file: File, index: int) -> str:
    service = file.descriptor.service[index]
    rows = [
        (code(method.name), _signature(method), sentence(file.comment(_SERVICES, index, _METHODS, number)))
        for number, method in enumerate(service.method)
    ]
    about = file.comment(_SERVICES, index) or file.comment(12)  # the comment above `syntax`: the file's own
    return _section("##", service.name, about) + table(("RPC", "request and answer", "what it does"), rows)


def _signature(method: MethodDescriptorProto) -> str:
    request, answer = (_short(name) for name in (method.input_type, method.output_type))
    streams = (method.client_streaming, method.server_streaming)
    asked, given = (
        f"stream of {code(name)}" if many else code(name)
        for name, many in zip((request, answer), streams, strict=True)
    )
    return f"{asked}, {given}"


def _message(file: File, index: int, message: DescriptorProto) -> str:
    rows = [
        (
            code(field.name),
            _type(field)
            + (
                f" (one of `{message.oneof_decl[field.oneof_index].name}`)"
                if field.HasField("oneof_index") and not field.proto3_optional
                else ""
            ),
            sentence(file.comment(_MESSAGES, index, _FIELDS, number)),
        )
        for number, field in enumerate(message.field)
    ]
    head = _section("###", message.name, file.comment(_MESSAGES, index))
    return head + (table(("field", "type", "meaning"), rows) if rows else "No fields.\n")


def _type(field: FieldDescriptorProto) -> str:
    name = (
        _short(field.type_name)
        if field.type_name
        else FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    )
    return f"many {code(name)}" if field.label == FieldDescriptorProto.LABEL_REPEATED else code(name)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _section(heading: str, name: str, about: str) -> str:
    return f"{heading} {name}\n\n" + (f"{sentence(about)}\n\n" if about else "")
