"""The page behind an address of one use: what is asked, and two buttons. It needs no login: the token is the right."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from duly_console.guard import Guard
from duly_console.page import render
from duly_wire.v1 import event_addresses_pb2, task_pb2

_MOST_BYTES = 64 * 1024
_LONGEST_TOKEN = 128
_AT_ONCE = 32
"""Uses of addresses at a time: others are told to come again."""
_FORM = "application/x-www-form-urlencoded"
_VALUES = {"approve": b"true", "deny": b"false"}
_HEADERS = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex"}
"""The address is a secret: it must not go on with a link, or into an index."""

_OPEN = event_addresses_pb2.EVENT_ADDRESS_STATE_OPEN
_SAID = {
    event_addresses_pb2.EVENT_ADDRESS_STATE_USED: (410, "This address was used before. Nothing was changed."),
    event_addresses_pb2.EVENT_ADDRESS_STATE_OVER: (
        410,
        "The time for this answer is over. Nothing was changed.",
    ),
}
_UNKNOWN = 404, "There is no such address. Nothing was changed."
_BUSY = 503, "Too many answers come at this moment. Try again in a few seconds. Nothing was changed."
_CODES = {
    task_pb2.ERROR_CODE_INVALID_ARGUMENT: 400,
    task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE: 413,
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED: 409,
}


class EventAddressPages:
    """Looks at addresses, and uses them. To look changes nothing: programs that scan mail follow links."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._under_way = 0

    async def show(self, request: Request) -> Response:
        """Show what is asked."""
        return await self._within(request, self._show)

    async def use(self, request: Request) -> Response:
        """Send the event: a button of the page, or JSON of a program."""
        # before it takes a place: a stranger may let it trickle in
        body = bytearray()
        try:
            async for part in request.stream():
                body += part
                if len(body) > _MOST_BYTES:
                    return self._told(
                        request,
                        413,
                        f"The answer must have at most {_MOST_BYTES:,} bytes. Nothing was changed.",
                    )
        except ClientDisconnect:
            return self._told(request, 400, "The answer did not arrive completely. Nothing was changed.")
        return await self._within(request, lambda asked: self._use(asked, bytes(body)))

    async def _within(self, request: Request, make: Callable[[Request], Awaitable[Response]]) -> Response:
        if self._under_way >= _AT_ONCE:
            return self._told(request, *_BUSY)
        self._under_way += 1
        try:
            return await make(request)
        finally:
            self._under_way -= 1

    async def _show(self, request: Request) -> Response:
        token = request.path_params["token"]
        if not _may_be_token(token):
            return self._told(request, *_UNKNOWN)
        calls = self._guard.calls("")
        asked = event_addresses_pb2.GetEventAddressRequest(token=token)
        found = await calls(calls.stubs.event_addresses.GetEventAddress, asked)
        if found.state != _OPEN:
            return self._told(request, *_SAID.get(found.state, _UNKNOWN))
        return self._page(200, title=found.title, expires_at=found.expires_at, message="")

    async def _use(self, request: Request, body: bytes) -> Response:
        token = request.path_params["token"]
        if not _may_be_token(token):
            return self._told(request, *_UNKNOWN)
        value = _value(request, body)
        if value is None:
            return self._told(request, 400, "Send JSON, or one of the buttons. Nothing was changed.")
        calls = self._guard.calls("")
        asked = event_addresses_pb2.UseEventAddressRequest(token=token, value=value)
        used = await calls(calls.stubs.event_addresses.UseEventAddress, asked)
        if used.HasField("error"):
            status = _CODES.get(used.error.code, 409)
            return self._told(
                request, status, f"{used.error.field}: {used.error.message}. Nothing was changed."
            )
        if used.state != _OPEN:
            return self._told(request, *_SAID.get(used.state, _UNKNOWN))
        return self._told(request, 200, "Thank you: your answer was sent.")

    def _told(self, request: Request, status: int, message: str) -> Response:
        headers = _HEADERS | ({"retry-after": "5"} if status == _BUSY[0] else {})
        if request.method == "POST" and not _is_form(request):
            return JSONResponse({"message": message}, status, headers)
        return self._page(status, title="", message=message, extra=headers)

    def _page(self, status: int, extra: dict[str, str] | None = None, **values: object) -> Response:
        text = render(self._guard.templates, "event_address.html", None, **values)
        return HTMLResponse(text, status, _HEADERS | (extra or {}))


def _may_be_token(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_TOKEN and text.isascii() and text.isprintable()


def _is_form(request: Request) -> bool:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM


def _value(request: Request, body: bytes) -> bytes | None:
    """Return the value of an answer, as JSON; None: it is none."""
    if not _is_form(request):
        return body or None
    try:
        answers = parse_qs(body.decode(), max_num_fields=10).get("answer", [])
    except ValueError:
        return None
    return _VALUES.get(answers[0]) if len(answers) == 1 else None
