"""A child process for conversions: XLA's parsers end their process on some malformed input, and ours must live.

Floor: ground.  Knows pipes and frames; which conversions there are is the business of `xla_bridge`, whose `serve` runs
in the child.  The child starts at the first question (0.2 s), answers all later ones, and is replaced when it dies.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import struct
import subprocess
import tempfile
import threading
import time
from typing import IO, BinaryIO, NamedTuple

from hlosharding import python_child
from hlosharding.errors import LoadError

_HEAD = struct.Struct(">BQQ")
_SERVE = "hlosharding.xla_bridge", "serve"
# Not from where a file's name begins: a long word that is none would be looked at from each of its letters.
_CHECK = re.compile(r"(?<=[\w.]):\d++\] (Check failed: .*|[A-Z].*)")
_BYTES_A_SECOND = 1e6
"""More patience with what is long: jaxlib parses ten megabytes in some seconds."""
SECONDS, GIGABYTES = "HLOSHARDING_CONVERSION_SECONDS", "HLOSHARDING_CONVERSION_GIGABYTES"
"""What a user may set: how long a conversion of little may take (300), and what memory the child may have (half of the
machine's).  Read when they are needed."""


class Child:
    """One child process; `ask` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._errors: IO[bytes] | None = None
        self._asked = 0
        """Questions so far: each answer names its own."""

    def ask(self, kind: str, payload: bytes, *, seconds: float | None = None) -> bytes:
        """The child's answer to a conversion; LoadError with XLA's words where it has none, or dies, or hangs."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            seconds = _bound(SECONDS, 300.0) + len(payload) / _BYTES_A_SECOND if seconds is None else seconds
            deadline = time.monotonic() + seconds
            self._asked += 1
            try:
                write_frame(process.stdin, PipeFrame(len(kind), self._asked, payload), kind)
                status, number, answer = self._read(process, deadline)
            except (BrokenPipeError, EOFError) as error:
                raise LoadError(
                    f"XLA's parser ended its process on this input: {self._last_words()}",
                    remedy=f"if it is right, and large, give it more memory: {GIGABYTES}",
                ) from error
            except TimeoutError as error:
                self.close()
                raise LoadError(
                    f"XLA's parser did not come to an end within {seconds:g} s", remedy=f"give it more: {SECONDS}"
                ) from error
            except BaseException:  # an interrupt: its answer is still to come, and nobody shall take it for another's
                self.close()
                raise
            if number != self._asked:
                self.close()
                raise LoadError(f"XLA's parser answered question {number}, asked was {self._asked}", remedy="try again")
        if status:
            raise LoadError(answer.decode("utf-8", "replace"))
        return answer

    def close(self) -> None:
        """Stop the child."""
        process, self._process = self._process, None
        # In a forked process: the child is its parent's, who goes on asking it.
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout, self._errors):
            if pipe is not None:
                pipe.close()
        process.wait()

    def _running(self) -> subprocess.Popen[bytes]:
        # A forked process must not talk through its parent's pipes.
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self.close()
            # A file: nobody reads while the child works, and a pipe that is full would stop it.
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the child)
            self._owner = os.getpid()
            self._process = python_child.start(*_SERVE, python_child.installed_path(), self._errors)
        return self._process

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> PipeFrame:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        head = _read_exactly(descriptor, _HEAD.size, deadline)
        status, number, length = _HEAD.unpack(head)
        return PipeFrame(status, number, _read_exactly(descriptor, length, deadline))

    def _last_words(self) -> str:
        """What a dying child said: XLA's failed check, or the signal."""
        process = self._process
        code = process.wait() if process is not None else None
        text = ""
        if self._errors is not None:
            self._errors.seek(0)
            # The end of it: there stands the check that failed, whatever the child said to earlier questions.
            text = self._errors.read()[-100_000:].decode("utf-8", "replace")
        checks = [m[1] for m in _CHECK.finditer(text) if "Check failed" in m[1] or "Unsupported" in m[1]]
        self.close()
        return checks[-1][:500] if checks else f"exit status {code}"


def bound_memory() -> None:
    """In the child: take no more than the user allows; what asks for more fails in this process alone."""
    import resource

    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    most = int(_bound(GIGABYTES, half / 1e9) * 1e9)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _bound(name: str, default: float) -> float:
    """A positive number from the environment; LoadError for what is none."""
    said = os.environ.get(name)
    if said is None:
        return default
    try:
        found = float(said)
    except ValueError:
        found = 0.0
    if not 0 < found < 1e12:
        raise LoadError(f"{name} is {said!r}", remedy="write a positive number, or leave it out")
    return found


class PipeFrame(NamedTuple):
    """One message."""

    status: int
    """Of an answer: 0, or 1 where it is an error.  Of a question: the length of its kind."""
    number: int
    """Of the question."""
    payload: bytes


def write_frame(pipe: BinaryIO | IO[bytes], frame: PipeFrame, kind: str = "") -> None:
    """Send one message, a question's kind in front of its payload."""
    # One after the other: put together, a payload with a large constant would be copied.
    pipe.write(_HEAD.pack(frame.status, frame.number, len(frame.payload)))
    pipe.write(kind.encode())
    pipe.write(frame.payload)
    pipe.flush()


def read_question(pipe: BinaryIO) -> tuple[str, int, bytes] | None:
    """The next question: its kind, its number, and what is to be converted; None at the end."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    split, number, length = _HEAD.unpack(head)
    return pipe.read(split).decode(), number, pipe.read(length)


def _read_exactly(descriptor: int, length: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    # Of the descriptor, not of the pipe's buffered reader: that one waits without end, and holds bytes that `poll` does
    # not see.  `select` knows no descriptor above 1023, and a process may have more files open.
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    while length > 0:
        if not waiting.poll(1e3 * max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


_child = Child()
atexit.register(_child.close)


def ask(kind: str, payload: bytes) -> bytes:
    """The answer of this process's child to one conversion; see `Child.ask`."""
    return _child.ask(kind, payload)
