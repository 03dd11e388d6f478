"""Are random programs partitioned right?  `python -m benchmarks.random_programs [N] [SEED] [--how run|local|reference]`

Prints how often each opcode and each kind of sharding occurred, with the list of all opcodes as the denominator, and
every program that was wrong, by its seed.  Status 1 where one was.  Without a judge are programs that XLA cannot run on
one device: it ends its process, or contradicts its own run with the ops kept apart, which ours equals.  The work is
done in processes of its own (an abort inside XLA then costs one program, and is reported).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.workers import JOBS, tell
from hlosharding.ir import ALL_OPCODES
from tests.support.random_programs.shardings import KINDS

WAYS = ("run", "local", "reference")
ALONE = "alone"
"""The program on one device, nothing else: does XLA survive it?"""
DISPUTED = "no judge: XLA's run on one device"
"""How the line of a program begins that XLA itself cannot say the result of."""
CHUNK = 25
SECONDS_A_CHUNK = 900
NOT_DRAWN = {
    "collectives and their asynchronous halves": "they are what partitioning writes, not what it reads",
    "infeed, outfeed, send, recv, partition-id, replica-id, rng": "they have no one-device run to compare with",
    "fusion, bitcast, domain, dynamic shapes": "they come from compiled or foreign modules; they stay whole",
    "ragged-dot, acos, acosh, asin, asinh, atanh, cosh, sinh": "XLA's CPU compiler has no code for them",
    "fft of more than one dim": "XLA's CPU kernel aborts on layouts that its own layout pass picks",
}


def main() -> None:
    """Draw, check, count."""
    parser = argparse.ArgumentParser(description="Are random programs partitioned right?")
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--how", choices=(*WAYS, ALONE), default="run")
    parser.add_argument("--jobs", type=int, default=JOBS, help="processes at a time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(range(options.seed, options.seed + options.count), options.how)
    else:
        sys.exit(report(options))


# The worker: one line of JSON a program


def work(seeds: range, how: str) -> None:
    """Check each seed; a line says that it began, another what came of it."""
    import conftest
    import hlosharding as hs
    from tests.support.program_check import Disputed, check, one_device
    from tests.support.random_programs.programs import coverage, random_program

    conftest.set_environment()
    for seed in seeds:
        tell({"seed": seed})
        program = random_program(Random(seed))
        seen = coverage(hs.propagate(program.module).module)
        tell({"seen": [[opcode, kind, count] for (opcode, kind), count in seen.items()]})
        try:
            if how == ALONE:
                one_device(program.module, program.arguments)
            else:
                check(program, how=how)
            tell({"wrong": None})
        except Disputed as error:
            tell({"wrong": f"{DISPUTED} is another with the ops kept apart, which ours equals: {error}"})
        except Exception as error:  # noqa: BLE001  (whatever it is, it is the finding)
            tell({"wrong": f"{type(error).__name__}: {str(error)[:300]}"})


# The parent


def report(options: argparse.Namespace) -> int:
    """Run the workers and print; 1 where a program was wrong."""
    console = Console(width=max(120, Console().width))
    seen: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[int, str]] = []
    chunks = [
        range(at, min(at + CHUNK, options.seed + options.count))
        for at in range(options.seed, options.seed + options.count, CHUNK)
    ]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda chunk: list(outcomes(chunk, options.how)), chunks)
        for found in track(results, total=len(chunks), console=console):
            for seed, counts, what in found:
                seen.update({(opcode, kind): count for opcode, kind, count in counts})
                if what is not None:
                    wrong.append((seed, what))
    console.print(table(seen))
    for opcodes, reason in NOT_DRAWN.items():
        console.print(f"[dim]not drawn: {opcodes}: {reason}[/dim]")
    for seed, what in wrong:
        console.print(f"seed {seed}: {what}", markup=False, highlight=False)
    disputed = sum(what.startswith(DISPUTED) for _, what in wrong)
    right = options.count - len(wrong)
    console.print(f"{right} of {options.count} programs right, {disputed} without a judge ({options.how})")
    return int(len(wrong) > disputed)


def outcomes(seeds: range, how: str) -> Iterator[tuple[int, list[list[Any]], str | None]]:
    """(seed, counts, what was wrong) of each seed; a worker that dies is replaced behind the seed that killed it."""
    at = seeds.start
    while at < seeds.stop:
        seed, counts = at, []
        for message in messages(at, seeds.stop - at, how):
            if "seed" in message:
                seed, counts = message["seed"], []
            elif "seen" in message:
                counts = message["seen"]
            else:
                yield seed, counts, message["wrong"]
                at = seed + 1
        if at <= seed < seeds.stop:
            survives = how == ALONE or any("wrong" in message for message in messages(seed, 1, ALONE))
            yield seed, counts, "the process died or hung" if survives else f"{DISPUTED} ends its process, too"
            at = seed + 1


def messages(seed: int, count: int, how: str) -> Iterator[dict[str, Any]]:
    """What one worker says until it ends."""
    command = [sys.executable, "-m", "benchmarks.random_programs", str(count), str(seed), "--how", how, "--worker"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "4"}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=SECONDS_A_CHUNK, check=False
        )
        output = ran.stdout
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode()
    yield from (json.loads(line[1:]) for line in output.splitlines() if line.startswith("@"))


def table(seen: Counter[tuple[str, str]]) -> Table:
    """Opcodes by kinds of sharding."""
    drawn = sorted({opcode for opcode, _ in seen})
    title = f"{len(drawn)} of {len(ALL_OPCODES)} opcodes occurred; instructions by the sharding they had"
    out = Table("opcode", *KINDS, title=title)
    for opcode in drawn:
        out.add_row(opcode, *(str(seen[opcode, kind] or "") for kind in KINDS))
    return out


if __name__ == "__main__":
    main()
