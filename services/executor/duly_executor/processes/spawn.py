"""Starts the interpreter of a callback process: its arguments, its descriptors, and the environment that callbacks see."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping

from duly_core.host.slot_board import SlotBoard
from duly_core.process.parent import PARENT_PID
from duly_executor.callback.debugging import DEBUG_PORT
from duly_executor.callback.other_user import CALLBACK_USER
from duly_executor.containment.process_group import ProcessTree
from duly_executor.processes.exit_record import ExitRecord
from duly_executor.processes.output_relay import output_for_callbacks

_DEBUGGABLE = ("-X", "frozen_modules=off")
"""Options of the interpreter without which a debugger warns that it may miss breakpoints."""


async def spawn(
    number: int,
    executor_id: str,
    application: str,
    link: socket.socket,
    board: SlotBoard,
    tree: ProcessTree,
    exit_record: ExitRecord,
    user: str,
    variables: Mapping[str, str],
) -> Process:
    """Start the interpreter of a callback process, as `user` if one is named, with the link to its Executor.

    `variables` are what callbacks see of the environment.

    Raises:
        OSError: it cannot be started.
    """
    ours = {PARENT_PID: str(os.getpid()), "DULY_EXECUTOR_ID": executor_id} | (
        {CALLBACK_USER: user} if user else {}
    )
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *(_DEBUGGABLE if DEBUG_PORT in variables else ()),
        "-P",  # what lies in the working folder is not imported before the process is the callbacks' user
        "-m",
        "duly_executor.callback",
        executor_id,
        application,
        str(link.fileno()),
        str(board.descriptor),
        str(number),
        str(board.slots),
        str(exit_record.descriptor),
        tree.folder,
        pass_fds=[link.fileno(), board.descriptor, exit_record.descriptor],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output_for_callbacks(1),
        stderr=output_for_callbacks(2),
        env={**variables, **ours},
        start_new_session=True,
    )
