"""Turns Python values into payload and result bytes, and back.

Bytes travel as they are; everything else as compact UTF-8 JSON. None is no bytes at all.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import Enum
from typing import Any, NamedTuple, NoReturn, TypeAlias
from uuid import UUID

from duly.attachments.attachment import KEY, MARK, Attachment, AttachmentsInsideError, from_form
from duly.attachments.origin import Origin
from duly.errors import EncodingError, PayloadError
from duly_wire.v1 import task_pb2

DEFAULT_LIMIT_BYTES = 256 * 1024
HARD_LIMIT_BYTES = 1024 * 1024

OriginOf: TypeAlias = Callable[[], Origin]

_BYTES = (bytes, bytearray, memoryview)


class SentPayload(NamedTuple):
    """A payload as a client sent it, decrypted; JSON was checked."""

    data: bytes
    encoding: int


def encode(value: object) -> tuple[bytes, task_pb2.Encoding.ValueType]:
    """Return a value's bytes and how they are to be read.

    Dataclass instances and pydantic models become JSON objects. Raises EncodingError for what JSON
    has no word for (a datetime, a set, NaN), since it could not come back as what it was; AttachmentsInsideError for a value
    that has attachments.

    >>> encode({"to": "ann"})[0]
    b'{"to":"ann"}'
    """
    if value is None:
        return b"", task_pb2.ENCODING_JSON
    if isinstance(value, _BYTES):
        return bytes(value), task_pb2.ENCODING_RAW
    try:
        return _to_json(value).encode(), task_pb2.ENCODING_JSON
    except EncodingError:
        raise
    except TypeError as error:  # json's own words for a key that is no string
        raise EncodingError(f"JSON cannot carry this {type(value).__name__}: {error}") from error
    except (ValueError, RecursionError) as error:  # NaN, a circle, a lone surrogate, nested too deeply
        if isinstance(error.__cause__, AttachmentsInsideError):  # pydantic wraps it
            raise error.__cause__ from None
        reason = "a lone surrogate in a str" if isinstance(error, UnicodeError) else error
        raise EncodingError(f"JSON cannot carry this {type(value).__name__}: {reason}") from None


def decode(data: bytes, encoding: int, origin: Origin | OriginOf | None = None) -> Any:
    """Return the value that bytes stand for; raise PayloadError if they are not what `encoding` says.

    `origin`: of attachments in it. Raises DecryptionError for what is still encrypted.
    """
    if encoding != task_pb2.ENCODING_JSON:
        if encoding == task_pb2.ENCODING_RAW:
            return data
        if encoding == task_pb2.ENCODING_ENCRYPTED:
            from duly.callbacks.codec import not_decrypted

            raise not_decrypted(data)
        if encoding == task_pb2.ENCODING_ATTACHMENT:
            raise PayloadError("is in an attachment that was not fetched")
    if not data:
        return None
    try:
        text = str(data, "utf-8")
        return _value_of(text) if MARK not in data else _decoder_of_attachments(origin).decode(text)
    except (ValueError, RecursionError) as error:
        # A JSONDecodeError's text gives the position only; a UnicodeDecodeError's would quote the bytes.
        reason = "not UTF-8" if isinstance(error, UnicodeError) else error
        raise PayloadError(f"not JSON: {reason}") from None


def _value_of(text: str) -> Any:
    """Decode JSON; `decode` itself looks for blanks around it by two regular expressions, which take as long as a small value."""
    try:
        value, end = _DECODER.scan_once(text, 0)  # type: ignore[attr-defined]  # it is not documented
    except StopIteration:
        return _DECODER.decode(text)  # which says what is wrong, or begins behind blanks
    return value if end == len(text) else _DECODER.decode(text)


def _decoder_of_attachments(said: Origin | OriginOf | None) -> json.JSONDecoder:
    origin = said() if callable(said) else said

    def read(found: dict[str, Any]) -> Any:
        return from_form(found[KEY], origin) if len(found) == 1 and KEY in found else found

    return json.JSONDecoder(parse_constant=_refuse_constant, object_hook=read)


def _unknown_to_json(value: object) -> Any:
    """Json's hook for what it does not know itself."""
    if isinstance(value, Attachment):
        return value.form()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _declared(value)
    if (dump := getattr(value, "model_dump", None)) is not None and not isinstance(value, type):
        return dump(mode="json")
    kind = type(value).__qualname__
    hint = "pass its isoformat()" if isinstance(value, date) else "turn it into str, int, list or dict first"
    raise EncodingError(f"JSON cannot carry a {kind}: {hint}")


def _declared(value: object) -> Any:
    """Turn what stands in a dataclass into JSON.

    A dataclass declares its fields' types, so a datetime, UUID or enum in it is read back as what it
    was; in a plain dict it would come back as a str, so there it is refused.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _declared(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.init
        }
    if isinstance(value, list | tuple):
        return [_declared(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _declared(item) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    return value.value if isinstance(value, Enum) else value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _to_json(value: object) -> str:
    if _C_ENCODER is None:
        return _ENCODER.encode(value)
    try:
        return "".join(_C_ENCODER(value, 0))
    except RecursionError:
        return _ENCODER.encode(value)  # which says so of a circle


# Built once: json.dumps and json.loads with options build a codec for each call.
_ENCODER = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_unknown_to_json
)
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
# What JSONEncoder builds for each value, without its search for circles; None on an interpreter that has no such module.
_C_ENCODER: Callable[[object, int], tuple[str, ...]] | None = (
    make_encoder(None, _unknown_to_json, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    if (make_encoder := getattr(json.encoder, "c_make_encoder", None)) is not None
    else None
)
