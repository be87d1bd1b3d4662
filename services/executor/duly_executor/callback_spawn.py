"""Starts the interpreter of a callback process: its arguments, its descriptors, and the environment that callbacks see."""

import asyncio
import os
import socket
import sys
from asyncio.subprocess import Process

from duly_core.process import PARENT_PID
from duly_core.slot_board import SlotBoard
from duly_executor.callback.other_user import CALLBACK_USER
from duly_executor.exit_record import ExitRecord
from duly_executor.process_tree import ProcessTree

# What a callback process has no business with: it runs the lambda owner's code, which may use gRPC and fork
# as it likes.
_WITHHELD = ("DULY_STORE_", "DULY_QUEUE_", "GRPC_ENABLE_FORK_SUPPORT", "GRPC_EXPERIMENTS")


async def spawn(
    number: int,
    executor_id: str,
    application: str,
    link: socket.socket,
    board: SlotBoard,
    tree: ProcessTree,
    exit_record: ExitRecord,
    user: str,
) -> Process:
    """Start the interpreter of a callback process, as `user` if one is named, with the link to its Executor.

    Raises:
        OSError: it cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_WITHHELD)}
    if user:
        environment[CALLBACK_USER] = user
    return await asyncio.create_subprocess_exec(
        sys.executable,
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
        env=environment | {PARENT_PID: str(os.getpid()), "DULY_EXECUTOR_ID": executor_id},
        start_new_session=True,
    )
