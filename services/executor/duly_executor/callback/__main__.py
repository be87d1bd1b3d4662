"""A callback process: imports the application, says which lambdas it has, and runs what it is told to.

Started by the Executor only:
    python -P -m duly_executor.callback EXECUTOR_ID APPLICATION SOCKET_FD BOARD_FD PROCESS_NUMBER SLOTS LAST_WORDS_FD CGROUP

CGROUP is the folder of the control group to enter, or empty. No code of the lambda owner runs before the process has
closed the slot board, and keeps the other descriptors from programs that it starts.
"""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from duly.callbacks.loading import load_app
from duly.command_lambdas import control_groups
from duly.errors import AppImportError
from duly_core.host.slot_board import SlotWriter
from duly_core.process.parent import become_subreaper, die_with_parent
from duly_executor.callback import debugging, output
from duly_executor.callback.exit_recorder import ExitRecorder
from duly_executor.callback.frontend_calls import FrontendCalls
from duly_executor.callback.kept_output import OUTPUT_NOT_KEPT, KeptOutput
from duly_executor.callback.other_user import become_callback_user
from duly_executor.callback.report_sender import ReportSender
from duly_executor.callback.slots import Slots
from duly_executor.processes import frames
from duly_wire.v1 import callback_pb2


def main() -> None:
    """Run until the Executor closes the socket or dies."""
    _, application, link_fd, board_fd, process, slots, words_fd, cgroup = sys.argv[1:]
    _close_all_but(int(link_fd), int(board_fd), int(words_fd))
    for descriptor in (link_fd, words_fd):
        os.set_inheritable(int(descriptor), False)
    board = SlotWriter(int(board_fd), int(process), int(slots))
    os.close(int(board_fd))
    link = socket.socket(fileno=int(link_fd))
    if cgroup:  # first of all: nobody's code runs outside
        Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")
        control_groups.prepare(Path(cgroup), int(slots))
    else:
        become_subreaper()
    become_callback_user()
    die_with_parent(signal.SIGKILL)  # a change of the user would clear it
    output.set_up(os.environ.get("DULY_TELEMETRY_LOG_FORMAT", ""))
    try:
        debugging.listen(int(process))
        app = load_app(application)
    except (AppImportError, debugging.CannotDebugError) as error:
        _refuse(link, str(error))
    if not app.callbacks:
        _refuse(link, f"{application} declares no lambdas: use @app.callback(NAME)")
    report_sender = ReportSender(link)
    exit_recorder = ExitRecorder(int(words_fd))
    exit_recorder.listen()
    frontend_calls = FrontendCalls(report_sender)
    is_kept = os.environ.pop(OUTPUT_NOT_KEPT, None) is None  # nor do its own children see it
    kept_output = KeptOutput(report_sender) if is_kept else None
    runner = Slots(app, board, report_sender, exit_recorder, frontend_calls, kept_output)
    hello = callback_pb2.CallbackReport(hello=callback_pb2.CallbackHello(lambdas=app.lambdas()))
    link.sendall(frames.write(hello))
    send = partial(_or_die, report_sender.send_for_ever)
    threading.Thread(target=send, name="duly-outbox", daemon=True).start()
    if kept_output is not None:
        keep = partial(_or_die, kept_output.send_for_ever)
        threading.Thread(target=keep, name="duly-output", daemon=True).start()
    _or_die(partial(_obey, link, runner, frontend_calls))
    os._exit(0)  # callbacks may still run: nobody waits for them any more


_STANDARD_STREAMS = (0, 1, 2)


def _close_all_but(*ours: int) -> None:
    """Close what the worker inherited from its own parent: uvloop hands on all that is inheritable, and its copies of 0 to 2.

    What is open is listed: without `close_range(2)`, `os.closerange` would try each of two billion numbers.
    """
    for descriptor in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if descriptor not in (*_STANDARD_STREAMS, *ours):
            with suppress(OSError):  # that of the listing itself is closed already
                os.close(descriptor)


_REASON_LENGTH = 10_000


def _refuse(link: socket.socket, reason: str) -> NoReturn:
    link.sendall(frames.write(callback_pb2.CallbackReport(import_error=reason[:_REASON_LENGTH])))
    os._exit(os.EX_CONFIG)  # what the import began in threads is not waited for


def _or_die(work: Callable[[], None]) -> None:
    """End a process that no longer reads or reports: it would hold its tasks without end."""
    try:
        work()
    except BaseException:
        logging.getLogger("duly.callback").exception("the callback process cannot go on")
        os._exit(os.EX_SOFTWARE)


def _obey(link: socket.socket, slots: Slots, frontend_calls: FrontendCalls) -> None:
    with link.makefile("rb") as stream:
        while (order := frames.read(stream, callback_pb2.CallbackOrder)) is not None:
            for task_id in order.cancel:
                slots.cancel(task_id)
            if order.interrupt:
                slots.interrupt(order.interrupt)
            for answer in order.attachment_answers:
                frontend_calls.answer(answer)
            if order.recall:
                slots.recall()
            slots.start(order.tasks, order.start_before_boottime_ns)
            for batch in order.batches:
                if batch.tasks:
                    slots.start_batch(batch.tasks, order.start_before_boottime_ns)


if __name__ == "__main__":
    main()
