"""The least that the communication of a small program costs: every op in every split, every value in every sharding.

A variable for each op (which mesh axes go to which of its factors) and for each value with several readers (one
sharding more in which it may lie, so that readers share what is moved).  What is moved between two of them is a table;
`min_sum` finds the states under which all of it is least.  Tables begin as lower bounds; what the best states use is
then planned, until nothing on the way is a mere bound.  Ops on elements of one value are made anew wherever it lies.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.axis_splits import SAME_WORK, Assignment, assignments, divides, moved, num_parts
from benchmarks.min_sum import Factor, TooLargeError, least_sum
from hlosharding.cost import machines
from hlosharding.ir import Instruction, Module
from hlosharding.reshard import most_bytes_per_second
from hlosharding.rules import Dims, Reduce, Signature, signature_of

MOST_ROUNDS = 200
MOST_WORK_LEVELS = 256
NEAR = 1.002
"""Where bounds and prices differ by no more, the states are the best."""
Held = tuple[Assignment, tuple[int, ...]]
"""How a value lies: the axes on each dim, and those over which its parts are sums to be added up."""
Bytes = npt.NDArray[np.float64]


class Source(NamedTuple):
    """Where a value comes from: a variable (None: it is given), and how it lies in each of its states."""

    variable: int | None
    held: tuple[Held, ...]


class Reader(NamedTuple):
    """What reads a value: a variable (None: it is a result), and how it wants it in each of its states."""

    value: Instruction
    variable: int | None
    wanted: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """An op, or a place where a value lies."""

    name: str
    states: tuple[Assignment, ...]
    work: float = 0.0
    """Of a contraction: operations, were one device to do them all."""
    factors: tuple[str, ...] = ()

    def told(self, state: int) -> str:
        """Which factors the axes split in a state."""
        split = zip(self.factors, self.states[state], strict=True)
        return f"{self.name} {{{', '.join(f'{name}: {axes}' for name, axes in split if axes)}}}"


@dataclass(frozen=True)
class Link:
    """A value on its way from where it is made or lies to where it is read.  A variable None: the sharding is given."""

    dims: tuple[int, ...]
    mesh: tuple[int, ...]
    objective: str
    source: int | None
    held: tuple[Held, ...]
    """For each state of the source."""
    target: int | None
    wanted: tuple[Assignment, ...]
    """For each state of the target."""

    @cached_property
    def moves(self) -> Moves:
        """What every way from one to the other costs."""
        return Moves(self, tuple(dict.fromkeys(self.held)), tuple(dict.fromkeys(self.wanted)))


@dataclass
class Moves:
    """Costs of a link between all pairs of shardings: bounds, and prices where they were asked for."""

    link: Link
    sources: tuple[Held, ...]
    targets: tuple[Assignment, ...]
    known: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def __post_init__(self) -> None:
        link = self.link
        self.costs = _bounds(link.dims, link.mesh, self.sources, self.targets)
        if link.objective == "time":
            machine = machines.h100(math.prod(link.mesh))
            started = np.where(self.costs > 0, machine.collective_launch, 0.0)
            self.costs = started + self.costs / most_bytes_per_second(machine)
        places = {held: n for n, held in enumerate(self.sources)}, {t: n for n, t in enumerate(self.targets)}
        self.rows = np.array([places[0][held] for held in link.held])
        self.columns = np.array([places[1][wanted] for wanted in link.wanted])

    def table(self) -> npt.NDArray[np.float32]:
        """[state of the source, state of the target]."""
        return self.costs[np.ix_(self.rows, self.columns)].astype(np.float32)

    def so_far(self, row: int, column: int) -> float:
        """What a state of the source and one of the target cost, as far as known."""
        return float(self.costs[self.rows[row], self.columns[column]])

    def priced(self, row: int, column: int) -> float:
        """What a state of the source and one of the target cost, planned."""
        at = int(self.rows[row]), int(self.columns[column])
        if at not in self.known:
            self.known.add(at)
            (split, partial), link = self.sources[at[0]], self.link
            self.costs[at] = moved(link.dims, link.mesh, split, self.targets[at[1]], partial, link.objective)
        return float(self.costs[at])


def _bounds(
    dims: tuple[int, ...], mesh: tuple[int, ...], sources: Sequence[Held], targets: Sequence[Assignment]
) -> Bytes:
    """[source, target]: bytes that a device receives at least, in the mean.

    Whole values: what a tile has that the old one lacks.  Sums of p parts: of each element p - 1 parts are added to
    another, and all but one of the devices that want it are sent it.
    """
    first, last = _tiles([split for split, _ in sources], dims, mesh), _tiles(targets, dims, mesh)
    wanted = np.array([math.prod(dims) / num_parts(mesh, [a for axes in t for a in axes]) for t in targets])
    both = np.ones((len(sources), len(targets), math.prod(mesh)))
    for (low, high), (low_too, high_too) in zip(first, last, strict=True):
        both *= np.maximum(0, np.minimum(high[:, None], high_too[None]) - np.maximum(low[:, None], low_too[None]))
    found = wanted[None] - both.mean(2)
    for row, (_, partial) in enumerate(sources):
        if partial:
            found[row] = math.prod(dims) * (num_parts(mesh, partial) - 2) / math.prod(mesh) + wanted
    return 4 * found


def _tiles(
    splits: Sequence[Assignment], dims: tuple[int, ...], mesh: tuple[int, ...]
) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """For each dim, where each device's tile begins and ends: [split, device] twice."""
    places = np.indices(mesh).reshape(len(mesh), -1)
    found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    for dim, size in enumerate(dims):
        begins = np.zeros((len(splits), places.shape[1]), np.int64)
        sizes = np.array([[size // num_parts(mesh, split[dim])] for split in splits])
        for row, split in enumerate(splits):
            for axis in split[dim]:
                begins[row] = begins[row] * mesh[axis] + places[axis]
        found.append((begins * sizes, begins * sizes + sizes))
    return found


# ---- from a module to variables and links


class Program:
    """Variables and links of a module whose parameters and results are sharded so."""

    def __init__(
        self, module: Module, mesh: tuple[int, ...], given: Sequence[Assignment], wanted: Sequence[Assignment], by: str
    ) -> None:
        self.mesh, self.objective = mesh, by
        self.variables: list[Variable] = []
        self.links: list[Link] = []
        self._made: dict[Instruction, Source] = {}
        self._family: dict[Instruction, Instruction | None] = {}
        reads = list(self._reads(module, given))
        root = module.entry.root
        results = root.operands if root.opcode == "tuple" else (root,)
        families = [self._family[op] for op in results]
        reads += [Reader(op, None, (spec,)) for op, spec in zip(families, wanted, strict=True) if op is not None]
        self._link(reads)

    def _reads(self, module: Module, given: Sequence[Assignment]) -> Iterator[Reader]:
        """What every op reads."""
        for op in module.entry.instructions:
            if op.opcode == "tuple":
                continue
            if op.opcode == "get-tuple-element":
                self._family[op] = self._family[op.operands[0].operands[op.tuple_index]]
                continue
            if op.opcode == "parameter":
                self._family[op] = op
                self._made[op] = Source(None, ((given[op.parameter_number], ()),))
                continue
            signature = _signature(op)
            families = [self._family[o] for o in op.operands]
            read = dict.fromkeys(family for family in families if family is not None)
            self._family[op] = None if not read else next(iter(read)) if _remakes(op, families, signature) else op
            if self._family[op] is op:
                number = self._add_op(op, signature)
                states = self.variables[number].states
                for family, dims in zip(families, signature.operands, strict=True):
                    if family is not None:
                        yield Reader(family, number, tuple(_on_dims(state, dims) for state in states))

    def _add_op(self, op: Instruction, signature: Signature) -> int:
        factors = signature.factors
        sizes = [f.size for f in factors]
        real = [n for n, size in enumerate(sizes) if size > 1]
        states = [_spread(s, real, len(factors)) for s in assignments(len(self.mesh), len(real))]
        states = tuple(s for s in states if divides(sizes, self.mesh, s))
        work = float(math.prod(sizes)) if op.opcode == "dot" else 0.0
        self.variables.append(Variable(op.name, states, work, tuple(f.name for f in factors)))
        reduced = [n for n, f in enumerate(factors) if isinstance(f.owes, Reduce)]
        held = tuple(
            (_on_dims(s, signature.results[0]), tuple(sorted(a for n in reduced for a in s[n]))) for s in states
        )
        self._made[op] = Source(len(self.variables) - 1, held)
        return len(self.variables) - 1

    def _link(self, reads: Sequence[Reader]) -> None:
        readers: defaultdict[Instruction, list[Reader]] = defaultdict(list)
        for reader in reads:
            readers[reader.value].append(reader)
        for op, mine in readers.items():
            source = self._made[op] if len(mine) == 1 else self._place(op, self._made[op])
            for reader in mine:
                self._add_link(source, reader)

    def _place(self, op: Instruction, source: Source) -> Source:
        """A variable more: one sharding in which several readers find a value."""
        dims = op.shape.dims
        states = tuple(s for s in assignments(len(self.mesh), len(dims)) if divides(dims, self.mesh, s))
        self.variables.append(Variable(f"place of {op.name}", states))
        number = len(self.variables) - 1
        self._add_link(source, Reader(op, number, states))
        return Source(number, tuple((s, ()) for s in states))

    def _add_link(self, source: Source, reader: Reader) -> None:
        dims = reader.value.shape.dims
        self.links.append(Link(dims, self.mesh, self.objective, *source, reader.variable, reader.wanted))

    # ---- the least

    def least(self, most_work: float) -> tuple[float, str]:
        """The least of all states whose contractions do no more than this part of their work on a device.

        And how the contractions are split then.
        """
        found = [self._least_of(allowed) for allowed in self._lean_states(most_work * SAME_WORK)]
        cost, states = min(found, key=lambda pair: pair[0])
        told = (v.told(s) for v, s in zip(self.variables, states, strict=True) if v.work)
        return cost, "; ".join(told)

    def _least_of(self, allowed: Sequence[npt.NDArray[np.intp]]) -> tuple[float, list[int]]:
        best, best_states = math.inf, list[int]()
        for _ in range(MOST_ROUNDS):
            states = least_sum([len(a) for a in allowed], self._factors(allowed))
            states = [int(a[s]) for a, s in zip(allowed, states, strict=True)]
            bound = sum(
                self._at(link, states, lambda m, r, c: float(m.costs[m.rows[r], m.columns[c]])) for link in self.links
            )
            cost = sum(self._at(link, states, Moves.priced) for link in self.links)
            if cost < best:
                best, best_states = cost, states
            if best <= bound * NEAR:
                break
        return best, best_states

    def _at(self, link: Link, states: Sequence[int], cost: Callable[[Moves, int, int], float]) -> float:
        row = 0 if link.source is None else states[link.source]
        return cost(link.moves, row, 0 if link.target is None else states[link.target])

    def _factors(self, allowed: Sequence[npt.NDArray[np.intp]]) -> Iterator[Factor]:
        for link in self.links:
            table = link.moves.table()
            source, target = link.source, link.target
            if source is not None:
                table = table[allowed[source]]
            if target is not None:
                table = table[:, allowed[target]]
            if source is None and target is None:
                continue
            if source is None:
                assert target is not None
                yield (target,), table[0]
            elif target is None:
                yield (source,), table[:, 0]
            else:
                yield ((source, target), table) if source < target else ((target, source), table.T)

    def _lean_states(self, most_work: float) -> Iterator[list[npt.NDArray[np.intp]]]:
        """The states of each variable, for every way to give the contractions parts of the work."""
        parts = [
            np.array([1 / num_parts(self.mesh, [a for axes in s for a in axes]) for s in v.states])
            for v in self.variables
        ]
        heavy = [n for n, v in enumerate(self.variables) if v.work]
        total = sum(self.variables[n].work for n in heavy)
        shares = [self.variables[n].work / total for n in heavy]
        for levels in _most_levels([sorted(set(parts[n].tolist())) for n in heavy], shares, most_work):
            limit = dict(zip(heavy, levels, strict=True))
            yield [np.flatnonzero(p <= limit.get(n, 1.0)) for n, p in enumerate(parts)]

    def _part(self, state: Assignment) -> float:
        """What a device does of the work of an op."""
        return 1 / num_parts(self.mesh, [axis for axes in state for axis in axes])


def _most_levels(levels: Sequence[Sequence[float]], shares: Sequence[float], most: float) -> list[tuple[float, ...]]:
    """Parts of the work of each contraction that together are allowed, none of which could be larger."""
    lean = [c for c in product(*levels) if sum(s * part for s, part in zip(shares, c, strict=True)) <= most]
    largest = [c for c in lean if not any(d != c and all(a <= b for a, b in zip(c, d, strict=True)) for d in lean)]
    if len(largest) > MOST_WORK_LEVELS:
        raise TooLargeError(f"{len(largest)} ways to share the work")
    return largest or [tuple(min(level) for level in levels)]


def _signature(op: Instruction) -> Signature:
    signature = signature_of(op)
    if not isinstance(signature, Signature):
        raise TypeError(f"{op.opcode} has no factors")
    return signature


def _remakes(op: Instruction, families: Sequence[Instruction | None], signature: Signature) -> bool:
    """Does the op compute each element from that of one value alone?"""
    read = {f for f in families if f is not None}
    own = [d for d, f in zip(signature.operands, families, strict=True) if f is not None]
    return len(read) == 1 and all(dims == signature.results[0] for dims in own) and op.opcode != "transpose"


def _on_dims(state: Assignment, dims: Dims) -> Assignment:
    return tuple(tuple(a for f in factors for a in state[f]) for factors in dims)


def _spread(state: Assignment, real: Sequence[int], count: int) -> Assignment:
    by_factor = dict(zip(real, state, strict=True))
    return tuple(by_factor.get(n, ()) for n in range(count))
