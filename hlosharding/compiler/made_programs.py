"""What was made of a function's calls: known to every `hs.jit` of it that says the same, as long as the function lives.

Floor: compiler.  As with `jax.jit`, which many programs call anew for each call of the function.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from hlosharding.compiler.partitioned import CompiledFunction, Partitioned
from hlosharding.rules import count_changes


@dataclass(frozen=True, slots=True, eq=False)
class MadePrograms:
    """Of one function under one set of options; by the key of a call (`TracedCall.key`)."""

    lowered: dict[Any, Partitioned] = field(default_factory=dict[Any, Any])
    compiled: dict[Any, CompiledFunction | None] = field(default_factory=dict[Any, Any])
    """None: a call that is for JAX to run."""

    def clear(self) -> None:
        """Forget all."""
        self.lowered.clear()
        self.compiled.clear()


_made: WeakKeyDictionary[Any, dict[Any, MadePrograms]] = WeakKeyDictionary()


def made_of(function: Any, said: Any) -> MadePrograms:
    """Of a function; `said`: all that `hs.jit` was told beside it.  A rule that is registered later makes it all anew.

    Callables that may be equal without being the same (methods) and what cannot be compared share nothing.
    """
    if type(function).__eq__ is not object.__eq__:
        return MadePrograms()
    try:
        return _made.setdefault(function, {}).setdefault((count_changes(), *_comparable(said)), MadePrograms())
    except TypeError:  # no hash, or no weak reference
        return MadePrograms()


def _comparable(said: Any) -> Any:
    import jax

    leaves, tree = jax.tree.flatten(said, is_leaf=lambda node: node is None)
    return tuple(leaves), tree
