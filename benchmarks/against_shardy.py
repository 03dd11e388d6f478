"""Shardy, as jaxlib brings it, beside this package: propagation of the zoo and of random programs

`python -m benchmarks.against_shardy`.  Both propagate the same annotated programs; values are compared one by one.  Its
sequences of collectives for reshards stand beside ours in `benchmarks.mesh_reshards`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from rich.console import Console
from rich.progress import track
from rich.table import Table

import hlosharding as hs
from hlosharding.ir import Module, rewrite
from hlosharding.sharding import uneven_dims
from hlosharding.xla_bridge import shardy_passes

RANDOM_PROGRAMS = 60
_TAG = "benchmark.name"
_LINE = re.compile(rf'{_TAG} = "(?P<name>[^"]+)"')
_SAID = re.compile(
    r"sdy\.sharding = #sdy\.sharding(?:_per_value<\[)?(?P<text><@mesh\w*, .*?\](?:, \w+=\w*\{[^}]*\})*>)"
)


@dataclass
class Agreement:
    """How many values of some programs the two lay out alike."""

    programs: int = 0
    equal: int = 0
    ours_finer: int = 0
    its_finer: int = 0
    other: int = 0
    opcodes: Counter[str] = field(default_factory=Counter[str])
    """Of the values that differ."""

    @property
    def values(self) -> int:
        """Those compared."""
        return self.equal + self.ours_finer + self.its_finer + self.other

    def add(self, module: Module) -> None:
        """Propagate an annotated module by both."""
        ours, its = hs.propagate(module), shardys(module)
        self.programs += 1
        for name, text in its.items():
            inst = ours.module.by_name(name)
            mine = ours.module.sharding(inst) or hs.HloSharding.replicate()
            theirs = hs.convert(text, "hlo") if text else hs.HloSharding.replicate()
            if mine == theirs:
                self.equal += 1
                continue
            self.opcodes[inst.opcode] += 1
            more = mine.num_tiles - theirs.num_tiles
            if more:
                self.ours_finer, self.its_finer = self.ours_finer + (more > 0), self.its_finer + (more < 0)
            else:
                self.other += 1


def shardys(module: Module) -> dict[str, str]:
    """By name what Shardy says of each array that an op makes; "" for one that it leaves whole."""
    tagged = module.clone()
    for inst in tagged.instructions:
        if inst.shape.is_array and inst.opcode not in ("parameter", "get-tuple-element", "constant"):
            said = {**inst.frontend_attributes, _TAG: inst.name}
            rewrite.set_attributes(inst, frontend_attributes=said)
    found = shardy_passes(hs.to_sdy_text(tagged), "sdy-propagation-pipeline")
    meshes = " ".join(line.split(" {stablehlo")[0].strip() for line in found.splitlines() if "sdy.mesh @" in line)
    names: dict[str, str] = {}
    for line in found.splitlines():
        tag, said = _LINE.search(line), _SAID.search(line)
        if tag is not None:
            names[tag["name"]] = f"{meshes} #sdy.sharding{said['text']}" if said is not None else ""
    return names


def zoo() -> Iterator[Module]:
    """The models, with the annotations that a user of `jax.jit` writes."""
    from benchmarks.zoo import MODELS

    for model in MODELS:
        mesh = model.mesh()
        program = model.build(mesh, 1)
        yield hs.jit(program.function, mesh=mesh, **program.options).trace(*program.arguments).module


def random_modules() -> Iterator[Module]:
    """Random programs whose parameters and results divide evenly, as Shardy wants them."""
    from tests.support.random_programs.programs import random_program

    for seed in range(RANDOM_PROGRAMS):
        module = random_program(Random(seed)).module
        for inst in (*module.entry.parameters, module.entry.root):
            sharding = module.sharding(inst)
            leaves = sharding.leaves if sharding is not None else ()
            if any(uneven_dims(s, shape.dims) for s, shape in zip(leaves, inst.shape.leaves, strict=False)):
                del module.shardings[inst.id]
        yield module


def propagation_table() -> Table:
    """A row for the zoo, one for random programs."""
    table = Table("programs", "taken", "values", "equal", "ours finer", "Shardy finer", "other", "most differ in")
    for label, modules in (("zoo", zoo()), ("random", random_modules())):
        found, refused = Agreement(), 0
        for module in track(modules, description=f"propagating {label}"):
            try:
                found.add(module)
            except (hs.LoadError, hs.ShardingError):
                refused += 1
        worst = ", ".join(f"{opcode} {count}" for opcode, count in found.opcodes.most_common(5))
        table.add_row(
            label, f"{found.programs} of {found.programs + refused}", str(found.values),
            f"{found.equal / max(1, found.values):.1%}", str(found.ours_finer), str(found.its_finer), str(found.other),
            worst,
        )  # fmt: skip
    return table


def main() -> None:
    """Print the table."""
    Console(width=max(120, Console().width)).print(propagation_table())


if __name__ == "__main__":
    import conftest

    conftest.set_environment()
    main()
