"""The strategy that asks the program instead of a rule: arguments lie as the optimum of all choices has them.

Floor: search.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from hlosharding.cost import Machine
from hlosharding.ir import Module
from hlosharding.search.optimum.optimum import find_optimum
from hlosharding.search.strategies import Specs, Ways

OPTIMUM = "optimum"
"""Its name in plans."""


@dataclass(frozen=True)
class OptimumOf:
    """For devices of one machine.  Of a step in one stage: what is kept between microbatches counts as if there were
    one.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> shape = lambda *dims: jax.ShapeDtypeStruct(dims, jnp.float32)
    >>> arrays = shape(512, 65536), shape(65536, 512), shape(64, 512)
    >>> mlp = hs.trace(lambda up, down, x: jnp.tanh(x @ up) @ down)(*arrays)
    >>> found = OptimumOf(hs.machines.h100(4))(mlp, {"data": 4}, frozenset({2}))
    >>> {number: tuple(spec) for number, spec in found.items()}
    {0: (None, 'data'), 1: ('data', None), 2: ()}
    """

    machine: Machine
    _known: dict[tuple[Module, tuple[tuple[str, int], ...], frozenset[int]], Specs] = field(
        default_factory=dict, compare=False, repr=False
    )

    def __call__(self, module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        key = module, tuple(ways.items()), batch
        if key not in self._known:
            self._known[key] = self._specs(module, ways, batch)
        return self._known[key]

    def __reduce__(self) -> Any:
        # Without what is known: it is keyed by modules, and graphs are too deep for pickles.
        return OptimumOf, (self.machine,)

    def _specs(self, module: Module, ways: Ways, batch: frozenset[int]) -> Specs:
        real = {name: size for name, size in ways.items() if size > 1}
        if not real:
            return {}
        best = find_optimum(module, self.machine.with_devices(prod(real.values())), real, batch=batch)
        arguments = (parameter for parameter in module.entry.parameters if parameter in best.shardings)
        return {p.parameter_number: best.shardings[p].to_partition_spec(best.mesh) for p in arguments}
