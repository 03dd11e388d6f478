"""An axis propagation as the text of MLIR's RFC: with `mesh.annotate` ops, or with collectives on distributed tensors.

Floor: mesh_propagation.  Each op is written in MLIR's generic form, its HLO attributes as one string.  Writing only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Literal

from hlosharding.errors import ShardingError
from hlosharding.ir import CONTROL_FLOW, Module, Shape
from hlosharding.mesh_propagation.loop_program import LoopOp, LoopValue, read_program
from hlosharding.mesh_propagation.notes import OUTPUT, AxisAnnotation
from hlosharding.notations import AxisSharding
from hlosharding.sharding import Axes, Axis, Cluster

Stage = Literal["annotated", "materialized"]
_ELEMENTS = {"pred": "i1", "token": "!stablehlo.token", "c64": "complex<f32>", "c128": "complex<f64>"}
_WHOLE = AxisSharding()
_OPERATION = re.compile(r"^\s*(?:ROOT )?%?(?P<name>[^\s=]+) = .*?[\])}\s](?P<opcode>[a-z][\w-]*)\(")


def mesh_text(
    module: Module,
    cluster: Cluster,
    annotations: Iterable[AxisAnnotation],
    options: Mapping[str, AxisSharding],
    stage: Stage,
) -> str:
    """The program at a stage.  Raises ShardingError for loops and branches, which the RFC has no text for."""
    writer = _Annotated(module, cluster) if stage == "annotated" else _Materialized(module, cluster)
    for entry in annotations:
        writer.note(entry)
    writer.write({name: str(option.rename(cluster.index)) for name, option in options.items()})
    return "\n".join(writer.lines) + "\n"


@dataclass
class _MeshTextWriter:
    module: Module
    cluster: Cluster
    made: dict[str, AxisAnnotation] = field(default_factory=dict[str, AxisAnnotation])
    taken: dict[tuple[str, int], AxisAnnotation] = field(default_factory=dict[tuple[str, int], AxisAnnotation])
    lines: list[str] = field(default_factory=list[str])
    names: dict[LoopValue, str] = field(default_factory=dict[LoopValue, str])
    count: int = 0

    def note(self, entry: AxisAnnotation) -> None:
        """Take up what is said of a value, or of a use."""
        if entry.annotate_for_users:
            self.taken[entry.users[0], entry.operand or 0] = entry
        else:
            self.made[entry.value] = entry

    def write(self, options: Mapping[str, str]) -> None:
        """Cluster, function, ops, return."""
        program = read_program(self.module)
        parameters = [value for p in self.module.entry.parameters for value in program.values[p]]
        attributes = _hlo_attributes(self.module)
        for number, value in enumerate(parameters):
            self.names[value] = f"%arg{number}"
        # The head goes here when all else is written: types of results are known once the caller's uses are, which may
        # add lines of their own.
        body = len(self.lines)
        for value in parameters:
            self.define(value)
        for op in program.ops:
            self._op(op, options.get(op.name), attributes.get(op.instruction.name, ""))
        results = [self.use(value, OUTPUT, number) for number, value in enumerate(program.outputs)]
        names, types = ", ".join(name for name, _ in results), ", ".join(kind for _, kind in results)
        given = ", ".join(f"%arg{n}: {self.type_of(value)}" for n, value in enumerate(parameters))
        gives = types if len(results) == 1 else f"({types})"
        at = f"mesh_cluster = @{self.cluster.symbol}"
        head = f"func.func @{self.module.name}({given}) -> {gives} attributes {{{at}}} {{"
        self.lines[body:body] = [str(self.cluster), "", head]
        self.lines += [f"  return {names} : {types}", "}"]

    def _op(self, op: LoopOp, option: str | None, said: str) -> None:
        if op.instruction.opcode in CONTROL_FLOW:
            raise ShardingError(
                f"{op.where} is no straight line of ops, all that the text has", remedy="write it with to_module()"
            )
        operands = [self.use(value, op.name, number) for number, value in enumerate(op.operands)]
        attributes = [f'hlo = "{_escaped(said)}"'] if said else []
        attributes += [f"sharding = {option}"] if option is not None else []
        shown = f" {{{', '.join(attributes)}}}" if attributes else ""
        takes = ", ".join(kind for _, kind in operands)
        gives = ", ".join(self.type_of(value) for value in op.results)
        gives = gives if len(op.results) == 1 else f"({gives})"
        arguments = ", ".join(name for name, _ in operands)
        name = self.fresh()
        several = len(op.results) > 1
        for number, value in enumerate(op.results):
            self.names[value] = f"{name}#{number}" if several else name
        head = f"{name}:{len(op.results)}" if several else name
        self.lines.append(f'  {head} = "hlo.{op.instruction.opcode}"({arguments}){shown} : ({takes}) -> {gives}')
        for value in op.results:
            self.define(value)

    def fresh(self) -> str:
        """The name of the next line's result."""
        self.count += 1
        return f"%{self.count - 1}"

    def line(self, op: str, operand: str, attributes: str, before: str, after: str) -> str:
        """Add an op of the dialect; its result's name."""
        name = self.fresh()
        self.lines.append(f"  {name} = mesh.{op} {operand} {{{attributes}}} : {before} -> {after}")
        return name

    def lists(self, sharding: AxisSharding, shape: Shape) -> str:
        """The RFC's list of lists of axis numbers."""
        return sharding.rename(self.cluster.index).as_list(shape.rank if shape.is_array else 0)

    def type_of(self, value: LoopValue) -> str:
        """Of a value as it is made."""
        raise NotImplementedError

    def define(self, value: LoopValue) -> None:
        """Say what is said of a value that was just made."""

    def use(self, value: LoopValue, user: str, number: int) -> tuple[str, str]:
        """Name and type of an operand as the user takes it."""
        raise NotImplementedError


class _Annotated(_MeshTextWriter):
    """Plain tensors; what is said of them stands in `mesh.annotate` ops behind the value and before each use."""

    def type_of(self, value: LoopValue) -> str:
        return _tensor(value.shape)

    def define(self, value: LoopValue) -> None:
        if (entry := self.made.get(value.name)) is not None:
            self.names[value] = self._annotate(value, entry, "")

    def use(self, value: LoopValue, user: str, number: int) -> tuple[str, str]:
        entry = self.taken.get((user, number))
        name = self.names[value] if entry is None else self._annotate(value, entry, "as_result = false, ")
        return name, self.type_of(value)

    def _annotate(self, value: LoopValue, entry: AxisAnnotation, mark: str) -> str:
        lists = self.lists(AxisSharding.of(entry.sharding), value.shape)
        said = f"{mark}required = {'true' if entry.required else 'false'}, sharding = {lists}"
        kind = self.type_of(value)
        return self.line("annotate", self.names[value], said, kind, kind)


@dataclass
class _Materialized(_MeshTextWriter):
    """Tensors of whole size with their sharding in the type, and a collective where a use wants another."""

    moved: dict[tuple[str, AxisSharding], str] = field(default_factory=dict[tuple[str, AxisSharding], str])

    def held(self, value: LoopValue) -> AxisSharding:
        """As it is made; what nothing is said of is made as its users take it where they agree."""
        entry = self.made.get(value.name)
        if entry is not None:
            return AxisSharding.of(entry.sharding)
        taken = {AxisSharding.of(e.sharding) for e in self.taken.values() if e.value == value.name}
        return taken.pop() if len(taken) == 1 else _WHOLE

    def type_of(self, value: LoopValue) -> str:
        return self._typed(value, self.held(value))

    def _typed(self, value: LoopValue, sharding: AxisSharding) -> str:
        lists = self.lists(sharding, value.shape)
        return _tensor(value.shape, "" if sharding == _WHOLE else f", #mesh.shard<{lists}>")

    def use(self, value: LoopValue, user: str, number: int) -> tuple[str, str]:
        made, entry = self.held(value), self.taken.get((user, number))
        wanted = made if entry is None else AxisSharding.of(entry.sharding)
        name = self.names[value]
        key = name, wanted
        # Users that take a value in the same way share one move.
        if wanted != made and key not in self.moved:
            self.moved[key] = self._move(value, name, made, wanted)
        return self.moved.get(key, name), self._typed(value, wanted)

    def _move(self, value: LoopValue, name: str, made: AxisSharding, wanted: AxisSharding) -> str:
        """All-reduce, all-gather, local split, as far as each is needed; a reduction that is split is a scatter."""
        at = made
        for op, attributes, reached in moves(made, wanted, value.shape.rank, self.cluster):
            name = self.line(op, name, attributes, self._typed(value, at), self._typed(value, reached))
            at = reached
        return name


Move = tuple[str, str, AxisSharding]
"""An op of the dialect, its attributes, and the sharding behind it."""


def moves(made: AxisSharding, wanted: AxisSharding, rank: int, cluster: Cluster) -> list[Move]:
    """The collectives from one sharding of a value to another.

    >>> from_sum, to_rows = AxisSharding((), (0,)), AxisSharding(((0,),))
    >>> [(op, attributes, str(reached)) for op, attributes, reached in moves(from_sum, to_rows, 2, Cluster.of("2"))]
    [('reduce_scatter', 'mesh_axis = [0], reduction = "sum", tensor_axis = 0 : i64', '[[0]]')]
    """
    if new := [axis for axis in wanted.partial if axis not in made.partial]:
        raise ShardingError(f"{made} becomes partial along {_axes(new, cluster)}, which no collective does")
    path = _Path(made, cluster, [made.along(dim) for dim in range(rank)], list(made.partial))
    goal = [wanted.along(dim) for dim in range(rank)]
    # The order matters.  A sum that is split at once is one op, and not two; and an axis that goes from one dim to
    # another is gathered before it splits again, for no sharding has it twice.
    for dim in range(rank):
        path.scatter(dim, goal[dim])
    path.reduce(wanted.partial)
    path.gather(goal)
    path.split(goal)
    return path.moves


@dataclass
class _Path:
    """How a value lies on its way; each step adds the op that takes it on, where one is needed."""

    made: AxisSharding
    cluster: Cluster
    dims: list[Axes]
    partial: list[Axis]
    moves: list[Move] = field(default_factory=list[Move])

    def scatter(self, dim: int, goal: Axes) -> None:
        """What is partial along the next axes of the goal is summed and split at once."""
        held = self.dims[dim]
        ahead = goal[len(held) :] if goal[: len(held)] == held else ()
        axes = tuple(takewhile(self.partial.__contains__, ahead))
        if axes:
            self.dims[dim] = (*held, *axes)
            self.partial = [axis for axis in self.partial if axis not in axes]
            self._reach("reduce_scatter", f"{self._reduction(axes)}, tensor_axis = {dim} : i64")

    def reduce(self, kept: Axes) -> None:
        """What is partial and shall not be."""
        if dropped := [axis for axis in self.partial if axis not in kept]:
            self.partial = [axis for axis in self.partial if axis in kept]
            self._reach("all_reduce", self._reduction(dropped))

    def gather(self, goal: list[Axes]) -> None:
        """Axes behind the longest start that both have; the minor-most ones alone can be gathered."""
        kept = [_common(*pair) for pair in zip(self.dims, goal, strict=True)]
        axes = [held[len(same) :] for held, same in zip(self.dims, kept, strict=True)]
        if any(axes):
            self.dims = kept
            along = ", ".join(str(dim) for dim, gathered in enumerate(axes) if gathered)
            self._reach("all_gather", f"mesh_axis = {_lists(axes, self.cluster)}, tensor_axis = [{along}]")

    def split(self, goal: list[Axes]) -> None:
        """Axes of the goal that are left."""
        axes = [wanted[len(held) :] for held, wanted in zip(self.dims, goal, strict=True)]
        if any(axes):
            self.dims = goal
            self._reach("local_split", f"sharding = {_lists(axes, self.cluster)}")

    def _reach(self, op: str, attributes: str) -> None:
        reached = AxisSharding(tuple(self.dims), tuple(self.partial), self.made.kind)
        self.moves.append((op, attributes, reached))

    def _reduction(self, axes: Sequence[Axis]) -> str:
        return f'mesh_axis = {_axes(axes, self.cluster)}, reduction = "{self.made.kind}"'


def _common(a: Axes, b: Axes) -> Axes:
    """The longest start that both have."""
    count = 0
    while count < min(len(a), len(b)) and a[count] == b[count]:
        count += 1
    return a[:count]


def _axes(axes: Sequence[Axis], cluster: Cluster) -> str:
    return f"[{', '.join(str(cluster.index(axis)) for axis in axes)}]"


def _lists(dims: Iterable[Axes], cluster: Cluster) -> str:
    return str(AxisSharding(tuple(dims)).rename(cluster.index))


def _tensor(shape: Shape, encoding: str = "") -> str:
    kind = shape.element_type
    element = _ELEMENTS.get(kind) or (f"i{kind[1:]}" if kind[0] == "s" else f"ui{kind[1:]}" if kind[0] == "u" else kind)
    return f"tensor<{''.join(f'{size}x' for size in shape.dims)}{element}{encoding}>" if shape.is_array else element


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _hlo_attributes(module: Module) -> dict[str, str]:
    """What XLA's text says of each instruction behind its operands; of a constant its value."""
    found: dict[str, str] = {}
    for line in module.to_hlo_text().splitlines():
        if match := _OPERATION.match(line):
            operands, rest = _split(line, match.end())
            said = operands if match["opcode"] == "constant" else rest.removeprefix(", ")
            found[match["name"]] = said
    return found


def _split(line: str, start: int) -> tuple[str, str]:
    """What the parenthesis that was just opened holds, and what stands behind it."""
    depths = accumulate({"(": 1, ")": -1}.get(letter, 0) for letter in line[start:])
    end = start + next(at for at, depth in enumerate(depths) if depth < 0)
    return line[start:end], line[end + 1 :]
