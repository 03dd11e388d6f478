"""What ops take on one device's part of them: kernels of the whole program, priced for the part.

Floor: search.
"""

from __future__ import annotations

from collections.abc import Iterable

from hlosharding.cost import Kernels, Machine, OpWork, cost, count_operations, local_time, matrix_sizes, op_work
from hlosharding.ir import Instruction, Module, Shape
from hlosharding.partitioner import OpSplit
from hlosharding.search.optimum.one_device import run_on_one_device
from hlosharding.sharding import HloSharding

_MADE_ANEW = frozenset({"broadcast", "iota", "reshape"})
"""What the partitioner writes itself, and kernels make on their way."""
_ROUNDED = 1 + 1e-6
"""Times: what sums of seconds lose."""


class OpSeconds:
    """Prices kernels of a module for parts of them.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... ENTRY e { x = f32[4096,4096] parameter(0)  ROOT y = f32[4096,4096] tanh(x) }''')
    >>> seconds, split = OpSeconds(module, hs.machines.h100(2)), HloSharding.parse("{devices=[2,1]<=[2]}")
    >>> seconds.of_part(module.entry.root, split) < 0.6 * seconds.of_part(module.entry.root, HloSharding.replicate())
    True
    """

    def __init__(self, module: Module, machine: Machine) -> None:
        self.local, self.ops = run_on_one_device(module)
        self.machine, self.kernels = machine, Kernels(self.local, joins=machine.platform != "cpu")

    def is_hidden(self, op: Instruction) -> bool:
        """Is it a value that no kernel writes to memory?"""
        found = self.ops.get(op.name, ())
        return all(one in self.kernels[one.computation] for one in found) if found else op.opcode in _MADE_ANEW

    def of_part(self, op: Instruction, place: HloSharding) -> float:
        """Of the kernel that ends in an op on elements, its result lying so."""
        return self._seconds(op, op_work(op), 1 / place.num_tiles, 1 / place.num_tiles)

    def of_split(self, op: Instruction, split: OpSplit) -> float:
        """Of the kernel that ends in an op which is split so."""
        shapes = [*(operand.shape for operand in op.operands), *op.shape.leaves]
        whole = sum(shape.byte_size for shape in shapes)
        places = (*split.operands, *split.results)
        part = sum(_tile(shape, place).byte_size for shape, place in zip(shapes, places, strict=True))
        work = op_work(op)
        return self._seconds(op, work._replace(matrix=_matrix(op, work, split)), split.work, part / (whole or 1))

    def of_product(self, op: Instruction, split: OpSplit) -> float:
        """Of these, those of a product that is longer than its launch and the traffic of memory."""
        work = op_work(op)
        # Products with exponentials between are attention, which `cost` leaves out of those that power limits, too.
        if work.matrix is None or work.transcendentals:
            return 0.0
        part = work._replace(matrix=_matrix(op, work, split), flops=work.flops * split.work)
        bound = local_time(part, 0.0, self.machine) - self.machine.launch
        is_bound = bound >= self.machine.launch and self.of_split(op, split) <= (bound + self.machine.launch) * _ROUNDED
        return bound * is_bound

    def of_others(self, names: Iterable[str]) -> float:
        """Of a step, of the kernels of all ops but these, what they make split over all devices."""
        these = {op for name in names for op in self.ops.get(name, ())}
        rows = [row for row in cost(self.local, self.machine).rows if row.time_s and row.instruction not in these]
        # Starts of kernels take as long however small the parts are.
        starts = self.machine.launch * sum(row.executions for row in rows)
        return starts + (sum(row.time_s for row in rows) - starts) / self.machine.num_devices

    def _seconds(self, op: Instruction, work: OpWork, share: float, of_bytes: float) -> float:
        """`share`: of the operations; `of_bytes`: of what is read and written.  Where it is called from several places,
        the mean."""
        found = self.ops.get(op.name, ()) if work.bytes else ()
        return sum(self._of_kernel(one, work, share, of_bytes) for one in found) / max(1, len(found))

    def _of_kernel(self, op: Instruction, work: OpWork, share: float, of_bytes: float) -> float:
        kernel = self.kernels.kernel_ending_in(op, work.bytes)
        if kernel is None:
            return 0.0
        inside = share * sum(count_operations(op_work(other)) for other in kernel.others)
        part = work._replace(flops=work.flops * share, transcendentals=work.transcendentals * share)
        # One start is in `local_time`.
        launches = (kernel.starts - 1) * self.machine.launch
        return launches + local_time(part, kernel.nbytes * of_bytes, self.machine, inside)


def _matrix(op: Instruction, work: OpWork, split: OpSplit) -> tuple[int, int, int, int] | None:
    """Sizes of one device's product."""
    if op.opcode == "dot":
        dims = op.dot_dims
        said = dims.lhs_contracting, dims.rhs_contracting, dims.lhs_batch, dims.rhs_batch
        lhs, rhs = (_tile(o.shape, place).dims for o, place in zip(op.operands, split.operands, strict=True))
        batch, rows, depth, columns = matrix_sizes(lhs, rhs, said)
        return batch, rows, columns, depth
    if work.matrix is None:
        return None
    batch, rows, columns, depth = work.matrix
    return batch, max(1, round(rows * split.work)), columns, depth


def _tile(shape: Shape, place: HloSharding) -> Shape:
    return shape.with_dims(place.tile_shape(shape.dims)) if shape.is_array and shape.rank else shape
