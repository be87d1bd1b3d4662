"""The tokens under which a Controller claims: an Executor's prefix, and a number."""

from datetime import timedelta
from pathlib import Path

from duly_controller.claimer import Claimer
from duly_controller.message_acks import MessageAcks
from duly_controller.reference_buffer import ReferenceBuffer
from duly_core.config.timing import Timing
from duly_core.host.claim_journal import JournalContents, read
from duly_core.host.journal_folder import JournalFolder
from duly_core.lambdas.names import QueueKey
from duly_core.process.clock import seconds_since_boot
from duly_core.queues.none import NoQueue
from duly_core.queues.port import Received
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_core.tasks.claim_tokens import Tokens, new_prefix
from duly_wire.enums import Priority
from tests.fixtures.host import JOURNALS, Host, claimed
from tests.fixtures.scripted_hsc import ScriptedHsc
from tests.fixtures.waiting import until

QUEUE = QueueKey("mail", Priority.NORMAL)


async def test_all_claims_of_a_call_have_its_prefix_and_a_number_each(scripted_hsc: ScriptedHsc) -> None:
    channel = open_channel(scripted_hsc.address, RpcSettings())
    buffer = ReferenceBuffer(0)
    claimer = Claimer(
        hsc_stub(channel), buffer, MessageAcks(NoQueue()), Timing(profile="embedded"), timedelta(seconds=5)
    )
    prefix = new_prefix()
    tokens = Tokens(prefix)
    now = seconds_since_boot()
    buffer.add([Received(QUEUE, tuple(bytes([number]) * 16 for number in range(3)), "")], now)

    first = await claimer.claim(buffer.take({"mail"}, 2, 0), "executor", tokens)
    second = await claimer.claim(buffer.take({"mail"}, 2, 0), "executor", tokens)

    await channel.close()
    assert [task.claim.token for task in (*first.tasks, *second.tasks)] == [
        prefix + bytes([0, number]) for number in range(3)
    ]


def left_in(tmp_path: Path) -> JournalContents:
    """What the one Executor of the test has journaled; it must be dead."""
    folder = JournalFolder(tmp_path / JOURNALS)
    (name,) = folder.names()
    taken = folder.take(name)
    assert taken is not None
    assert taken.left is not None
    return taken.left


async def test_an_executor_journals_the_prefix_of_a_call_as_long_as_it_has_no_answer(
    host: Host, tmp_path: Path
) -> None:
    executor = await host.ready()

    executor.kill()
    await executor.exit_code()

    asked = [request.token_prefix for request in host.controller.asked]
    assert left_in(tmp_path).prefixes == asked


async def test_an_executor_journals_the_claims_of_an_answer_instead_of_its_prefix(
    host: Host, tmp_path: Path
) -> None:
    executor = await host.ready()
    (file,) = (tmp_path / JOURNALS).glob("*.claims")
    running, ended = host.stubborn(), claimed()
    host.hand_out(ended, running)
    await host.journal.started(running)
    await host.hsc.end_of(ended)
    with file.open("rb") as alive, file.with_suffix(".board").open("rb") as board:
        await until(  # when the answer to its result has come
            lambda: len(read(alive.fileno(), board.fileno()).claims) == 1
        )

    executor.kill()
    await executor.exit_code()

    left = left_in(tmp_path)
    assert left.claims == {running.claim.task_id: running.claim.token}
    assert [entry.task_id for entry in left.board.running()] == [running.claim.task_id]
    assert host.controller.asked[0].token_prefix not in left.prefixes
