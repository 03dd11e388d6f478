"""Python files that say how custom calls are split: executed, since the user names them.

Floor: cli.
"""

from __future__ import annotations

import traceback
from functools import cache

from hlosharding.errors import RuleError
from hlosharding.whole_files import read_whole


@cache  # two programs are compared by one set of rules
def execute_rules(path: str) -> None:
    """Run a file in a namespace of its own, once.  Raises RuleError, with its line, for whatever goes wrong in it.

    >>> execute_rules("no/such/rules.py")
    Traceback (most recent call last):
    ...
    hlosharding.errors.RuleError: cannot read no/such/rules.py: No such file or directory
    """
    source = read_whole(path, RuleError)
    try:
        # Not as __main__: what the file does as a script is not asked for.
        exec(compile(source, path, "exec"), {"__name__": "rules", "__file__": path})
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise RuleError(f"{type(error).__name__}: {error}", where=f"{path}:{_line(error, path)}") from error


def _line(error: BaseException, path: str) -> int | None:
    """The innermost of the file's own, or that which is no Python."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
