"""What does it take to load a lowered step, over JAX's own lowering, through each door, and does it grow with the step?

`python -m benchmarks.doors [LAYERS ...]`: GPT-2's training step with all its shardings said, lowered for Shardy as JAX
does by default.  Each depth is measured in a process of its own, in CPU seconds, the child that converts included, the
least of three turns.  All but one lead through jaxlib's own conversion (from MLIR, half a lowering): its part is shown,
and the limit is on what is left, which is ours.  The exponent is between the least depth and the largest.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from rich.table import Table

import hlosharding as hs
from benchmarks import cases
from benchmarks.process_seconds import seconds
from benchmarks.verdict import finish, judged
from benchmarks.workers import tell, told
from examples import devices
from hlosharding.xla_bridge import hlo_text_to_proto, lowered_to_hlo_proto, stablehlo_to_hlo_proto

LAYERS = 6, 12, 24
TURNS, SECONDS_A_DEPTH = 3, 900
LIMIT, EXPONENT = 0.5, 1.3
Lowered = jax.stages.Lowered


def lowered(layers: int) -> tuple[float, Lowered]:
    """The step, every result's sharding said, traced and lowered anew, and the seconds that it takes."""
    case = cases.gpt2_case(layers=layers)
    whole = NamedSharding(case.mesh, P())
    results = jax.tree.map(lambda _: whole, jax.eval_shape(case.function, *case.arguments))
    jax.clear_caches()
    return _timed(lambda: jax.jit(case.function, out_shardings=results).lower(*case.arguments))


Door = tuple[Callable[[Lowered], Any], Callable[[Any], bytes] | None]
DOORS: dict[str, Door] = {
    "Lowered": (lambda step: step, lowered_to_hlo_proto),
    "StableHLO": (lambda step: step.as_text(), stablehlo_to_hlo_proto),
    "HLO proto": (lowered_to_hlo_proto, None),
    "HLO text": (lambda step: step.as_text("hlo"), hlo_text_to_proto),
}
"""By name, what is loaded of a step, and what jaxlib makes an HLO proto of it by."""


def measured(layers: int) -> dict[str, Any]:
    """Seconds of JAX's lowering, and of each door all and jaxlib's; a small step goes first."""
    devices.choose_platform()
    for take, _ in DOORS.values():
        hs.load(take(lowered(1)[1]))
    lowering, step = min((lowered(layers) for _ in range(TURNS)), key=lambda found: found[0])
    found: dict[str, tuple[float, float]] = {}
    for name, (take, convert) in DOORS.items():
        source = take(step)
        found[name] = _least(partial(hs.load, source)), _least(partial(convert, source)) if convert else 0.0
    return {"lowering": lowering, "doors": found}


def _least(run: Callable[[], Any]) -> float:
    return min(_timed(run)[0] for _ in range(TURNS))


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = seconds()
    made = run()
    return seconds() - start, made


def main(depths: Sequence[int]) -> None:
    """Print the table; fail where a limit is missed."""
    rows = {layers: told("doors", [str(layers), "--worker"], SECONDS_A_DEPTH)[0][-1] for layers in depths}
    columns = "layers", "lowering", "load", "of it jaxlib's", "load / lowering", "ours / lowering", "exponent"
    table = Table("door", *columns, title="A lowered GPT-2 step loaded, CPU seconds")
    kept: list[bool] = []
    for name in DOORS:
        first = rows[depths[0]]["doors"][name][0]
        for layers, row in rows.items():
            whole, theirs = row["doors"][name]
            ours, good = judged((whole - theirs) / row["lowering"], LIMIT)
            kept.append(good)
            exponent = ""
            if layers == depths[-1] > depths[0]:
                exponent, good = judged(math.log(whole / first) / math.log(layers / depths[0]), EXPONENT)
                kept.append(good)
            ratio = whole / row["lowering"]
            figures = f"{row['lowering']:.2f}", f"{whole:.2f}", f"{theirs:.2f}", f"{ratio:.2f}"
            table.add_row(name, str(layers), *figures, ours, exponent)
        table.add_section()
    finish(table, kept)


if __name__ == "__main__":
    words = sys.argv[1:]
    if "--worker" in words:
        tell(measured(int(words[0])))
    else:
        main([int(word) for word in words] or LAYERS)
