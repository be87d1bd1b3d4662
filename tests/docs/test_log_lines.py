"""What processes log: JSON objects with the ids of tasks, and nothing of payloads and results."""

import json
import os
import signal
from uuid import UUID

from tests.fixtures.host import Host, claimed, until

SECRET = "s3cret-of-a-payload"


async def test_an_executor_logs_json_with_task_ids_and_nothing_of_payloads_and_results(host: Host) -> None:
    executor = await host.ready(DULY_TELEMETRY_LOG_FORMAT="json", DULY_TELEMETRY_LOG_LEVEL="debug")
    echo = claimed("test.echo", {"secret": SECRET})
    unreadable = claimed("test.wait", SECRET)  # its callback wants an object
    waiting = claimed("test.wait", {**host.journal.payload(), "secret": SECRET})
    host.hand_out(echo, unreadable)
    await until(lambda: len(host.hsc.results) == 2)

    os.kill(await host.running(waiting), signal.SIGSEGV)

    await executor.says("callback process died")
    executor.kill(signal.SIGTERM)
    await executor.exit_code()
    lines = [json.loads(line) for line in executor.output.splitlines()]
    (died,) = (line for line in lines if line["event"] == "callback process died")
    assert SECRET in str(host.hsc.results)  # it came and went: the log would have had it
    assert SECRET not in executor.output
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert [each["task"] for each in died["suspects"]] == [str(UUID(bytes=waiting.claim.task_id))]
