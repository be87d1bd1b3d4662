"""boto3's SQS client for an event loop: calls in threads, every wait bounded, every failure a QueueUnavailableError."""

import asyncio
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from prometheus_client import Counter as MetricCounter

from duly_core.errors import QueueUnavailableError, SettingsError
from duly_core.queues.settings import QueueSettings
from duly_core.queues.sqs.boto import POLLS, QUICK_CALLS, boto_clients
from duly_core.queues.sqs.threads import AbandonedError, DaemonThreads

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

_calls = MetricCounter(
    "duly_sqs_calls_total", "Calls of SQS, by operation; retries are not counted.", ["operation"]
)

_QUICK_LIMIT: Final = 10.0
"""How long a call that does not wait for messages may take, its retries and its turn included, in seconds."""

_NO_QUEUE: Final = frozenset({"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"})
_OTHER_ATTRIBUTES: Final = frozenset({"QueueAlreadyExists", "QueueNameExists"})


class NoQueueError(QueueUnavailableError):
    """The queue does not exist, or not any more."""


class OtherAttributesError(QueueUnavailableError):
    """The queue exists with other attributes than those it was to be made with."""


class ClosedError(QueueUnavailableError):
    """`close` was called before, or while the queue was asked."""

    def __init__(self) -> None:
        super().__init__("the queue was closed")


class SqsClient:
    """One installation's way to SQS; safe to share between tasks of one loop."""

    def __init__(self, quick: "SQSClient", poll: "SQSClient") -> None:
        self.calls: Counter[str] = Counter()
        """Calls made so far, by the operation's name; retries are not counted."""
        self.boto: Final = quick
        self._clients: Final = {False: quick, True: poll}
        self._threads: Final = {
            False: DaemonThreads("duly-sqs", QUICK_CALLS),
            True: DaemonThreads("duly-sqs-poll", POLLS),
        }

    @classmethod
    async def open(cls, settings: QueueSettings) -> "SqsClient":
        """Load boto3's model of SQS and look for credentials; nothing is called yet.

        Raises:
            SettingsError: endpoint or region are unusable.
        """
        threads = DaemonThreads("duly-sqs-open", 1)
        try:
            return await threads.run(lambda: cls(*boto_clients(settings)))
        except (BotoCoreError, ValueError) as error:
            raise SettingsError(f"queue.endpoint_url or queue.region is unusable: {error}") from error
        finally:
            threads.stop()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of boto3's client that answers at once.

        Raises:
            NoQueueError: the queue named in `parameters` does not exist.
            QueueUnavailableError: SQS did not answer, or refused.
        """
        return await self._call(method, parameters, limit=_QUICK_LIMIT, polls=False)

    async def poll(self, **parameters: Any) -> dict[str, Any]:
        """Receive messages; may take `WaitTimeSeconds`.

        Raises:
            ClosedError: the client was closed while it waited.
            NoQueueError: the queue does not exist.
            QueueUnavailableError: SQS did not answer, or refused.
        """
        limit = parameters["WaitTimeSeconds"] + _QUICK_LIMIT
        return await self._call("receive_message", parameters, limit=limit, polls=True)

    def close(self) -> None:
        """Let go of connections and of calls under way, at once; idempotent."""
        for polls, threads in self._threads.items():
            threads.stop()
            self._clients[polls].close()

    async def _call(
        self, method: str, parameters: dict[str, Any], *, limit: float, polls: bool
    ) -> dict[str, Any]:
        client = self._clients[polls]
        operation = client.meta.method_to_api_mapping[method]
        self.calls[operation] += 1
        _calls.labels(operation).inc()
        call = functools.partial(getattr(client, method), **parameters)
        try:
            async with asyncio.timeout(limit):
                return cast("dict[str, Any]", await self._threads[polls].run(call))
        except (BotoCoreError, ClientError) as error:
            raise _unavailable(operation, error) from error
        except AbandonedError as error:
            raise ClosedError from error
        except TimeoutError as error:
            raise QueueUnavailableError(f"SQS did not answer {operation} within {limit:.0f} s") from error


def _unavailable(operation: str, error: BotoCoreError | ClientError) -> QueueUnavailableError:
    """Say in an operator's words why SQS did not do what it was asked."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        kind = NoQueueError if code in _NO_QUEUE else QueueUnavailableError
        kind = OtherAttributesError if code in _OTHER_ATTRIBUTES else kind
        return kind(f"SQS refused {operation}: {error}")
    if isinstance(error, NoCredentialsError):
        return QueueUnavailableError(
            "no AWS credentials were found: give this process a role or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    return QueueUnavailableError(f"SQS did not answer {operation}: {error}")
