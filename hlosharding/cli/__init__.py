"""The `hlosharding` command: the library's words on files, for a shell.

Floor: cli.  Exit status 0: good; 1: the input is wrong (one line on standard error), or what a command was asked to
judge is; 2: wrong usage; 130: interrupted.
`--help` imports nothing but argparse: each command imports its rooms when it runs.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence

from hlosharding.cli.parser import build_parser
from hlosharding.errors import HloShardingError
from hlosharding.printable import printable

_LONGEST_MESSAGE = 2000
INTERRUPTED = 130

__all__ = ["command", "main"]


def command() -> None:
    """The process of the command: `main`, then the end with its status.

    An interrupted process ends at once: XLA cannot stop a program that runs, and an orderly end would wait for it.
    """
    _replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may hold letters that the terminal's encoding has not
            stream.reconfigure(errors="backslashreplace")
    status = main()
    if status == INTERRUPTED:
        os._exit(status)
    sys.exit(status)


def _replace_closed_streams() -> None:
    """cron and services may start a process without a stream: Python has None for it then, and the next file that
    anybody opens would be taken for it.  Reading and writing fail as they did; what is said on standard error is lost.
    """
    for number, (name, mode) in enumerate((("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, mode)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's own) and return its exit status.

    Raises SystemExit as argparse does: 0 after `--help`, 2 on wrong usage.

    >>> main(["propagate", "no-such-file.hlo"])
    1
    """
    parser, status = build_parser(), 0
    if "_ARGCOMPLETE" in os.environ:
        importlib.import_module("hlosharding.cli.completion").complete(parser)
    arguments = parser.parse_args(argv)
    try:
        chosen = importlib.import_module(f"hlosharding.cli.{arguments.command}")
        status = chosen.execute(arguments) or 0
        sys.stdout.flush()
    except HloShardingError as error:
        return _complain(error)
    except MemoryError as error:
        return _complain(HloShardingError(f"out of memory: {error}", remedy="take smaller arrays or fewer devices"))
    except BrokenPipeError:
        _write_no_more()  # whoever reads (`| head`) has enough
    except OSError as error:
        _write_no_more()
        return _complain(HloShardingError(f"cannot write the output: {error.strerror or error}"))
    except KeyboardInterrupt:
        print("hlosharding: interrupted", file=sys.stderr)
        return INTERRUPTED
    return status


def _write_no_more() -> None:
    """To standard output: Python would flush it once more at exit, and complain."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(error: HloShardingError) -> int:
    line = printable(" ".join(str(error).split()))
    if len(line) > _LONGEST_MESSAGE:
        line = line[:_LONGEST_MESSAGE] + " ..."
    print(f"hlosharding: {line}", file=sys.stderr)
    return 1
