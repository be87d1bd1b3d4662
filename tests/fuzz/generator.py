"""Wild requests: messages made from their descriptors, and bytes that are hardly messages at all.

What is known (ids, tokens, lambdas) is mixed in, or no wild value would ever get past the first check.
"""

import base64
import random
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from duly_core.tasks.task import TOKEN_PREFIX_BYTES

_F = FieldDescriptor
_INTEGERS = [0, 1, 2, 3, 5, 10, 100, 1000, 1001, -1, -(2**31), 2**31 - 1, 999_999_999, 1_000_000_000]
_LONG_INTEGERS = [*_INTEGERS, 2**63 - 1, -(2**63), 253402300799, 253402300800, -62135596801, 315576000000]
_FLOATS = [0.0, 1.0, 0.5, -1.0, 2.0, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, 1e-45, -0.0]
_TEXTS = [
    "",
    "\x00",
    "a" * 127,
    "a" * 129,
    "a" * 300,
    "A",
    "mail.send\x00",
    "\u202e",
    "\U0010ffff" * 3,
    "é" * 600,
    "..",
    " ",
]
_NEEDED = {
    "claim",
    "lambda",
    "name",
    "task_id",
    "token",
    "outcome",
    "retry_after",
    "payload",
    "holder",
    "executor_id",
    "lambdas",
    "max_tasks",
    "token_prefix",
}
"""Fields without which a request is refused at once: nearly always there."""
_BYTES = [
    b"",
    b"\x00",
    b"{}",
    b"{",
    b"null",
    b"\xff" * 16,
    b"\x00" * 16,
    b"a" * 15,
    b"a" * 17,
    b"[" * 2000,
    b"x" * 300_000,
]


_ELSEWHERE = 0.3
"""Of the claims so many name another cell than the one that gave them."""
_PLACES = {"page_token", "after"}
"""Where a list, or a change page by page, goes on."""

_TIME_TABLES = {
    "cron": ["@daily", "*/5 * * * *", "0 0 29 2 1#5", "0 0 30 2 *", "0 0 L * *"],
    "zone": ["", "UTC", "Europe/Berlin", "Australia/Lord_Howe"],
}


@dataclass
class Known:
    """What is really there, as far as the fuzzer was told."""

    lambdas: list[str] = field(default_factory=list)
    task_ids: list[bytes] = field(default_factory=list)
    claims: list[tuple[bytes, bytes, str]] = field(default_factory=list)
    """Task ids, the tokens under which they are, or were, held, and the cells where."""
    cells: list[str] = field(default_factory=list)
    """What a claim may name in place of its cell."""
    page_tokens: list[str] = field(default_factory=list)
    """Of any list, and positions of changes page by page."""
    prefixes: list[bytes] = field(default_factory=list)
    """Of tokens that ClaimWork gave."""
    texts: list[str] = field(default_factory=list)
    """Ids in text form, page tokens, executor ids."""
    likely: dict[str, list[Any]] = field(default_factory=dict)
    """Values of fields (by their full names) without which nothing deep is reached."""
    never: dict[str, list[Any]] = field(default_factory=dict)
    """Fields (by their full names) that may have these values only: a wild pid is somebody else's process."""


class Generator:
    """Makes requests from one seed."""

    def __init__(self, seed: int, known: Known) -> None:
        self.random = random.Random(seed)  # noqa: S311 (to be repeated, not to be kept secret)
        self.known = known
        self.wildness = 0.0

    def message(self, kind: type[Message], depth: int = 0) -> Message:
        """A message of this kind; each field is absent, sensible, or wild."""
        if depth == 0:
            self.wildness = self.random.choice([0.0, 0.02, 0.1, 0.4])
        message = kind()
        if kind.DESCRIPTOR.full_name == "duly.v1.Claim" and self.known.claims and not self._goes_wild():
            message.task_id, message.token, message.cell = self.random.choice(self.known.claims)
            if self.known.cells and self.random.random() < _ELSEWHERE:
                message.cell = self.random.choice(self.known.cells)
            return message
        for descriptor in kind.DESCRIPTOR.fields:
            absent = 0.5 if descriptor.message_type or descriptor.containing_oneof else 0.1
            if self.random.random() < absent and descriptor.name not in _NEEDED:
                continue
            if descriptor.full_name in self.known.never:
                setattr(message, descriptor.name, self.random.choice(self.known.never[descriptor.full_name]))
            elif descriptor.full_name in self.known.likely and not self._goes_wild():
                setattr(message, descriptor.name, self.random.choice(self.known.likely[descriptor.full_name]))
            elif descriptor.is_repeated:
                self._fill(getattr(message, descriptor.name), descriptor, depth)
            elif descriptor.type == _F.TYPE_MESSAGE:
                getattr(message, descriptor.name).CopyFrom(self._inner(descriptor, depth))
            else:
                setattr(message, descriptor.name, self._value(descriptor))
        return message

    def _fill(self, values: Any, descriptor: FieldDescriptor, depth: int) -> None:
        count = self.random.choice([0, 1, 1, 1, 2, 3, 3, 5, 40] if depth == 0 else [0, 1, 1, 2])
        for _ in range(count):
            if descriptor.type == _F.TYPE_MESSAGE and descriptor.message_type.GetOptions().map_entry:
                entry: Any = self._inner(descriptor, depth)
                if descriptor.message_type.fields_by_name["value"].type == _F.TYPE_MESSAGE:
                    values.get_or_create(entry.key).CopyFrom(entry.value)
                else:
                    values[entry.key] = entry.value
            elif descriptor.type == _F.TYPE_MESSAGE:
                values.add().CopyFrom(self._inner(descriptor, depth))
            else:
                values.append(self._value(descriptor))

    def _inner(self, descriptor: FieldDescriptor, depth: int) -> Message:
        return self.message(GetMessageClass(descriptor.message_type), depth + 1)

    def _value(self, descriptor: FieldDescriptor) -> Any:  # noqa: PLR0911 (one for each type)
        pick = self.random.choice
        if not self._goes_wild():
            return self._sensible(descriptor)
        match descriptor.type:
            case _F.TYPE_BOOL:
                return pick([True, False])
            case _F.TYPE_ENUM:
                sensible = [value.number for value in descriptor.enum_type.values]
                return pick([*sensible, *sensible, 99, -1, 2**31 - 1])
            case _F.TYPE_DOUBLE | _F.TYPE_FLOAT:
                return pick([*_FLOATS, self.random.random()])
            case _F.TYPE_INT32 | _F.TYPE_SINT32 | _F.TYPE_SFIXED32:
                return pick([*_INTEGERS, self.random.randrange(10)])
            case _F.TYPE_INT64 | _F.TYPE_SINT64 | _F.TYPE_SFIXED64:
                return pick([*_LONG_INTEGERS, self.random.randrange(100)])
            case _F.TYPE_UINT32 | _F.TYPE_FIXED32 | _F.TYPE_UINT64 | _F.TYPE_FIXED64:
                return pick([0, 1, 7, 2**31, 2**32 - 1])
            case _F.TYPE_BYTES:
                return self._bytes()
            case _:
                return pick(_TEXTS)

    def _goes_wild(self) -> bool:
        return self.random.random() < self.wildness

    def _sensible(self, descriptor: FieldDescriptor) -> Any:  # noqa: PLR0911 (one for each type)
        pick, name = self.random.choice, descriptor.name
        match descriptor.type:
            case _F.TYPE_BOOL:
                return pick([True, False])
            case _F.TYPE_ENUM:
                return pick([value.number for value in descriptor.enum_type.values if value.number])
            case _F.TYPE_DOUBLE | _F.TYPE_FLOAT:
                return 2.0 if name == "factor" else self.random.random()
            case _F.TYPE_BYTES if name.endswith(("task_id", "task_ids")):
                return pick(self.known.task_ids or [self.random.randbytes(16)])
            case _F.TYPE_BYTES if name.startswith("token_prefix"):
                return pick([*self.known.prefixes, self.random.randbytes(TOKEN_PREFIX_BYTES)])
            case _F.TYPE_BYTES:
                return self.random.randbytes(16) if name == "token" else b"{}"
            case _F.TYPE_STRING if name in ("lambda", "lambdas", "name", "names"):
                return pick(self.known.lambdas)
            case _F.TYPE_STRING if name in _TIME_TABLES:
                return pick(_TIME_TABLES[name])
            case _F.TYPE_STRING if name == "task_ids":
                return pick(self.known.texts)
            case _F.TYPE_STRING if name in _PLACES and self.known.page_tokens and self.random.random() < 0.5:
                token = pick(self.known.page_tokens)
                return token if self.random.random() < 0.7 else self.mutate_inside(token)
            case _F.TYPE_STRING:
                return "" if name in ("page_token", "task_id", "collection") else self.known.texts[0]
            case _:
                return 0 if name == "nanos" else self.random.randrange(1, 10)

    def _bytes(self) -> bytes:
        return self.random.choice(
            [*_BYTES, self.random.randbytes(16), self.random.randbytes(self.random.randrange(64))]
        )

    def mutate(self, data: bytes) -> bytes:
        """Bytes that were a message: cut, flipped, repeated, with more after them, or something else altogether."""
        chance = self.random
        cut = chance.randrange(len(data) + 1)
        match chance.randrange(9):
            case 0:
                return data[:cut]
            case 1 | 2:
                flipped = bytearray(data)
                for _ in range(chance.randrange(1, 5) if data else 0):
                    flipped[chance.randrange(len(flipped))] = chance.randrange(256)
                return bytes(flipped)
            case 3:
                return data[:cut] + chance.randbytes(chance.randrange(40)) + data[cut:]
            case 4:
                return data[:cut] + b"\xff" * chance.choice([1, 9, 10, 11, 5000, 200_000]) + data[cut:]
            case 5:
                return data + data[:cut]
            case 6:
                # a field with a length that is far from true
                return bytes([chance.randrange(1, 16) << 3 | 2]) + b"\xff\xff\xff\xff\x07" + data
            case 7:
                # fields that nobody knows, nested deeply
                return data + b"\xfb\x7f" * chance.choice([1, 50, 5000])
            case _:
                return chance.randbytes(chance.choice([0, 1, 2, 10, 100, 10_000]))

    def mutate_inside(self, token: str) -> str:
        """A token `mark:base64` of which the text changed, or the bytes that it stands for."""
        mark, _, said = token.partition(":")
        if self.random.random() < 0.5 or not said:
            return self.mutate(token.encode()).decode(errors="replace")
        return f"{mark}:{base64.urlsafe_b64encode(self.mutate(base64.urlsafe_b64decode(said))).decode()}"
