"""Look for what a reader cannot stand, keep it, and say how many there are."""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from hlosharding.xla_process import SECONDS
from tests.fuzz.corpus import keep
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS

os.environ.setdefault(SECONDS, "10")  # what a child of ours is waited for
_MEMORY = 6 << 30
"""Bytes of address space: what asks for more ends in MemoryError, and is a failure."""
_PATIENCE = 120.0
"""Seconds: code in C does not hear of a limit of CPU seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("name", choices=(*TARGETS, "all"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.RLIM_INFINITY))
    names = list(TARGETS) if arguments.name == "all" else [arguments.name]
    return max([_fuzz(name, arguments.seconds / len(names), arguments.seed) for name in names])


def _fuzz(name: str, seconds: float, seed: int) -> int:
    """Of failures that say the same only the first, shortest inputs are kept."""
    target, found, count, end = TARGETS[name], Counter[str](), 0, time.monotonic() + seconds
    last = Path(tempfile.gettempdir()) / f"fuzz_{name}"  # what ended the process, or did not come back from C
    while time.monotonic() < end:
        data = mutated(target, Random(f"{name} {seed} {count}"))
        count += 1
        last.write_bytes(data)
        faulthandler.dump_traceback_later(_PATIENCE, exit=True)
        failure = target.failure(data)
        if failure is not None:
            kind = failure[:60]
            if not found[kind]:
                print(f"{name}: {failure}\n  {keep(name, data)}", flush=True)
            found[kind] += 1
    faulthandler.cancel_dump_traceback_later()
    print(f"{name}: {count} inputs, {found.total()} failures of {len(found)} kinds", flush=True)
    return min(1, found.total())


sys.exit(main())
