"""`hlosharding completion`: what makes a shell complete our command lines.

Floor: cli.  The words come from the parser, by way of argcomplete, an optional library.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from typing import Any

from hlosharding.cli.files import write
from hlosharding.errors import HloShardingError


def execute(arguments: argparse.Namespace) -> None:
    """Write the lines that the shell has to read."""
    if importlib.util.find_spec("argcomplete") is None:
        raise HloShardingError("argcomplete is not installed", remedy="pip install 'hlosharding[completion]'")
    write(_argcomplete().shellcode(["hlosharding"], shell=arguments.shell), None)


def complete(parser: argparse.ArgumentParser) -> None:
    """Tell the shell that asked (it set `_ARGCOMPLETE`) what may come next, and end the process."""
    _argcomplete().autocomplete(parser)


def _argcomplete() -> Any:
    return importlib.import_module("argcomplete")
