"""Are random programs partitioned right?  `python -m benchmarks.random_programs [N] [SEED] [--how run|local|reference]`

Prints how often each opcode and each kind of sharding occurred, over all opcodes there are, and every program that was
wrong, by its seed.  Status 1 where one was.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

import jax
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hlosharding as hs
from hlosharding.errors import HloShardingError
from hlosharding.ir import ALL_OPCODES
from tests.properties.program_check import RUNNERS, Unrunnable, WrongResult, check
from tests.properties.programs import coverage, random_program
from tests.properties.random_shardings import KINDS

NOT_DRAWN = {
    "collectives and their asynchronous halves": "they are what partitioning writes, not what it reads",
    "infeed, outfeed, send, recv, partition-id, replica-id, rng": "they have no one-device run to compare with",
    "fusion, bitcast, domain, dynamic shapes": "they come from compiled or foreign modules; they stay whole",
    "ragged-dot, acos, acosh, asin, asinh, atanh, cosh, sinh": "XLA's CPU compiler has no code for them",
}


def main() -> None:
    """Draw, check, count."""
    parser = argparse.ArgumentParser(description="Are random programs partitioned right?")
    parser.add_argument("count", nargs="?", type=int, default=1000)
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--how", choices=sorted(RUNNERS), default="run")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 8)
    console = Console(width=max(120, Console().width))
    seen: Counter[tuple[str, str]] = Counter()
    wrong: list[tuple[int, str]] = []
    refused = 0
    for seed in track(range(options.seed, options.seed + options.count), console=console):
        program = random_program(Random(seed))
        seen += coverage(hs.propagate(program.module).module)
        try:
            check(program, how=options.how)
        except Unrunnable:
            refused += 1
        except (WrongResult, HloShardingError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            wrong.append((seed, f"{type(error).__name__}: {str(error)[:300]}"))
    console.print(table(seen))
    for opcodes, reason in NOT_DRAWN.items():
        console.print(f"[dim]not drawn: {opcodes}: {reason}[/dim]")
    for seed, what in wrong:
        console.print(f"[red]seed {seed}[/red] {what}", markup=True, highlight=False)
    right = options.count - len(wrong) - refused
    console.print(
        f"{right} of {options.count} right, {len(wrong)} wrong, {refused} that XLA's CPU runtime refuses to run"
    )
    sys.exit(bool(wrong))


def table(seen: Counter[tuple[str, str]]) -> Table:
    """Opcodes by kinds of sharding; those that never occurred are counted in the title."""
    drawn = sorted({opcode for opcode, _ in seen})
    title = f"{len(drawn)} of {len(ALL_OPCODES)} opcodes occurred; instructions by the sharding they had"
    out = Table("opcode", *KINDS, title=title)
    for opcode in drawn:
        out.add_row(opcode, *(str(seen[opcode, kind] or "") for kind in KINDS))
    return out


if __name__ == "__main__":
    main()
