"""What a callback process leaves about its own end: which of its threads ended it, and where that was.

A memfd that the process writes and its Executor reads when it is dead (callback/exit_recorder.py writes it). Callbacks
can write to it, too: whatever stands there, reading it fails at nothing.
"""

import os
import re
import signal

_SLOT = re.compile(r"^slot ([0-9]{1,6}) is thread (0x[0-9a-f]+)$", re.MULTILINE)
_END = re.compile(r"^(?:os\._exit in|(Current)) thread (0x[0-9a-f]+)", re.MULTILINE)
"""The second is faulthandler's, after a fatal signal. If SIGKILL ended the process, it had survived that signal."""
_STACK = re.compile(r"^Current thread .*\n((?:  .*\n)+)", re.MULTILINE)
_CALLED_BY = re.compile(
    r'^  File "[^"\n]*/duly/callbacks/callback\.py", line \d+ in call\n.*', re.MULTILINE | re.DOTALL
)
_ERROR = re.compile(r"^Fatal Python error: .*", re.MULTILINE)
_MOST_BYTES = 64 * 1024


class ExitRecord:
    """Of one callback process."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("duly-last-words")
        self._text = ""
        self._killed = False

    def read(self, code: int | None = None) -> None:
        """Take what is there; the process is dead, with this exit code."""
        self._killed = code == -signal.SIGKILL
        if self.descriptor >= 0:
            self._text = os.pread(self.descriptor, _MOST_BYTES, 0).decode(errors="replace")
            os.close(self.descriptor)
            self.descriptor = -1

    @property
    def slot(self) -> int | None:
        """The slot whose thread ended the process, if that is known."""
        ends = [
            int(thread, 16)
            for by_signal, thread in _END.findall(self._text)
            if not (by_signal and self._killed)
        ]
        if not ends:
            return None
        slots = {int(thread, 16): int(slot) for slot, thread in _SLOT.findall(self._text)}
        return slots.get(ends[-1])

    @property
    def stack(self) -> str:
        """The callback's frames when a fatal signal ended its thread, innermost first; empty: unknown."""
        error, stack = _ERROR.search(self._text), _STACK.search(self._text)
        if error is None or stack is None or self.slot is None:
            return ""
        return f"{error[0]} (most recent call first)\n{_CALLED_BY.sub('', stack[1])}"

    @property
    def traceback(self) -> str:
        """What faulthandler wrote; empty: nothing."""
        return (
            self._text[self._text.find("Fatal Python error") :] if "Fatal Python error" in self._text else ""
        )
