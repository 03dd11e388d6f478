"""Annotations put on a module's values by name: instruction, parameter path, or a glob over both.

Floor: frontends.  A new module comes back; the given one is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from hlosharding.errors import AnnotationError, ShardingError
from hlosharding.frontends.hlo import devices_of
from hlosharding.ir import Computation, Instruction, Module, NameUniquer, callers, rewrite, unspecified_dims_text
from hlosharding.ir import custom_call_targets as targets
from hlosharding.sharding import HloSharding, MeshInfo, is_spec, spec_from_text

_EMBEDDING = frozenset({"reduce", "reduce-window", "scatter", "select-and-scatter", "sort", "map", "all-reduce"})

_LONGEST_COMPARED = 1000
"""Letters of a name for which like ones are looked for: the time grows with their square."""
_MOST_STARS = 100
"""Of a glob: each may try every place of a name."""
_MOST_COMPARED = 1 << 26
"""Names with globs, one by one: half a minute.  A thousand globs over a program of 60,000 values are fewer."""


def annotate(
    module: Module,
    annotations: Mapping[str, Any],
    *,
    mesh: Any = None,
    required: bool = True,
    annotate_for_users: bool = False,
) -> Module:
    """A new module whose named values carry shardings.

    Names: an instruction, a parameter's path as JAX prints it (`params['w1']`), an ONNX tensor, or a glob (`*`, `?`)
    over them; each must match something.  Shardings: HloSharding, HLO text, or PartitionSpec over `mesh` (default: the
    module's), also as text (`"P('data', None)"`).  `required=False` is a hint: propagation may split further (a
    parameter gets it as its sharding, and stays open where its signature says so).  `annotate_for_users`: the users see
    the value in that sharding, the value itself stays free.  Raises AnnotationError.

    >>> from hlosharding.frontends.hlo import from_hlo_text
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> out = annotate(from_hlo_text(text), {"x": "{devices=[4]<=[4]}"})
    >>> str(out.sharding(out.by_name("x"))), out.num_partitions
    ('{devices=[4]<=[4]}', 4)
    """
    if annotations and module.is_scheduled and module.num_partitions > 1:
        raise AnnotationError(
            "XLA compiled this module already, for shardings it was given then",
            remedy="annotate the program before it is compiled (lowered, or the dump before optimizations)",
        )
    out = module.clone()
    if annotations and module.is_scheduled:
        out.proto = _without_schedule(module.proto)
    if mesh is not None:
        out.mesh = MeshInfo.from_jax(mesh)
    names = _InstructionNames(out)
    chosen: dict[Instruction, HloSharding] = {}
    for name, wanted in annotations.items():
        for instruction in names.find(name):
            chosen[instruction] = _fitting(wanted, instruction, out.mesh, name)
    held = {} if annotate_for_users else {i: s for i, s in chosen.items() if required or i.opcode == "parameter"}
    out.shardings |= {instruction.id: sharding for instruction, sharding in held.items()}
    free = {inst: sharding for inst, sharding in chosen.items() if inst not in held}
    if annotate_for_users:
        _insert(out, free, "copy", {})
    else:
        constrain(out, {i: (s, range(i.shape.rank if i.shape.is_array else 0)) for i, s in free.items()})
    out.renumber()
    if required and not annotate_for_users:
        _close_boundary(out, chosen)
    out.num_partitions = max(out.num_partitions, devices_of(chosen.values()))
    return out


def _without_schedule(proto: Any) -> Any:
    """What XLA compiled for one device and is to be split now: with its schedule it would count as split already."""
    out = type(proto)()
    out.CopyFrom(proto)
    out.ClearField("schedule")
    return out


def _close_boundary(module: Module, chosen: Iterable[Instruction]) -> None:
    """Annotated parameters and an annotated root are no longer propagation's to choose."""
    numbers = {i.parameter_number for i in chosen if i.opcode == "parameter" and i.computation.is_entry}
    if numbers and module.open_parameters:
        is_open = module.open_parameters
        each = is_open if isinstance(is_open, tuple) else (is_open,) * len(module.entry.parameters)
        module.open_parameters = tuple(may and n not in numbers for n, may in enumerate(each))
    if any(i.is_entry_root for i in chosen):
        module.open_outputs = False


class _InstructionNames:
    """What the instructions of a module may be called by."""

    def __init__(self, module: Module) -> None:
        self._by_name: dict[str, list[Instruction]] = {}
        self._compared = 0
        sites = callers(module)
        for computation in module.computations:
            if not any(site.opcode in _EMBEDDING for site in sites.get(computation, ())):
                for instruction in computation.instructions:
                    self._by_name.setdefault(instruction.name, []).append(instruction)
        for path, instruction in module.paths.items():
            found = self._by_name.setdefault(path, [])
            if instruction not in found:
                found.append(instruction)

    def find(self, name: str) -> list[Instruction]:
        """All instructions of that name; raises AnnotationError with near misses if there is none."""
        exact = self._by_name.get(name) or self._by_name.get(name.removeprefix("%"))
        if exact:
            return exact
        found = self._glob(name) if "*" in name or "?" in name else []
        if not found:
            near = get_close_matches(name, self._by_name, 3) if len(name) <= _LONGEST_COMPARED else []
            remedy = f"did you mean {', '.join(near)}?" if near else "the names are those of the HLO text"
            raise AnnotationError(
                f"no instruction, parameter path or glob match for {name[:_LONGEST_COMPARED]!r}", remedy=remedy
            )
        return found

    def _glob(self, glob: str) -> list[Instruction]:
        self._compared += len(self._by_name)
        if glob.count("*") > _MOST_STARS or self._compared > _MOST_COMPARED:
            raise AnnotationError(
                f"globs without end: {glob[:_LONGEST_COMPARED]!r}", remedy="write fewer stars, or names"
            )
        pattern = _glob_pattern(glob)
        found: Iterable[Instruction] = (
            i for name, found in self._by_name.items() if pattern.fullmatch(name) for i in found if i.shape.is_array
        )
        return list(dict.fromkeys(found))


def _glob_pattern(glob: str) -> re.Pattern[str]:
    # Brackets are literal: they stand in parameter paths.
    first, *others = (re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", glob))
    if not others:
        return re.compile(first, re.DOTALL)
    # What stands between two stars is taken where it is first found, and never looked for again: where the name goes
    # on behind it no other place helps, and all places of all of them are more than can be tried.
    *inner, last = others
    return re.compile(first + "".join(f"(?>.*?{part})" for part in inner) + f".*{last}", re.DOTALL)


def _fitting(wanted: Any, instruction: Instruction, mesh: Any, name: str) -> HloSharding:
    where = f"{name} = %{instruction.name} {instruction.shape} {instruction.location}".strip()
    try:
        sharding = _as_hlo(wanted, instruction, mesh, where)
        if instruction.shape.is_tuple and not sharding.is_tuple():
            sharding = HloSharding.single_tuple(sharding, len(instruction.shape.leaves))
        sharding.validate(instruction.shape)
    except ShardingError as error:
        place = f"{where}, {error.where}" if error.where else where
        raise AnnotationError(error.what, where=place, remedy=error.remedy) from error
    return sharding


def _as_hlo(wanted: Any, instruction: Instruction, mesh: Any, where: str) -> HloSharding:
    if isinstance(wanted, HloSharding):
        return wanted.without_names()
    if isinstance(wanted, str):
        if not is_spec(wanted):
            return HloSharding.parse(wanted).without_names()
        wanted = spec_from_text(wanted)
    rank = instruction.shape.rank if instruction.shape.is_array else 0
    if hasattr(wanted, "mesh") and hasattr(wanted, "spec"):
        return HloSharding.from_jax(wanted, rank).without_names()
    if not is_spec(wanted):
        raise AnnotationError(
            f"{wanted!r} is no sharding", where=where, remedy="use HloSharding, HLO text, PartitionSpec, NamedSharding"
        )
    if mesh is None:
        raise AnnotationError(f"{wanted} needs a mesh", where=where, remedy="pass mesh= (--mesh)")
    return HloSharding.unnamed(mesh, wanted, rank)


def constrain(
    module: Module, wanted: Mapping[Instruction, tuple[HloSharding, Sequence[int]]]
) -> dict[Instruction, Instruction]:
    """Put a constraint between values and their users, as `with_sharding_constraint` does, in place; the call of each.

    `wanted`: the sharding, and the dims in which it is open.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e { x = f32[4,2] parameter(0)  ROOT y = f32[4,2] negate(x) }")
    >>> sharding = HloSharding.parse("{devices=[2,1]<=[2]}")
    >>> constrain(module, {module.by_name("x"): (sharding, [1])})[module.by_name("x")].users
    [%y = f32[4,2] negate(%x.annotated)]
    """
    calls = {value: _call_attributes(open_dims) for value, (_, open_dims) in wanted.items()}
    made = _insert(module, {value: sharding for value, (sharding, _) in wanted.items()}, "custom-call", calls)
    module.renumber()
    return made


_INSERTED = ".annotated"


def is_inserted(inst: Instruction) -> bool:
    """Did `constrain` put it there, and no line of the program's source?"""
    return inst.opcode == "custom-call" and any(inst.name.startswith(of.name + _INSERTED) for of in inst.operands)


def _insert(
    module: Module,
    wanted: Mapping[Instruction, HloSharding],
    opcode: str,
    attributes: Mapping[Instruction, Mapping[str, Any]],
) -> dict[Instruction, Instruction]:
    """Put a copy, or an annotation, between values and their users."""
    names = NameUniquer(i.name for i in module.instructions)
    made: dict[Instruction, Instruction] = {}
    places: dict[Computation, dict[Instruction, list[Instruction]]] = {}
    for value in wanted:
        computation, name = value.computation, names.fresh(f"{value.name}{_INSERTED}")
        end, said = len(computation.instructions), attributes.get(value, {})
        made[value] = rewrite.insert(computation, end, opcode, value.shape, (value,), name=name, like=value, **said)
        places.setdefault(computation, {})[value] = [made[value]]
    for computation, behind in places.items():
        rewrite.place_behind(computation, behind)
        # A copy is for who uses the value, and nobody uses a result.
        if opcode != "copy" and computation.root in made:
            computation.set_root(made[computation.root])
    rewrite.replace_each(made)
    for value, annotated in made.items():
        rewrite.number(module, annotated)
        module.shardings[annotated.id] = wanted[value]
    return made


def _call_attributes(open_dims: Iterable[int]) -> dict[str, Any]:
    return {
        "custom_call_target": targets.SHARDING,
        "custom_call_api_version": 1,
        "opaque": unspecified_dims_text(open_dims),
    }
