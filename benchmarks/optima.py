"""Small training steps on four H100s: what is found against all placements of the arguments, each priced.

`python -m benchmarks.optima [CASE ...] [--mesh 2x2]`.  Two columns of ratios, both at most 1: of the plan that
`hs.search` and `improved` find, over the best of all plans by which the arguments lie anywhere; and of the one program
that `hs.find_optimum` lays out, values between ops too, over the best of all programs of which the arguments are said.
Of attention on a mesh of two axes, queries, keys and values lie alike in what is tried: all else would be a million.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from rich.progress import track
from rich.table import Table

import hlosharding as hs
from benchmarks.verdict import finish, judged
from hlosharding.cost import Machine, machines
from hlosharding.errors import HloShardingError
from hlosharding.ir import Instruction, Module
from hlosharding.partitioner import even_placements
from hlosharding.search import Climb, Plan, Planner, find_optimum
from hlosharding.sharding import HloSharding, MeshInfo, TileAssignment
from tests.support.small_steps import descend, floats, perceptron

LIMIT = 1.0
_ROUNDING = 1e-9


class Case(NamedTuple):
    """A step, and which of its arguments are the batch."""

    step: Callable[..., Any]
    arguments: tuple[Any, ...]
    alike: tuple[str, ...] = ()
    """Arguments that lie alike in what is tried on several axes."""


def _attention() -> Case:
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsd,dhe->bshe", x, weights[name]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bshe,bthe->bhst", q, k) / 8, -1)
        heads = jnp.einsum("bhst,bthe->bshe", scores, v)
        return jnp.sum(jnp.einsum("bshe,hed->bsd", heads, weights["o"]) ** 2)

    weights = {**{name: floats(1024, 16, 64) for name in "qkv"}, "o": floats(16, 64, 1024)}
    return Case(descend(loss), (weights, floats(8, 512, 1024)), ("q", "k", "v"))


def _experts() -> Case:
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        gates = jax.nn.softmax(x @ weights["gate"], -1)
        chosen = jax.nn.one_hot(jnp.argmax(gates, -1), 8, dtype=x.dtype)
        place = (jnp.cumsum(chosen, 0) * chosen).sum(-1).astype(jnp.int32) - 1
        sent = chosen[:, :, None] * jax.nn.one_hot(place, x.shape[0] // 4, dtype=x.dtype)[:, None, :]
        inside = jax.nn.relu(jnp.einsum("ecd,edh->ech", jnp.einsum("td,tec->ecd", x, sent), weights["up"]))
        made = jnp.einsum("ecd,tec->td", jnp.einsum("ech,ehd->ecd", inside, weights["down"]), sent)
        return jnp.sum((made * gates.max(-1)[:, None]) ** 2)

    weights = {"gate": floats(512, 8), "up": floats(8, 512, 2048), "down": floats(8, 2048, 512)}
    return Case(descend(loss), (weights, floats(2048, 512)))


CASES: dict[str, Callable[[], Case]] = {
    "MLP 64x4096x16384": lambda: Case(*perceptron(64, 4096, 16384, 4096)),
    "MLP 16384x1024x1024": lambda: Case(*perceptron(16384, 1024, 1024, 1024)),
    "MLP 1024x8192x64": lambda: Case(*perceptron(1024, 8192, 64, 8192)),
    "attention": _attention,
    "experts": _experts,
}


def placements(module: Module, mesh: Sequence[int], alike: Sequence[str]) -> Iterator[dict[Instruction, HloSharding]]:
    """Every way for the arguments to lie."""
    parameters = module.entry.parameters
    tiles = TileAssignment.from_iota(tuple(mesh))
    ends = [f"['{name}']" for name in alike] if len(mesh) > 1 else []
    first, *others = [p for p in parameters if p.path.endswith(tuple(ends))] if ends else [parameters[0]]
    free = [p for p in parameters if p not in others]
    for places in product(*(even_placements(p.shape.dims, tiles) for p in free)):
        said = dict(zip(free, places, strict=True))
        yield said | dict.fromkeys(others, said[first])


def seconds_as_program(module: Module, machine: Machine, said: dict[Instruction, HloSharding]) -> float:
    """Of one program with these arguments."""
    annotated = hs.annotate(module, {p.name: place for p, place in said.items()})
    placed = hs.partition(annotated, num_partitions=machine.num_devices, machine=machine)
    return hs.simulate(placed.module, machine).time_s


def seconds_as_plan(planner: Planner, mesh: MeshInfo, machine: Machine, said: dict[Instruction, HloSharding]) -> float:
    """Of a plan with these arguments."""
    specs = {p.parameter_number: place.to_partition_spec(mesh) for p, place in said.items()}
    ways = dict(zip(mesh.names, mesh.sizes, strict=True))
    plan = Plan(ways["data"], ways.get("tensor", 1), strategy="tried")
    return planner.with_strategy("tried", lambda *_: specs).schedule(plan, machine).simulate(machine).time_s


def compare(name: str, sizes: tuple[int, ...]) -> tuple[float, float, int, float]:
    """Ratios of a plan and of a program, how many placements there are, and CPU seconds of both answers."""
    case, machine = CASES[name](), machines.h100(math.prod(sizes))
    module = hs.trace(case.step)(*case.arguments)
    weights = [p for p in module.entry.parameters if p.path.startswith("weights")]
    batch = [p.parameter_number for p in module.entry.parameters if p not in weights]
    mesh = MeshInfo(("data", "tensor")[: len(sizes)], sizes)
    start = time.process_time()
    program = find_optimum(module, machine, mesh, batch=batch, donated=range(len(weights)))
    program = program.improved().time_s
    found = hs.search(module, batch=batch, donate=range(len(weights)), machine=machine, searcher=Climb())
    plan = found.improved(progress=False).priced.time_s
    taken = time.process_time() - start
    planner = Planner(module, batch, range(len(weights)))
    every = list(placements(module, sizes, case.alike))
    of_program, of_plan = math.inf, math.inf
    for said in track(every, f"{name}, {'x'.join(map(str, sizes))}", disable=not sys.stderr.isatty()):
        of_program = min(of_program, seconds_as_program(module, machine, said))
        try:
            of_plan = min(of_plan, seconds_as_plan(planner, mesh, machine, said))
        except HloShardingError:  # as where a batch is whole over data
            continue
    return plan / of_plan, program / of_program, len(every), taken


def main() -> None:
    """Print the table; fail where any placement is faster."""
    parser = argparse.ArgumentParser(description="what is found, over the best of all placements")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"by default all: {', '.join(CASES)}")
    parser.add_argument("--mesh", default="4", help="4 or 2x2")
    given = parser.parse_args()
    sizes = tuple(map(int, given.mesh.split("x")))
    columns = ("case", "plan / best", "program / best", "placements", "CPU s")
    table = Table(
        *columns, title=f"On {'x'.join(map(str, sizes))} H100s, over the best of all placements of the arguments"
    )
    kept = list[bool]()
    for name in given.cases or CASES:
        plan, program, count, taken = compare(name, sizes)
        (of_plan, plan_kept), (of_program, program_kept) = (judged(r - _ROUNDING, LIMIT) for r in (plan, program))
        table.add_row(name, of_plan, of_program, str(count), f"{taken:.1f}")
        kept += [plan_kept, program_kept]
    finish(table, kept)


if __name__ == "__main__":
    main()
