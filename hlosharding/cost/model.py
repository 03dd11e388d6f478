"""What a program costs on one device: FLOPs, bytes received, peak memory, time, and which lines it comes from.

Floor: cost.  One formula for every module, ours and XLA's, partitioned or optimized: roofline for local ops, alpha-beta
for collectives, liveness for memory; times add up (overlap is the simulator's).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, isclose
from types import MappingProxyType
from typing import Any, NamedTuple

from hlosharding.cost import machines
from hlosharding.cost.collective_time import op_time, placement_time
from hlosharding.cost.combining import find_combined, was_combined
from hlosharding.cost.eager import EagerKernels
from hlosharding.cost.host_offload import crosses, leaves_on_host
from hlosharding.cost.kernels import Kernels
from hlosharding.cost.machine import Machine, Runtime
from hlosharding.cost.memory import PeakMemory, host_memory
from hlosharding.cost.placement import GroupPlacement, group_placement, permute_placement
from hlosharding.cost.step_breakdown import Part
from hlosharding.cost.topology import Topology, machine_of
from hlosharding.cost.work import CONTROL, FREE, OpWork, op_work
from hlosharding.deep_stack import deep_stack
from hlosharding.errors import CostError
from hlosharding.ir import (
    COLLECTIVES_AND_STARTS,
    Computation,
    GuessedLoop,
    Instruction,
    Module,
    Runs,
    blaming,
    executions,
    guessed_loops,
    with_trip_counts,
)
from hlosharding.notebook import InNotebooks
from hlosharding.spmd import Collective, devices_of, module_of, read_collective

_NO_OPS = FREE | CONTROL
NOTHING_STATED: Mapping[str, int] = MappingProxyType({})


class Priced(NamedTuple):
    """One instruction, all its executions together, per device."""

    instruction: Instruction
    executions: int
    flops: float
    bytes: float
    comm_bytes: float
    time_s: float
    is_exact: bool
    """False inside a loop whose trip count was guessed."""
    part: Part
    """What bounds it: to which part of a step's time its own belongs."""

    @property
    def instructions(self) -> int:
        """One, as subtotals count them."""
        return 1


@dataclass(frozen=True, slots=True)
class Subtotal:
    """Sums over the instructions of one kind, per device."""

    instructions: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    comm_bytes: float = 0.0
    time_s: float = 0.0
    is_exact: bool = True

    def __add__(self, more: Priced | Subtotal) -> Subtotal:
        return Subtotal(
            self.instructions + more.instructions,
            self.flops + more.flops,
            self.bytes + more.bytes,
            self.comm_bytes + more.comm_bytes,
            self.time_s + more.time_s,
            self.is_exact and more.is_exact,
        )


@dataclass(frozen=True)
class CostReport(InNotebooks):
    """What one execution of a program costs; every figure is per device.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e {\\n  x = f32[8] parameter(0)\\n  ROOT y = f32[8] negate(x)\\n}"
    >>> found = hs.cost(hs.load(text))
    >>> found.flops, found.memory_traffic_bytes, list(found.by_opcode)
    (8.0, 64.0, ['negate'])
    """

    flops: float
    """Arithmetic operations, loops times trip count; transcendentals apart."""
    transcendentals: float
    memory_traffic_bytes: float
    """Bytes that kernels read and write."""
    comm_bytes: float
    """Bytes received from other devices, mean over devices."""
    time_s: float
    compute_s: float
    """Part of `time_s` in local kernels."""
    comm_s: float
    """Part of `time_s` in collectives."""
    machine: Machine
    collectives: tuple[Collective, ...]
    """As they stand in the program, one an instruction."""
    rows: tuple[Priced, ...] = field(repr=False)
    """Every instruction that costs anything."""
    memory: PeakMemory = field(repr=False, compare=False)
    """Of the device."""
    host_memory_bytes: int = 0
    """Bytes in the host's memory at the worst moment, which `peak_memory_bytes` does not contain."""
    host_s: float = 0.0
    """Part of `time_s` in moves to the host's memory, and back."""
    guessed_loops: tuple[GuessedLoop, ...] = ()
    """Loops whose trip count nobody can tell: all figures but memory are guesses then."""
    num_kernels: float = 0.0
    """Kernels and collectives that are launched."""
    dispatch_s: float = 0.0
    """Seconds in which the host launches these one after the other, beside the device (`runtime="eager"`): `time_s`
    is at least so long."""
    combined: tuple[tuple[Collective, ...], ...] = ()
    """Of `collectives`, those that XLA's combiner makes one of: each group is priced as one with the bytes of all, and
    each member has its share of the time, by its bytes."""

    @property
    def peak_memory_bytes(self) -> int:
        """Bytes alive at the worst moment, arguments and results with them."""
        return self.memory.found.bytes

    @property
    def peak_at(self) -> str:
        """Name of the instruction during which memory peaks."""
        return self.memory.found.at

    @property
    def num_combined(self) -> int:
        """How many collectives are left of `collectives` behind XLA's combiner."""
        return len(self.collectives) - sum(len(group) - 1 for group in self.combined)

    @cached_property
    def by_opcode(self) -> dict[str, Subtotal]:
        """Subtotals by opcode, the longest time first."""
        return self._grouped(lambda i: i.opcode)

    @cached_property
    def by_location(self) -> dict[str, Subtotal]:
        """Subtotals by source line ("file.py:31"; "" where unknown), the longest time first."""
        return self._grouped(lambda i: i.location)

    def _grouped(self, key: Callable[[Instruction], str]) -> dict[str, Subtotal]:
        totals: defaultdict[str, Subtotal] = defaultdict(Subtotal)
        for row in self.rows:
            totals[key(row.instruction)] += row
        return dict(sorted(totals.items(), key=lambda item: (-item[1].time_s, item[0])))

    def __str__(self) -> str:
        guess = "~" if self.guessed_loops else ""
        moved = f", {self.host_s * 1e3:.3g} to the host and back" if self.host_s else ""
        return (
            f"{guess}{self.flops:.4g} FLOP, {guess}{self.comm_bytes:.4g} bytes received,"
            f" peak {self.peak_memory_bytes / 1e6:,.1f} MB, {guess}{self.time_s * 1e3:.3g} ms on {self.machine.name}"
            f" ({self.compute_s * 1e3:.3g} compute, {self.comm_s * 1e3:.3g} collectives{moved})"
            + (f", {self.host_memory_bytes / 1e6:,.1f} MB on the host" if self.host_memory_bytes else "")
            + "".join(f"; {loop}" for loop in self.guessed_loops)
        )


@deep_stack
def cost(
    module: Any,
    machine: Machine | Topology | None = None,
    *,
    trips: Mapping[str, int] = NOTHING_STATED,
    combine: bool = True,
    runtime: Runtime | None = None,
) -> CostReport:
    """Price a module: any Module, XLA's output included, or what holds one as `.module` (Partitioned, Propagation).

    A module that was not partitioned yet is priced as one device would run it.  `machine` defaults to an H100 node
    (or as many nodes as the module has devices for).  `trips`: how often loops run where the module does not tell, by
    name or source line.  `combine`: price collectives of one kind and group as XLA's combiner will join them
    (`CostReport.combined`); False prices each alone.  What XLA has compiled already stands as it is.  `runtime`:
    "compiled", as XLA fuses, or "eager", as a framework that launches a kernel an op (PyTorch without a compiler); by
    default the machine's.

    Raises ModuleError for an invalid module, or trips of what is no loop; CostError for a runtime that the machine has
    no figures of.

    >>> import hlosharding.ir as ir
    >>> b = ir.Builder("m")
    >>> main = b.computation("main")
    >>> x = main.parameter(0, ir.Shape.array("f32", (512, 512)))
    >>> _ = main.add("dot", x.shape, (x, x), dot_dims=ir.DotDims((1,), (0,)))
    >>> report = cost(b.finish(main))
    >>> report.flops == 2 * 512**3, report.peak_memory_bytes == 2 * 512 * 512 * 4
    (True, True)
    """
    causes = getattr(module, "causes", None) or {}
    module = with_trip_counts(module_of(module), trips)
    machine = (machine_of(machine) or machines.h100(devices_of(module).count)).with_runtime(runtime)
    with blaming(module):
        table = _PriceTable(module, machine, causes, combine=combine and not was_combined(module))
        return table.report(PeakMemory(module, table.kernels), host_memory(module))


def price_uncombined(module: Module, machine: Machine) -> list[Priced]:
    """The rows of `cost`, collectives not combined, where nobody asks for more."""
    return _PriceTable(module, machine, {}, combine=False).rows


class _PriceTable:
    """Prices instruction by instruction and keeps the sums."""

    def __init__(self, module: Module, machine: Machine, causes: Mapping[int, str], *, combine: bool) -> None:
        self.machine, self.causes, self.devices, self.combine = machine, causes, devices_of(module), combine
        self.away = leaves_on_host(module)
        is_eager = machine.runtime == "eager"
        self.kernels = EagerKernels(module) if is_eager else Kernels(module, joins=machine.platform != "cpu")
        self.rows: list[Priced] = []
        self.products: dict[int, float] = {}
        """By number of a row that a product is, the seconds of it that the matrix unit bounds."""
        self.matrix_s = 0.0
        """Those, and of attention."""
        self.collectives: list[Collective] = []
        self.combined: list[tuple[Collective, ...]] = []
        self.transcendentals = self.compute_s = self.comm_s = self.host_s = self.num_kernels = 0.0
        self.runs = executions(module)
        for computation, runs in self.runs.items():
            self.add(computation, runs)
        # At the end, for it asks for the share of products in the whole program.
        self.slow_down_products()

    def add(self, computation: Computation, runs: Runs) -> None:
        inside: dict[Instruction, float] = {}
        found: dict[Instruction, Collective] = {}
        places: dict[Instruction, int] = {}
        """Numbers of their rows."""
        for op in computation.instructions:
            opcode = op.opcode
            if opcode in _NO_OPS:
                continue
            if opcode in COLLECTIVES_AND_STARTS:
                kind = opcode.removesuffix("-start")
                found[op] = read_collective(op, kind, runs, self.devices, self.causes.get(op.id))
                places[op] = len(self.rows)
                self._add_collective(op, found[op], runs)
            elif opcode == "custom-call" and crosses(op, self.away):
                self._add_move(op, runs)
            elif not runs.is_fused and op not in self.away:  # on the host all is done in place
                self._add_local(op, runs, inside)
        if self.combine:
            self._combine(computation, found, places)
        # Only now: what runs as one has its shares.
        self.comm_s += sum([self.rows[number].time_s for number in places.values()])

    def _add_local(self, op: Instruction, runs: Runs, inside: dict[Instruction, float]) -> None:
        """A kernel's bytes and seconds stand at its last op.  `inside`: operations of those that have none."""
        count, work = runs.count, op_work(op)
        flops = work.flops * count
        self.transcendentals += work.transcendentals * count
        kernel = self.kernels.kernel_ending_in(op, work.bytes)
        if kernel is None:
            inside[op] = count_operations(work)
            self.rows.append(Priced(op, count, flops, 0.0, 0.0, 0.0, runs.is_exact, "flops_s"))
            return
        moved, launch = kernel.nbytes, kernel.starts * self.machine.launch
        others = sum([inside.get(part, 0.0) for part in kernel.others])
        running = local_time(work, moved, self.machine, others) - self.machine.launch
        seconds, bound = (launch + running) * count, _bound_of_kernel(launch, running, moved, self.machine)
        self.num_kernels += count * kernel.starts
        if work.matrix is not None and bound == "flops_s":
            self.matrix_s += running * count
            if not work.transcendentals:
                self.products[len(self.rows)] = running * count
        self.compute_s += seconds
        self.rows.append(Priced(op, count, flops, moved * count, 0.0, seconds, runs.is_exact, bound))

    def _add_move(self, op: Instruction, runs: Runs) -> None:
        nbytes, seconds = op.shape.byte_size * runs.count, _move_seconds(op, self.machine) * runs.count
        self.host_s += seconds
        self.num_kernels += runs.count
        self.rows.append(Priced(op, runs.count, 0.0, nbytes, 0.0, seconds, runs.is_exact, "host_s"))

    def _add_collective(self, op: Instruction, found: Collective, runs: Runs) -> None:
        seconds = collective_seconds(found, self.machine) * runs.count
        flops = op_work(op).flops * runs.count
        self.collectives.append(found)
        self.num_kernels += runs.count
        link: Part = "between_s" if placement_of(found, self.machine).nodes > 1 else "inside_s"
        self.rows.append(Priced(op, runs.count, flops, 0.0, found.bytes_per_device, seconds, runs.is_exact, link))

    def _combine(
        self, computation: Computation, found: Mapping[Instruction, Collective], places: Mapping[Instruction, int]
    ) -> None:
        """Give those that run as one, in their rows, their shares of its time."""
        for group in find_combined(computation, found):
            members = tuple(found[op] for op in group)
            whole = replace(members[0], nbytes=sum(one.nbytes for one in members))
            rate = collective_seconds(whole, self.machine) / whole.nbytes if whole.nbytes else 0.0
            for op, one in zip(group, members, strict=True):
                row = self.rows[places[op]]
                self.rows[places[op]] = row._replace(time_s=rate * one.nbytes * row.executions)
            self.num_kernels -= sum(self.rows[places[op]].executions for op in group[1:])
            self.combined.append(members)

    def slow_down_products(self) -> None:
        """Products that fill a program, to what the chip's power sustains; attention was measured so."""
        share = self.matrix_s / self.compute_s if self.products else 0.0
        rate = sustained_rate(self.machine, share)
        for number, seconds in self.products.items():
            row, more = self.rows[number], seconds / rate - seconds
            self.rows[number] = row._replace(time_s=row.time_s + more)
            self.compute_s += more

    def report(self, memory: PeakMemory, on_host: int) -> CostReport:
        dispatch_s = self.num_kernels * self.machine.dispatch_seconds
        return CostReport(
            flops=sum([row.flops for row in self.rows], 0.0),
            transcendentals=self.transcendentals,
            memory_traffic_bytes=sum([row.bytes for row in self.rows], 0.0),
            comm_bytes=sum([row.comm_bytes for row in self.rows], 0.0),
            time_s=max(self.compute_s + self.comm_s + self.host_s, dispatch_s),
            compute_s=self.compute_s,
            comm_s=self.comm_s,
            machine=self.machine,
            collectives=tuple(self.collectives),
            rows=tuple(self.rows),
            memory=memory,
            host_memory_bytes=on_host,
            host_s=self.host_s,
            guessed_loops=guessed_loops(self.runs),
            num_kernels=self.num_kernels,
            dispatch_s=dispatch_s,
            combined=tuple(self.combined),
        )


def sustained_rate(machine: Machine, share: float) -> float:
    """The part of their rate that the chip's power sustains for products which are such a share of what is computed,
    on the slowest device.

    >>> from hlosharding.cost import machines
    >>> sustained_rate(machines.h100(1), 0.5), sustained_rate(machines.h100(1), 1.0)
    (1.0, 0.89)
    """
    return machine.slowest * (1 - (1 - machine.sustained) * max(0.0, 2 * share - 1))


def _move_seconds(op: Instruction, machine: Machine) -> float:
    """Of one move between a device's memory and its host's."""
    if not machine.host_bandwidth:
        raise CostError(
            f"machine {machine.name!r} does not say how fast %{op.name} moves {op.shape} to the host's memory or back"
            + f" ({op.location})" * bool(op.location),
            remedy="give it a host_bandwidth, in bytes per second: dataclasses.replace(machine, host_bandwidth=25e9)",
        )
    return machine.launch + op.shape.byte_size / machine.host_bandwidth


def _bound_of_kernel(launch: float, running: float, nbytes: float, machine: Machine) -> Part:
    """Of one that runs so long behind its launch."""
    if launch > running:
        return "launch_s"
    # `running` is a difference, from which the launch was taken off again: it is not equal to the last bit.
    return "memory_s" if isclose(running, machine.traffic_seconds(nbytes), rel_tol=1e-6) else "flops_s"


def count_operations(work: OpWork) -> float:
    """Operations on the vector unit."""
    return work.flops + _OF_TRANSCENDENTAL * work.transcendentals


_OF_TRANSCENDENTAL = 10
"""Operations to which one expands: a short polynomial, and what brings its argument near zero."""


def local_time(work: OpWork, nbytes: float, machine: Machine, inside: float = 0.0) -> float:
    """Seconds of a local op's kernel, which moves `nbytes` and does so many operations beside the op's own `inside`."""
    if work.matrix is None:
        return op_time(count_operations(work) + inside, nbytes, work.dtype, machine, matrix=False)
    efficiency = matrix_efficiency(work.matrix, machine)
    if work.transcendentals:  # products with exponentials between are attention
        efficiency *= machine.attention_efficiency * (machine.attention_backward if work.is_backward else 1)
    products = op_time(work.flops / efficiency, nbytes, work.dtype, machine)
    exponentials = _OF_TRANSCENDENTAL * work.transcendentals / machine.vector_flops
    # A TPU's units for products, for vectors and for exponentials all have slots in each bundle of instructions
    # (cycles counted at ayaka14732.github.io/pallas-tpu-tutorial); on a GPU products do not hide them.
    return max(products, exponentials) if machine.platform == "tpu" else products + exponentials


def matrix_efficiency(sizes: tuple[int, int, int, int], machine: Machine) -> float:
    """Share of the peak that a product of these sizes can reach: padding to tiles, and the last, half-empty wave.

    `sizes`: batches, rows, columns, depth.  Where there are fewer tiles than units the depth is cut, too.

    >>> from hlosharding.cost import machines
    >>> matrix_efficiency((1, 8192, 8192, 8192), machines.h100()) > 0.9
    True
    """
    batch, rows, columns, depth = (max(1, size) for size in sizes)
    tile_rows, tile_columns, tile_depth = machine.matrix_tile
    tiles = batch * ceil(rows / tile_rows) * ceil(columns / tile_columns)
    cuts = min(max(1, machine.matrix_units // tiles), ceil(depth / (4 * tile_depth)))
    waves = ceil(tiles * cuts / machine.matrix_units)
    padded_depth = ceil(ceil(depth / cuts) / tile_depth) * tile_depth
    capacity = waves * machine.matrix_units * tile_rows * tile_columns * padded_depth
    return batch * rows * columns * depth / capacity


def placement_of(collective: Collective, machine: Machine) -> GroupPlacement:
    """Where the devices of a collective stand."""
    if collective.groups is None:
        return permute_placement(collective.pairs or (), machine)
    return group_placement(collective.groups, machine)


def collective_seconds(collective: Collective, machine: Machine) -> float:
    """Seconds of one execution of a collective."""
    return placement_time(collective.kind, collective.nbytes, placement_of(collective, machine), machine)[0]
