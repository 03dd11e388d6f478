"""What the function behind a traced module takes and gives: pytrees, shapes and names.

Floor: frontends.  A record; whoever runs the module (compiler) reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlosharding.frontends.jax.leaves import as_described, as_numbers
from hlosharding.ir import FunctionBoundary
from hlosharding.xla_bridge import NO_STATIC_ARGUMENTS, StaticArguments


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSignature(FunctionBoundary):
    """As JAX has it: avals are `jax.ShapeDtypeStruct`s of global shapes, names of shardings are `OutputNames`."""

    static: StaticArguments = NO_STATIC_ARGUMENTS

    def flatten(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Arguments of a call, static ones among them or not, as values per entry parameter.

        Raises TypeError where the pytree differs.
        """
        import jax

        leaves, tree = jax.tree.flatten((tuple(args), kwargs))
        if tree != self.in_tree:
            leaves, tree = jax.tree.flatten(self.static.left_out(tuple(args), kwargs))
        if tree != self.in_tree:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called with: "
                f"the arguments have the structure {tree}, the function was traced with {self.in_tree}"
            )
        numbered = zip(self.parameters, leaves, strict=True)
        placed = {number: as_numbers(leaf) for number, leaf in numbered if number is not None}
        return [placed[number] for number in sorted(placed)]

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The function's result from flat outputs."""
        import jax

        described = [as_described(o, aval) for o, aval in zip(outputs, self.out_avals, strict=True)]
        return jax.tree.unflatten(self.out_tree, described)
