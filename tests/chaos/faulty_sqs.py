"""An SQS that misbehaves: it passes calls on to moto's server, and does by chance or by script what SQS may do.

    with FaultySqs(moto.endpoint_url, seed=7) as sqs:     # its address is sqs.endpoint_url
        sqs.script("ReceiveMessage", "lose_reply")        # the next receive, once
        sqs.chances = Chances(duplicate=0.05)             # from now on, by chance; any thread may
        with sqs.outage(): ...

What happened is counted in `sqs.done`. By chance the same calls in the same order meet the same fate for the same seed.
"""

import http.client
import json
import random
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from duly_local.ports import LOOPBACK

Fault = Literal[
    "duplicate", "reorder", "delay", "lose_request", "lose_reply", "resurrect", "fail_entries", "refuse", "throttle", "hang"
]  # fmt: skip
"""
duplicate: what is received comes again, as a message of its own
reorder: what is received in one answer comes in another order
delay: what is sent can be received only after a second or two
lose_request, lose_reply: the connection breaks before, or after, the call was carried out; a lost reply of a receive
    leaves messages that are hidden and that nobody has
resurrect: what is deleted comes back
fail_entries: of a batch, some entries (one at least) are refused
refuse, throttle: the call is answered with a server's error, or with one that asks to be slower
hang: there is no answer, until `let_go` or the end
"""

_SENDS = frozenset({"SendMessageBatch", "SendMessage"})
_DELETES = frozenset({"DeleteMessageBatch", "DeleteMessage"})
_BATCHES = frozenset({"SendMessageBatch", "DeleteMessageBatch", "ChangeMessageVisibilityBatch"})
_ANYWHERE = frozenset({"lose_request", "lose_reply", "refuse", "throttle", "hang"})
_WHERE: dict[str, frozenset[str]] = {
    "duplicate": frozenset({"ReceiveMessage"}),
    "reorder": frozenset({"ReceiveMessage"}),
    "delay": _SENDS,
    "resurrect": _DELETES,
    "fail_entries": _BATCHES,
}
_PREFIX = "AmazonSQS."
_MOST_REMEMBERED = 10_000
_LONGEST_DELAY_S = 2
_MOTO_WITHIN_S = 40
_ERRORS: dict[str, tuple[int, str]] = {
    "refuse": (500, "com.amazonaws.sqs#InternalError"),
    "throttle": (403, "com.amazonaws.sqs#RequestThrottled"),
    "outage": (503, "com.amazonaws.sqs#ServiceUnavailable"),
}


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each fault is, for each call at which it can happen; 0 to 1."""

    duplicate: float = 0
    reorder: float = 0
    delay: float = 0
    lose_request: float = 0
    lose_reply: float = 0
    resurrect: float = 0
    fail_entries: float = 0
    refuse: float = 0
    throttle: float = 0
    hang: float = 0


class FaultySqs:
    """Between boto3 and moto's server. One lock around all that is random, so that a seed means something."""

    def __init__(
        self,
        target_url: str,
        seed: int = 0,
        chances: Chances | None = None,
        port: int = 0,
        host: str = LOOPBACK,
    ) -> None:
        """Args: `target_url` is moto's; `port` 0 is any; `host` is where it listens."""
        self.chances = chances or Chances()
        self.done: Counter[str] = Counter()
        """How often each fault happened."""
        target = urlsplit(target_url)
        self._target = (target.hostname or "127.0.0.1", target.port or 80)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._script: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._bodies: dict[str, str] = {}
        """What was received, by its receipt: to be resurrected."""
        self._is_away = threading.Event()
        self._goes_on = threading.Event()
        self._server = _Server((host, port), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="faulty-sqs", daemon=True)

    @property
    def endpoint_url(self) -> str:
        """Where it listens, from the start on."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End; what hangs is let go."""
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- what is to happen -------------------------------------------------------------------------------

    def script(self, operation: str, fault: Fault, times: int = 1) -> None:
        """Have this happen to the next calls of an operation, such as "ReceiveMessage"."""
        if fault not in _ANYWHERE and operation not in _WHERE[fault]:
            raise ValueError(f"{fault} cannot happen to {operation}")
        with self._lock:
            self._script[operation].extend([fault] * times)

    def begin_outage(self) -> None:
        """Answer everything with 503."""
        self._is_away.set()

    def end_outage(self) -> None:
        """Be there again."""
        self._is_away.clear()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Be away meanwhile."""
        self.begin_outage()
        try:
            yield
        finally:
            self.end_outage()

    def let_go(self) -> None:
        """End what hangs now, each without an answer."""
        self._goes_on.set()

    def serve(
        self, operation: str, request: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, bytes] | None:
        """Answer one call; None: the connection breaks."""
        if self._is_away.is_set():
            self._count("outage")
            return _error("outage")
        faults = self._faults_of(operation)
        for fault in faults:
            self._count(fault)
        if "hang" in faults:
            with self._lock:
                goes_on = self._goes_on = threading.Event() if self._goes_on.is_set() else self._goes_on
            goes_on.wait(_MOTO_WITHIN_S)
            return None
        if "lose_request" in faults:
            return None
        for fault in ("refuse", "throttle"):
            if fault in faults:
                return _error(fault)
        status, answer = self._carry_out(operation, request, headers, faults)
        return None if "lose_reply" in faults else (status, answer)

    def _faults_of(self, operation: str) -> set[str]:
        with self._lock:
            if self._script[operation]:
                return {self._script[operation].popleft()}
            chances = self.chances
            possible = [
                each.name for each in fields(chances) if operation in _WHERE.get(each.name, {operation})
            ]
            return {name for name in possible if self._random.random() < getattr(chances, name)}

    def _count(self, fault: str) -> None:
        with self._lock:
            self.done[fault] += 1

    def _carry_out(
        self, operation: str, request: dict[str, Any], headers: dict[str, str], faults: set[str]
    ) -> tuple[int, bytes]:
        failed: list[dict[str, Any]] = []
        if "fail_entries" in faults:
            failed = self._take_out_some(request)
            if not request["Entries"]:
                return 200, json.dumps({"Successful": [], "Failed": failed}).encode()
        if "delay" in faults:
            for entry in request.get("Entries", [request]):
                with self._lock:
                    entry["DelaySeconds"] = self._random.randint(1, _LONGEST_DELAY_S)
        status, answer = self._ask(operation, request, headers)
        if status != http.client.OK:
            return status, answer
        told = json.loads(answer or b"{}")
        if operation == "ReceiveMessage":
            self._received(request, told, headers, faults)
        if "resurrect" in faults:
            self._resurrect(request, headers)
        if failed:
            told["Failed"] = told.get("Failed", []) + failed
        return status, json.dumps(told).encode()

    def _take_out_some(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Refuse a part of a batch: what is left of it goes on."""
        entries = request["Entries"]
        with self._lock:
            chosen = {
                entry["Id"] for entry in self._random.sample(entries, self._random.randint(1, len(entries)))
            }
        request["Entries"] = [entry for entry in entries if entry["Id"] not in chosen]
        return [
            {"Id": entry["Id"], "Code": "InternalError", "SenderFault": False, "Message": "faulty"}
            for entry in entries
            if entry["Id"] in chosen
        ]

    def _received(
        self, request: dict[str, Any], told: dict[str, Any], headers: dict[str, str], faults: set[str]
    ) -> None:
        messages = told.get("Messages", [])
        with self._lock:
            self._bodies.update((message["ReceiptHandle"], message["Body"]) for message in messages)
            for oldest in list(self._bodies)[: max(0, len(self._bodies) - _MOST_REMEMBERED)]:
                del self._bodies[oldest]
            if "reorder" in faults:
                self._random.shuffle(messages)
        if "duplicate" in faults:
            for message in messages:
                self._send(request["QueueUrl"], message["Body"], headers)

    def _resurrect(self, request: dict[str, Any], headers: dict[str, str]) -> None:
        for entry in request.get("Entries", [request]):
            with self._lock:
                body = self._bodies.get(entry["ReceiptHandle"])
            if body is not None:
                self._send(request["QueueUrl"], body, headers)

    def _send(self, queue_url: str, body: str, headers: dict[str, str]) -> None:
        self._ask("SendMessage", {"QueueUrl": queue_url, "MessageBody": body}, headers)

    def _ask(self, operation: str, request: dict[str, Any], headers: dict[str, str]) -> tuple[int, bytes]:
        """Ask moto. It is told our own address, and so names queues by it: all calls come this way."""
        connection = http.client.HTTPConnection(*self._target, timeout=_MOTO_WITHIN_S)
        try:
            body = json.dumps(request)
            connection.request("POST", "/", body, {**headers, "X-Amz-Target": f"{_PREFIX}{operation}"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return _error("outage")
        finally:
            connection.close()


def _error(kind: str) -> tuple[int, bytes]:
    return _ERRORS[kind][0], json.dumps({"__type": _ERRORS[kind][1], "message": f"faulty: {kind}"}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers break off, for they are killed and cut on purpose: nothing to say."""


def _handler_of(sqs: FaultySqs) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            operation = self.headers["X-Amz-Target"].removeprefix(_PREFIX)
            kept = {
                name: self.headers[name]
                for name in ("Host", "Authorization", "Content-Type")
                if self.headers[name]
            }
            answer = sqs.serve(operation, json.loads(body), kept)
            if answer is None:
                self.close_connection = True
                return
            status, text = answer
            with suppress(OSError):  # the caller has gone away
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
