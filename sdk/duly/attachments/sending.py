"""Stores the attachments of a task before it is scheduled, and payloads that are too large for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from duly.attachments.attachment import Attachment, AttachmentsInsideError
from duly.attachments.client_service import ClientService, in_thread
from duly.attachments.encoded import Encoded
from duly.attachments.encoding import encode_whole, encode_with
from duly.attachments.upload import Upload, upload
from duly.callbacks.lambda_of import name_of
from duly.errors import AttachmentsOffError, InvalidTaskError, PayloadTooLargeError, UnknownLambdaError
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec
    from duly.tasks.new_task import NewTask
    from duly.transport.caller import Caller

_INPUT = task_pb2.ATTACHMENT_ROLE_INPUT


async def _encoded_payload(caller: Caller, new: NewTask, timeout: timedelta, *, whole: bool) -> Encoded:
    """Return the payload of a task with its attachments, which are stored then; `whole`: as an attachment of its own.

    Raises what uploading raises.
    """
    lambda_name = name_of(new.lambda_name)
    return await in_thread(
        caller, partial(_encoded, new.payload, lambda_name.partition("@")[0], caller.codec, whole), timeout
    )


def _encoded(
    payload: Any,
    lambda_name: str,
    codec: Codec | None,
    whole: bool,  # noqa: FBT001 (of a partial)
    service: ClientService,
) -> Encoded:
    def send(attachments: Sequence[Attachment]) -> list[Upload]:
        try:
            return upload(service, lambda_name, attachments, codec)
        except InvalidTaskError as error:
            if error.field == "lambda":  # it is the whole call that is refused, and not one item
                raise UnknownLambdaError(str(error)) from None
            raise

    encoded = encode_with(payload, _INPUT, send)
    return encode_whole(encoded, "payload", _INPUT, send) if whole else encoded


async def encoded_payloads(
    caller: Caller, tasks: Mapping[str, NewTask], timeout: timedelta
) -> dict[str, Encoded]:
    """Return the payloads of tasks, by what names them, with their attachments, which are stored then.

    Raises what uploading raises.
    """

    def encode_all(service: ClientService) -> dict[str, Encoded]:
        return {
            label: _encoded(
                new.payload, name_of(new.lambda_name).partition("@")[0], caller.codec, False, service
            )
            for label, new in tasks.items()
        }

    return await in_thread(caller, encode_all, timeout)


async def fields_of(caller: Caller, new: NewTask, timeout: timedelta) -> dict[str, Any]:
    """Return the fields of a task as it is sent, having stored the attachments that it has, or is.

    `timeout` is for each call that carries no part. Raises as `NewTask.to_fields`, and what uploading raises.
    """
    try:
        return new.to_fields(caller.codec)
    except PayloadTooLargeError as error:
        return await whole_fields_of(caller, new, error, timeout)
    except AttachmentsInsideError:
        encoded = await _encoded_payload(caller, new, timeout, whole=False)
    try:
        return new.to_fields(caller.codec, encoded)
    except PayloadTooLargeError as error:
        return await whole_fields_of(caller, new, error, timeout)


async def whole_fields_of(
    caller: Caller, new: NewTask, too_large: PayloadTooLargeError, timeout: timedelta
) -> dict[str, Any]:
    """Return the fields of a task whose payload is too large, as an attachment; raise `too_large` where there are none."""
    try:
        encoded = await _encoded_payload(caller, new, timeout, whole=True)
    except AttachmentsOffError:
        raise too_large from None
    return new.to_fields(caller.codec, encoded)
