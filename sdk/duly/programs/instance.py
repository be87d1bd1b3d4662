"""One running program: one task at a time goes in, its messages come out, and its end is noticed.

Everything happens on the loop on which it was started, but for its stderr: a thread reads that, so that a log that nobody
reads fast enough holds up nobody but the program that writes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from duly.callbacks.outcomes import Cancelled, Crashed, RetriableFailure
from duly.errors import CheckpointTooLargeError, EncodingError
from duly.programs import messages
from duly.programs.messages import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duly.context import TaskContext
    from duly.programs.messages import Form

_log = logging.getLogger("duly.programs")

_LAST_WORDS = 0.2
"""Seconds: an answer that was written before the end is read within this time, even if a child keeps the pipe open."""
_LOOK_AGAIN = 0.002
"""Seconds between two looks whether a log was read."""
_AFTER_CLOSING = 1.0
"""Seconds that a program may live on after it closed its stdin or stdout."""
_AFTER_SIGTERM = 0.25
"""Seconds that an interrupted program gets for itself; an Executor waits for twice as long (executor.interrupt_grace)."""
_REMEMBERED = 64
"""Tasks of an instance whose ids are known still, to tell a second answer from one for an unknown task."""
_LONGEST_LOG_LINE = 64 * 1024
_REST = 4
"""A program whose output takes time to read is not read for so many times as long: others share the process."""
_SHORTEST_REST = 0.004
"""Seconds; what takes less than a part of that is no flood."""


_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl


def _die_with_parent() -> None:
    """Have the kernel kill the program when the callback process has died: the thread of its loop lives as long as it does."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class StartError(Exception):
    """A program cannot be started, or ended before it was ready. No task has to do with it."""


class OutOfStepError(Exception):
    """A program that had run other tasks ended, or broke the protocol, before it said anything of this one.

    The task is not to blame. Whatever the program began of it has ended.
    """


class Instance(asyncio.SubprocessProtocol):
    """One running program."""

    def __init__(self, form: Form, on_end: Callable[[Instance], None]) -> None:
        self._form = form
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._ready = self._loop.create_future()
        self._answer: asyncio.Future[messages.Ended] | None = None
        self._context: TaskContext | None = None
        self._heard = False
        """Whether it said anything of the current task."""
        self._past: deque[str] = deque(maxlen=_REMEMBERED)
        self._speaker = contextvars.copy_context()
        self._log_pipe: select.poll | None = None
        self._relaying = False
        self._log_lock = threading.Lock()
        self._half_line = b""
        """The last line of its stderr, if it has no end yet. Both threads write it, with the lock."""
        self._ended = asyncio.Event()
        self._gone = asyncio.Event()
        self._broken = False
        self._stdout_ended = False
        self._exit_code: int | None = None
        self.retired = ""
        """Why it gets no more tasks; empty: it may."""

    # ---- start and end ---------------------------------------------------------------------------------

    async def start(self, argv: Sequence[str], ready_within: float) -> None:
        """Start the program, and wait until it says that it is ready.

        Raises:
            StartError: it does not come to that.
        """
        try:
            await self._spawn(argv)
            async with asyncio.timeout(ready_within):
                await self._ready
        except TimeoutError:
            self.kill("it was not ready in time")
            raise StartError(f"{argv[0]} did not say that it is ready within {ready_within:g} s") from None
        except StartError as error:
            raise StartError(f"{argv[0]} {error}") from None
        except BaseException:
            self.kill("nobody waits for it any more")
            raise

    async def _spawn(self, argv: Sequence[str]) -> None:
        log, log_in = os.pipe()
        try:
            await self._loop.subprocess_exec(
                lambda: self,
                *argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_in,
                process_group=0,  # its own, in the session of the callback process, so that containment finds it
                preexec_fn=_die_with_parent,
            )
        except BaseException as error:
            os.close(log)
            self._on_end(self)
            if isinstance(error, OSError):
                reason = error.strerror or type(error).__name__
                raise StartError(f"cannot be started: {reason}") from error
            raise
        finally:
            os.close(log_in)
        self._log_pipe = (
            select.poll()
        )  # one of its own: this thread and that of the log poll at the same time
        self._log_pipe.register(log, select.POLLIN)
        threading.Thread(target=self._relay, args=(log,), name="duly-program-log", daemon=True).start()

    def kill(self, reason: str, number: int = signal.SIGKILL) -> None:
        """End it, with its process group; it gets no more tasks."""
        self.retired = self.retired or reason
        if self._transport is not None and self._exit_code is None:
            try:
                os.killpg(self._transport.get_pid(), number)
            except OSError:  # the program has ended, or has joined another group
                with contextlib.suppress(ProcessLookupError):
                    self._transport.send_signal(number)

    async def end(self) -> None:
        """Close its stdin, which tells a program that it is not needed any more; then end it, and wait for that."""
        if self._transport is not None and (stdin := self._transport.get_pipe_transport(0)) is not None:
            stdin.close()
        await self._end("it is not needed")
        await self._gone.wait()

    # ---- a task ----------------------------------------------------------------------------------------

    async def run(self, payload: Any, context: TaskContext) -> Any:
        """Run a task to its end; what it returned.

        Raises:
            OutOfStepError: it was done with before it began.
            ProtocolError: it cannot be understood. It has ended.
            Crashed: it died.
            Cancelled: it stopped because it was asked to.
        """
        self._answer = self._loop.create_future()
        self._context = context
        self._heard = False
        self._speaker = contextvars.copy_context()
        if self._exit_code is not None:
            self._end_of_task(OutOfStepError())
        else:
            self._write(messages.Task(payload, context))
        try:
            try:
                ended = await self._until_answered(self._answer, context)
            finally:
                await self._log_read()
        except (OutOfStepError, ProtocolError):
            await self._ended.wait()  # what failed may run again elsewhere
            raise
        finally:
            self._past.append(context.task_id)
            answer, self._answer, self._context, self._heard = self._answer, None, None, False
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # an end that nobody asks for any more
        if isinstance(ended, messages.Success):
            return ended.result
        if isinstance(ended, messages.Failed):
            return ended.outcome
        if not context.cancelled:
            return RetriableFailure("the program says that the task was cancelled, but nobody asked for that")
        raise Cancelled

    async def _until_answered(
        self, answer: asyncio.Future[messages.Ended], context: TaskContext
    ) -> messages.Ended:
        """Wait; a cancel is passed on once, and an interruption ends the program."""
        told = context.cancelled
        if told:  # before it could be noticed here
            self._write(messages.Cancel(context.task_id))
        while True:
            try:
                await asyncio.wait([answer])
                return answer.result()
            except asyncio.CancelledError:
                if context.interrupted or not context.cancelled:
                    await self._end("its task was interrupted")
                    raise
                if not told:
                    told = True
                    self._write(messages.Cancel(context.task_id))

    async def _end(self, reason: str) -> None:
        """Let it end; then end it."""
        self.kill(reason, signal.SIGTERM)
        ending = asyncio.create_task(self._ended.wait())
        try:
            # not asyncio.timeout: before Python 3.11.4 it raises CancelledError in a task that was cancelled before
            await asyncio.wait((ending,), timeout=_AFTER_SIGTERM)
        except asyncio.CancelledError:
            ending.cancel()
            raise
        finally:
            self.kill(reason)
        await ending

    def _write(self, order: messages.Order) -> None:
        stdin = self._transport.get_pipe_transport(0)
        if stdin is not None and not stdin.is_closing():
            stdin.write(self._form.write(order))

    def _end_of_task(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    # ---- what it says ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls this first."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Asyncio calls this last."""
        self._gone.set()
        self._on_end(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 (stdout is the only one)
        """Take what it wrote to its stdout."""
        if self._broken or (self.retired and self._ready.done() and self._answer is None):
            return
        began = time.monotonic()
        try:
            for report in self._form.read(data):
                self._take(report)
        except ProtocolError as error:
            self._refuse(error)
        rest = _REST * (time.monotonic() - began)
        if rest > _SHORTEST_REST and self._exit_code is None:
            stdout = self._transport.get_pipe_transport(1)
            stdout.pause_reading()
            self._loop.call_later(rest, stdout.resume_reading)

    def _refuse(self, error: ProtocolError) -> None:
        """Have done with a program that cannot be understood."""
        self._broken = True
        if not self._ready.done():
            self._ready.set_exception(StartError(f"was not ready: {error}"))
        elif not self._heard:
            _log.warning("the program is started anew for what it wrote after its last task: %s", error)
        excused = not self._heard and self._past
        self._end_of_task(OutOfStepError() if excused else ProtocolError(str(error)))
        self.kill("it wrote something that is no message")

    def _take(self, report: messages.Report) -> None:
        if isinstance(report, messages.Ready):
            if self._ready.done():
                raise ProtocolError('it said "ready" twice')
            self._ready.set_result(None)
            return
        if not self._ready.done():
            raise ProtocolError('its first message is not "ready"')
        context, answer = self._context, self._answer
        if context is None or answer is None or report.task_id != context.task_id or answer.done():
            self._stray(report)
            return
        self._heard = True
        if isinstance(report, messages.Progress):
            context.progress(report.fraction, report.note)
        elif isinstance(report, messages.Checkpoint):
            try:
                context.checkpoint(report.value)
            except (CheckpointTooLargeError, EncodingError) as error:
                raise ProtocolError(str(error)) from None
        else:
            answer.set_result(report)

    def _stray(self, report: messages.Report) -> None:
        """Something of a task that is not the current one: harmless if it is over, but nobody trusts such a program."""
        task_id = getattr(report, "task_id", "")
        over = task_id in self._past or (self._context is not None and task_id == self._context.task_id)
        if not over:
            raise ProtocolError("it is of a task that the program was not given")
        kind = type(report).__name__.lower()
        _log.warning(
            'the program wrote a "%s" for a task that was over; it is started anew before the next', kind
        )
        if self._answer is None:
            self.kill("it wrote after its answer")
        else:
            self.retired = "it wrote after its answer"

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        """It closed its stdin or stdout, or ended."""
        name = "stdout" if fd == 1 else "stdin"
        self._stdout_ended |= fd == 1
        if self._exit_code is None:
            self.retired = self.retired or f"it closed its {name}"
            self._loop.call_later(_AFTER_CLOSING, self._closed, name)
        elif fd == 1:
            self._declare_dead()

    def _closed(self, name: str) -> None:
        """A program that lives on without its stdin cannot be sent a task, or a cancel; without its stdout it answers nothing."""
        if self._exit_code is None:
            error = f"it closed its {name} and went on"
            if not self._ready.done():
                self._ready.set_exception(StartError(f"was not ready: {error}"))
            self._end_of_task(ProtocolError(error))
            self.kill(error)

    def process_exited(self) -> None:
        """Its end is certain; what it wrote before may still be in the pipe."""
        self._exit_code = self._transport.get_returncode()
        self.retired = self.retired or "it ended"
        with contextlib.suppress(OSError):  # what it left behind in its group
            os.killpg(self._transport.get_pid(), signal.SIGKILL)
        self._ended.set()
        if (stdout := self._transport.get_pipe_transport(1)) is not None:
            stdout.resume_reading()  # it may rest, and an answer waits in the pipe
        self._loop.call_later(0 if self._stdout_ended else _LAST_WORDS, self._declare_dead)

    def _declare_dead(self) -> None:
        code = self._exit_code
        assert code is not None  # noqa: S101 (both callers know)
        if not self._ready.done():
            self._ready.set_exception(StartError(f"{_ending(code)} before it was ready"))
        if self._answer is not None and not self._answer.done():
            if self._past and not self._heard:
                self._end_of_task(OutOfStepError())
            else:
                self._end_of_task(Crashed(f"the program {_ending(code)}"))
        self._transport.close()

    # ---- its log ---------------------------------------------------------------------------------------

    async def _log_read(self) -> None:
        """Wait, not for long, until what it wrote to its stderr is passed on: it is of this task, and not of the next one."""
        until = self._loop.time() + _LAST_WORDS
        while self._has_unread_log() and self._loop.time() < until:  # noqa: ASYNC110 (it waits for a pipe that another thread empties)
            await asyncio.sleep(_LOOK_AGAIN)
        if self._half_line and not self._has_unread_log():
            ending = asyncio.to_thread(self._end_line)
            await asyncio.wait([self._loop.create_task(ending)], timeout=_LAST_WORDS)

    def _end_line(self) -> None:
        with self._log_lock:
            if self._half_line:
                half, self._half_line = self._half_line, b""
                self._log(half)

    def _has_unread_log(self) -> bool:
        # in this order: the thread says that it is at work before it takes anything out of the pipe
        return bool(self._log_pipe and self._log_pipe.poll(0)) or self._relaying

    def _relay(self, descriptor: int) -> None:
        """Pass its stderr on, in whole lines, as what the current task's callback wrote."""
        filled = select.poll()
        filled.register(descriptor, select.POLLIN)
        with open(descriptor, "rb") as log:
            while True:
                self._relaying = False
                filled.poll()
                self._relaying = True
                if not (data := log.read1(_LONGEST_LOG_LINE)):
                    break
                began = time.monotonic()
                with self._log_lock:
                    lines, end, half = (self._half_line + data).rpartition(b"\n")
                    if not end and len(half) >= _LONGEST_LOG_LINE:
                        lines, half = half, b""
                    self._half_line = half
                    if lines:
                        self._log(lines)
                if (rest := _REST * (time.monotonic() - began)) > _SHORTEST_REST:
                    time.sleep(rest)
            self._log_pipe = None
        self._end_line()
        self._relaying = False

    def _log(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "backslashreplace") + "\n"
        with contextlib.suppress(Exception):  # whatever happens, the program must not wait for its log
            self._speaker.run(sys.stderr.write, text)


def _ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
