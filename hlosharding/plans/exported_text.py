"""An exported plan as Python to paste: read by people first, the same on every machine.

Floor: plans.  Names of a stranger's program stand in comments and string literals only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hlosharding.ir import FunctionBoundary
from hlosharding.plans.constraints import Constraint
from hlosharding.printable import printable
from hlosharding.sharding import MeshInfo

_WIDTH = 100
# A program's name stands in a docstring, which a stranger's quotes would end.
_NOT_IN_NAMES = re.compile(r"[^\w.<>-]", re.ASCII)
_HEAD = '''"""Shardings of {name} for a stock `jax.jit` on {count} devices, found by hlosharding."""

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices()[:{count}]){order}
mesh = Mesh(devices.reshape{sizes}, {names})


def at(*axes, **more):
    return NamedSharding(mesh, P(*axes, **more))

'''
_OPAQUE = """
def {what}(*{of}):
    # In the structure of the {of} that it is called with, which has nodes of other libraries.
    entries = (
{entries}    )
    return jax.tree.unflatten(jax.tree.structure({of}{first}), entries)

"""


@dataclass(frozen=True, slots=True)
class _At:
    """An entry of a tree as it is written."""

    spec: Any

    def __repr__(self) -> str:
        return at_text(self.spec)


def at_text(spec: Any, name: str = "at") -> str:
    """A call of a function that the text defines; "None" of what is left to XLA."""
    if spec is None:
        return "None"
    said = [repr(entry) for entry in getattr(spec, "partitions", spec)]
    if unreduced := sorted(getattr(spec, "unreduced", ())):
        said.append(f"unreduced={{{', '.join(map(repr, unreduced))}}}")
    return f"{name}({', '.join(said)})"


def head_text(name: str, mesh: MeshInfo) -> str:
    """Imports, the mesh, and `at`."""
    order = "" if mesh.is_plain else f"[{list(mesh.device_ids)}]"
    values = {"count": mesh.num_devices, "order": order, "sizes": mesh.sizes, "names": mesh.names}
    return _HEAD.format(name=_NOT_IN_NAMES.sub("_", name), **values)


def shardings_text(
    signature: FunctionBoundary | None, in_specs: Sequence[Any], out_specs: Sequence[Any], names: Sequence[str]
) -> str:
    """`in_shardings` and `out_shardings`, in the function's own structures where these can be written."""
    if signature is None:
        said = (f"in_shardings = (\n{_lines(in_specs, names)})", f"out_shardings = (\n{_lines(out_specs)})")
        return f"\n# Flat: one of each argument, and of each result, in order.\n{said[0]}\n{said[1]}\n"
    arguments, _ = unflatten(signature.in_tree, map(_At, in_specs))
    results = unflatten(signature.out_tree, map(_At, out_specs))
    return _tree("in_shardings", "arguments", tuple(arguments), in_specs, names) + _tree(
        "out_shardings", "result", results, out_specs
    )


def unflatten(tree: Any, leaves: Iterable[Any]) -> Any:
    """A tree of JAX's."""
    import jax

    return jax.tree.unflatten(tree, leaves)


def _tree(what: str, of: str, tree: Any, specs: Sequence[Any], names: Sequence[str] = ()) -> str:
    try:
        written = tuple(map(_node, cast("tuple[Any, ...]", tree))) if of == "arguments" else _node(tree)
    except TypeError:
        entries = _lines(specs, names, indent=8)
        return _OPAQUE.format(what=what, of=of, first="" if of == "arguments" else "[0]", entries=entries)
    return f"\n{what} = {_pretty(written)}\n"


def _pretty(value: Any) -> str:
    """One line, or one for each entry."""
    from rich.pretty import pretty_repr

    return pretty_repr(value, max_width=_WIDTH)


def _node(tree: Any) -> Any:
    """As it is written: one entry for a part that lies alike.  Raises TypeError for nodes that have no literal."""
    import jax

    leaves = jax.tree.leaves(tree)
    if leaves and all(leaf == leaves[0] for leaf in leaves):
        return leaves[0]
    # Other keys, as those of enumerations, need not read as they are printed.
    if type(tree) is dict and {type(key) for key in cast("dict[Any, Any]", tree)} <= {bool, bytes, int, str}:
        return {key: _node(each) for key, each in cast("dict[Any, Any]", tree).items()}
    # Of these types themselves: what is derived from them, as named tuples are, has another literal.
    if type(tree) in (list, tuple):
        return type(tree)(map(_node, tree))
    if not leaves:
        return None
    raise TypeError("a node of another library")


def _lines(specs: Sequence[Any], names: Sequence[str] = (), indent: int = 4) -> str:
    said = [f"  # {_comment(name)}" for name in names] or [""] * len(specs)
    return "".join(f"{' ' * indent}{at_text(spec)},{note}\n" for spec, note in zip(specs, said, strict=True))


def constraint_lines(constraints: Iterable[Constraint]) -> Iterator[str]:
    """What is to be written into the function, as comments with the place of each."""
    for one in constraints:
        value = one.expression or f"<the {one.values[0].opcode} there>"
        yield f"# {_comment(one.location)}, {one.shape}: {_comment(value)}"
        yield f"#     jax.lax.with_sharding_constraint({_comment(value)}, {at_text(one.spec)})"


def notes_text(title: str, lines: Iterable[str]) -> str:
    """A block of comments, or nothing."""
    said = [line if line.startswith("#") else f"#   {_comment(line)}" for line in lines]
    return "\n".join(["", f"# {title}", *said, ""]) if said else ""


def _comment(text: str) -> str:
    """Foreign text on one line of a comment."""
    return printable(" ".join(text.split()))
