"""From trace to executable: our generated source against `jax.jit` of the same annotated program, 24 layers, no caches.

Our own propagation, partitioning and writing of the source stand apart; `jax.jit` does them inside its compile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
from rich.table import Table

from benchmarks import cases
from benchmarks.verdict import finish, judged
from examples import devices
from hlosharding.executor import ShardMapProgram

LAYERS, REPEATS, LIMIT = 24, 2, 1.0


def seconds(action: Callable[[], Any]) -> float:
    """With JAX's caches empty."""
    jax.clear_caches()
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def main() -> None:
    """Print the table; fail where the limit is missed."""
    devices.choose_platform()
    jax.config.update("jax_enable_compilation_cache", False)
    case = cases.gpt2_case(layers=LAYERS)
    start = time.perf_counter()
    module = case.traced().propagate().partition().module
    found = time.perf_counter() - start
    start = time.perf_counter()
    source = ShardMapProgram(module).source
    written = time.perf_counter() - start
    ours, live = [], []
    for _ in range(REPEATS):  # in turns, so that a busy machine slows both
        ours.append(seconds(lambda: ShardMapProgram(module).compile().compiled))
        live.append(seconds(lambda: jax.jit(case.function, **case.options).lower(*case.arguments).compile()))
    text, good = judged((min(ours) - written) / min(live), LIMIT)
    table = Table("what", "seconds", title=f"{case.name}: from trace to executable")
    table.add_row("trace, propagate, partition", f"{found:.2f}")
    table.add_row(f"write the source ({len(source.splitlines()):,} lines)", f"{written:.2f}")
    table.add_row("trace to executable, generated source", f"{min(ours) - written:.2f}")
    table.add_row("trace to executable, jax.jit", f"{min(live):.2f}")
    table.add_section()
    table.add_row("ratio", text)
    finish(table, [good])


if __name__ == "__main__":
    main()
