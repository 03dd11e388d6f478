"""The emitter: writes what a partitioned op is made of, local ops and collectives, into one local computation.

Floor: spmd.  Knows no shardings: it takes device groups, tables and shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import Instruction
from hlosharding.spmd.local_ops import LocalOps
from hlosharding.spmd.manual_groups import ManualGroups
from hlosharding.spmd.participants import Groups


class Emitter(LocalOps):
    """Local ops, and collectives over device groups.

    Groups cover all devices and are of one size; a group of one is no communication.  Inside manual groups their
    numbers are positions in a group, and each collective is repeated for all manual groups.
    """

    def inside(self, manual_groups: ManualGroups) -> Emitter:
        """Writes into the same computation on behalf of every group of a manual region."""
        inner = Emitter(self.program, self.computation, manual_groups)
        inner.cause = self.cause
        # Shared, not copied: both write into one computation, where equal ops are one instruction, whoever asks.
        inner._made, inner._copied, inner._our_slices = self._made, self._copied, self._our_slices
        return inner

    def _in_all_groups(self, groups: Groups) -> Groups:
        """Device groups as the collectives name them."""
        if self.manual_groups is None:
            return groups
        return tuple(members for group in groups for members in self.manual_groups.in_every_group(group))

    def all_gather(self, x: Instruction, dim: int, groups: Groups) -> Instruction:
        """Tiles of a group joined along `dim`, in group order."""
        size = len(groups[0])
        if size == 1:
            return x
        groups = self._in_all_groups(groups)
        return self.collective(
            "all-gather", x.shape.with_dim(dim, x.shape.dims[dim] * size), x, (dim, groups),
            dimensions=(dim,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def all_reduce(self, x: Instruction, groups: Groups, kind: str) -> Instruction:
        """Elementwise reduction over each group; every member gets the result."""
        if len(groups[0]) == 1:
            return x
        if not x.shape.rank and kind in ("and", "or"):
            # The groups hold copies.  One group of all: then nobody need show that they agree on where a loop ends.
            groups = (tuple(device for group in groups for device in group),)
        groups = self._in_all_groups(groups)
        reducer = self.program.scalars.reducer(kind, x.shape.element_type)
        return self.collective(
            "all-reduce", x.shape, x, (groups, kind),
            called=(reducer,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def reduce_scatter(self, x: Instruction, dim: int, groups: Groups, kind: str) -> Instruction:
        """Elementwise reduction over each group; member i gets the i-th part along `dim`."""
        size = len(groups[0])
        if size == 1:
            return x
        groups = self._in_all_groups(groups)
        reducer = self.program.scalars.reducer(kind, x.shape.element_type)
        return self.collective(
            "reduce-scatter", x.shape.with_dim(dim, x.shape.dims[dim] // size), x, (dim, groups, kind),
            called=(reducer,), dimensions=(dim,), replica_groups=groups, use_global_device_ids=True,
        )  # fmt: skip

    def all_to_all(self, x: Instruction, split_dim: int, concat_dim: int, groups: Groups) -> Instruction:
        """Part j along `split_dim` goes to member j; what arrives is joined along `concat_dim` in group order."""
        size, dims = len(groups[0]), x.shape.dims
        if size == 1:
            return x
        groups = self._in_all_groups(groups)
        if split_dim == concat_dim:
            return self.collective(
                "all-to-all", x.shape, x, (split_dim, groups), dimensions=(split_dim,), replica_groups=groups
            )
        # HLO's array form splits and joins the same dim: give the parts a dim of their own, then move it.
        parts = (*dims[:split_dim], size, dims[split_dim] // size, *dims[split_dim + 1 :])
        split = self.reshape(x, parts)
        moved = self.collective(
            "all-to-all", split.shape, split, (split_dim, groups), dimensions=(split_dim,), replica_groups=groups
        )
        # The dim of the parts has shifted all dims behind the split one by one.
        target = concat_dim if concat_dim < split_dim else concat_dim + 1
        order = [d for d in range(len(parts)) if d != split_dim]
        # Whose part it is becomes the major part of the joined dim, so that parts stand in group order.
        order.insert(order.index(target), split_dim)
        out = [d // size if i == split_dim else d * size if i == concat_dim else d for i, d in enumerate(dims)]
        return self.reshape(self.transpose(moved, order), out)

    def collective_permute(self, x: Instruction, pairs: Sequence[tuple[int, int]]) -> Instruction:
        """Device t receives x of s for each pair (s, t); a device that is no target gets zeros."""
        # Only where these are all devices: one that is no target gets zeros, which is something.
        if all(s == t for s, t in pairs) and len(pairs) == self.num_partitions:
            return x
        # In one order, however they were asked for, so that equal permutes are one instruction.
        pairs = tuple(sorted((s, t) for s, t in self._in_all_groups(tuple(pairs))))
        return self.collective("collective-permute", x.shape, x, pairs, source_target_pairs=pairs)
