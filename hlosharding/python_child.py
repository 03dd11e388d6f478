"""A Python process of ours, in which nothing runs that merely lies in the current folder.

Floor: ground.  Modules are found where this process finds them and nowhere else.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

_PACKAGE = str(Path(__file__).resolve().parents[1])
_START = """
import sys
_, module, function, *sys.path = sys.argv
from importlib import import_module
getattr(import_module(module), function)()
"""


def start(module: str, function: str, path: Iterable[str], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that calls a module's function; its standard input and output are pipes, its errors go to a file.

    `path`: the folders in which modules are looked for.
    """
    return subprocess.Popen(
        # Without -P the current folder would come first.
        [sys.executable, "-P", "-c", _START, module, function, *path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
    )


def own_path() -> list[str]:
    """Where this process finds modules, the user's among them.

    >>> all(map(os.path.isabs, own_path()))
    True
    """
    return list(dict.fromkeys(map(os.path.abspath, sys.path)))


def installed_path() -> list[str]:
    """The same without the current folder: enough for what needs no module of the user's.

    >>> os.getcwd() in installed_path() and os.getcwd() != _PACKAGE
    False
    """
    return [folder for folder in own_path() if folder == _PACKAGE or folder != os.getcwd()]
