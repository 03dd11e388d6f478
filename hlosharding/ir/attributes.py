"""Typed attribute records: what an instruction's proto says beyond opcode, shape and operands.

Floor: ir.  Each record knows how to read itself from the proto and write itself back; nothing else does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np

from hlosharding.notebook import file_name

# ---- whose code a source file is: the user's, or that of a library that he does not look at first
#
# The one place that says so, for lines, reports and the names of generated functions.


_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\](\w+)")
_STANDARD = re.compile(r".*[/\\]lib[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages[/\\])")
_BLOCKS = {
    "jax", "jaxlib", "flax", "haiku", "equinox", "penzai", "optax", "chex", "einops", "jaxtyping", "beartype", "numpy",
    "orbax", "qwix", "numpyro", "blackjax", "distrax", "hlosharding",
}  # fmt: skip
"""Packages of building blocks: who calls them says more.  Others that are installed hold models, as MaxText does."""


def register_library(package: str) -> None:
    """Count an installed package as a library: lines and functions are those of whoever calls it.

    For programs that are traced or loaded from now on.

    >>> is_library_file("/env/lib/python3.12/site-packages/mylab/layers.py")
    False
    >>> register_library("mylab")
    >>> is_library_file("/env/lib/python3.12/site-packages/mylab/layers.py")
    True
    """
    _BLOCKS.add(package)
    is_library_file.cache_clear()


@lru_cache(maxsize=4096)
def is_library_file(file: str) -> bool:
    """Is it a file of such a package, or of Python's own?

    >>> is_library_file("/env/lib/python3.12/site-packages/flax/linen/linear.py"), is_library_file("/home/me/train.py")
    (True, False)
    """
    found = _INSTALLED.match(file)
    return found[1] in _BLOCKS if found is not None else _STANDARD.match(file) is not None


@dataclass(frozen=True, slots=True)
class _DimNumbers:
    """Base of records whose fields are named as the proto's (scalars, or tuples of dims), but for a common end."""

    common_end: ClassVar[str] = ""

    @classmethod
    def read(cls, proto: Any) -> Self:
        values = {f.name: getattr(proto, f.name + cls.common_end) for f in fields(cls)}
        return cls(**{k: v if isinstance(v, int) else tuple(v) for k, v in values.items()})

    def write(self, proto: Any) -> None:
        proto.Clear()
        for f in fields(self):
            name, value = f.name + self.common_end, getattr(self, f.name)
            if isinstance(value, int):
                setattr(proto, name, value)
            else:
                getattr(proto, name).extend(value)


@dataclass(frozen=True, slots=True)
class DotDims(_DimNumbers):
    """Which dims of a dot are contracted and which are batch dims; all others are free."""

    common_end = "_dimensions"
    lhs_contracting: tuple[int, ...] = ()
    rhs_contracting: tuple[int, ...] = ()
    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()

    def lhs_free(self, rank: int) -> tuple[int, ...]:
        """Dims of the left operand that are neither contracted nor batch, in order."""
        return tuple(d for d in range(rank) if d not in self.lhs_contracting and d not in self.lhs_batch)

    def rhs_free(self, rank: int) -> tuple[int, ...]:
        """Dims of the right operand that are neither contracted nor batch, in order."""
        return tuple(d for d in range(rank) if d not in self.rhs_contracting and d not in self.rhs_batch)


@dataclass(frozen=True, slots=True)
class WindowDim(_DimNumbers):
    """One dim of a sliding window; paddings may be negative."""

    size: int = 1
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def is_trivial(self) -> bool:
        """True when output position i sees input position i alone."""
        return self == WindowDim()

    @property
    def is_undilated(self) -> bool:
        return self.base_dilation == self.window_dilation == 1

    @property
    def is_unpadded(self) -> bool:
        """Nor reversed: output position 0 sees the first elements, in order."""
        return self.padding_low == self.padding_high == 0 and not self.window_reversal

    def is_running(self, size: int) -> bool:
        """Does a reduction over it run along a dim of that size: does every window reach back to the edge?

        >>> WindowDim(size=8, padding_low=7).is_running(8)
        True
        """
        padding = max(self.padding_low, self.padding_high)
        return self.size >= size > 1 and self.stride == 1 and padding >= size - 1

    def is_batch_of(self, size: int) -> bool:
        """Does XLA's dot canonicalisation write a batch dim of that size so, in one of three forms?

        >>> WindowDim(size=4, stride=3, base_dilation=4).is_batch_of(4)
        True
        """
        if size != self.size:
            return False
        # As XLA's ConvSpatialDimensionIsParallel: a batch of one has stride 1, not 0.
        apart = max(1, size - 1)
        if self.is_unpadded and self.base_dilation == size:
            return (self.stride, self.window_dilation) in ((apart, 1), (1, apart))
        padded = self.padding_low == self.padding_high == size - 1 and self.window_reversal
        return padded and (self.stride, self.base_dilation, self.window_dilation) == (size, size - 1, 1)


@dataclass(frozen=True, slots=True)
class ConvDims(_DimNumbers):
    """The role of every dim of a convolution's input, kernel and output."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GatherDims(_DimNumbers):
    """How a gather's indices address the operand (XLA's GatherDimensionNumbers)."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScatterDims(_DimNumbers):
    """How a scatter's indices address the operand (XLA's ScatterDimensionNumbers)."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SliceDim(_DimNumbers):
    """One dim of a static slice: elements start, start + stride, ... below limit."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class PaddingDim(_DimNumbers):
    """One dim of a pad; edges may be negative, interior counts elements between neighbours."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0

    @property
    def low(self) -> int:
        return self.edge_padding_low

    @property
    def high(self) -> int:
        return self.edge_padding_high

    @property
    def interior(self) -> int:
        return self.interior_padding


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python stack frame an instruction came from."""

    file: str
    function: str
    line: int
    column: int
    end_line: int = field(default=0, compare=False)
    """Where the expression ends that runs; its beginning where that is not known.  XLA drops it on some ways."""
    end_column: int = field(default=0, compare=False)

    @property
    def is_library(self) -> bool:
        """Is it of a library, which a user does not look at first?"""
        return is_library_file(self.file)

    @property
    def is_node(self) -> bool:
        """True in an ONNX model, where nodes stand for lines: `function` is the node."""
        return self.file.endswith(".onnx")

    @property
    def function_name(self) -> str:
        """The function's own name; of a method like `Block.__call__` its class's.

        >>> Frame("m.py", "Block.__call__", 3, 0).function_name, Frame("m.py", "make.<locals>.step", 3, 0).function_name
        ('Block', 'step')
        """
        *outer, name = self.function.split(".")
        return outer[-1] if outer and name.startswith("__") else name

    def __str__(self) -> str:
        return f"{file_name(self.file)}:{self.function if self.is_node else self.line}"


class Stack(tuple[Frame, ...]):
    """A Python stack, innermost frame first.  Thousands of instructions share one."""

    @classmethod
    def from_index(cls, index: Any, number: int) -> Self:
        """Of a frame of a `StackFrameIndexProto`; none where a place that it needs is missing, as XLA has it."""
        try:
            return cls([_frame(index, n) for n in frame_numbers(index, number)])
        except IndexError:
            return cls()

    @cached_property
    def of_user(self) -> tuple[Frame, ...]:
        """Those outside libraries."""
        return tuple([frame for frame in self if not frame.is_library])

    @cached_property
    def function_name(self) -> str:
        """Of the innermost function of the user's that has one; "" where none has."""
        return next((name for frame in self.of_user if (name := frame.function_name).isidentifier()), "")

    @cached_property
    def location(self) -> str:
        """ "file.py:31" of the innermost frame outside libraries; "" when unknown."""
        return next((str(frame) for frame in self.of_user or self), "")


def frame_numbers(index: Any, number: int) -> list[int]:
    """A frame of a `StackFrameIndexProto` and those that called it, innermost first, by their ids: 0 is none.

    Each stands once: a stranger's frames may call themselves.
    """
    found: dict[int, None] = {}
    while 0 < number <= len(index.stack_frames) and number not in found:
        found[number] = None
        number = index.stack_frames[number - 1].parent_frame_id
    return list(found)


def _frame(index: Any, number: int) -> Frame:
    where = _numbered(index.file_locations, index.stack_frames[number - 1].file_location_id)
    file, function = (
        _numbered(index.file_names, where.file_name_id),
        _numbered(index.function_names, where.function_name_id),
    )
    end = where.end_line, where.end_column
    return Frame(file, function, where.line, where.column, *(end if all(end) else (where.line, where.column)))


def _numbered(items: Sequence[Any], number: int) -> Any:
    """Of items that are counted from 1."""
    return items[number - 1 if number > 0 else len(items)]


def is_at(location: str, line: str) -> bool:
    """Does "model.py:31", or "train/model.py:31", mean a source line?  `location`: as instructions have it.

    >>> is_at("train/model.py:31", "model.py:31"), is_at("train/model.py:31", "el.py:31"), is_at("", "")
    (True, False, False)
    """
    return bool(location) and f"/{location}".endswith(f"/{line}")


Groups = tuple[tuple[int, ...], ...]


def _iota(dims: tuple[int, ...], reshape: list[int], transpose: list[int]) -> np.ndarray:
    ids = np.arange(int(np.prod(reshape))).reshape(reshape)
    return (ids.transpose(transpose) if transpose else ids).reshape(dims)


def _mesh_groups(proto: Any) -> Groups:
    """Groups run over the listed (sub-)axes in listed order; all other (sub-)axes number the groups."""
    mesh, sizes = proto.mesh, [a.size for a in proto.mesh.axes]
    ids = np.arange(int(np.prod(sizes)))
    if mesh.HasField("iota_transform"):
        t = mesh.iota_transform
        ids = _iota((-1,), list(t.reshape_dims), list(t.transpose_perm))
    elif mesh.device_ids:
        ids = np.array(mesh.device_ids)
    used = [_axis_part(ref, sizes) for ref in proto.axes]
    parts: list[tuple[int, int, int]] = []
    for axis, size in enumerate(sizes):
        # Each axis is cut wherever a reference begins or ends, so that every reference is a run of whole parts.
        cuts = sorted({1, size} | {c for a, lo, hi in used if a == axis for c in (lo, hi)})
        parts += [(axis, lo, hi) for lo, hi in pairwise(cuts)]
    order = [i for a, lo, hi in used for i, (b, x, y) in enumerate(parts) if a == b and lo <= x and y <= hi]
    rest = [i for i in range(len(parts)) if i not in order]
    grid = ids.reshape([hi // lo for _, lo, hi in parts] or [1]).transpose([*rest, *order] if parts else [0])
    size = int(np.prod([parts[i][2] // parts[i][1] for i in order]))
    return tuple(tuple(map(int, row)) for row in grid.reshape(-1, size))


def _axis_part(ref: Any, sizes: list[int]) -> tuple[int, int, int]:
    axis = int(ref.mesh_axis_index)
    if not ref.HasField("sub_axis_info"):
        return axis, 1, sizes[axis]
    pre = int(ref.sub_axis_info.pre_size)
    return axis, pre, pre * int(ref.sub_axis_info.size)


def read_replica_groups(proto: Any) -> Groups:
    """The groups of a collective, from any of the wire forms; () means one group of all."""
    if proto.HasField("mesh_replica_groups"):
        return _mesh_groups(proto.mesh_replica_groups)
    # jaxlib 0.10 and later write an iota list on the instruction itself; earlier ones wrap it.
    if proto.HasField("iota_replica_groups"):
        return _iota_groups(proto.iota_replica_groups)
    if proto.HasField("collective_device_list"):
        devices = proto.collective_device_list
        if devices.HasField("iota_replica_group_list"):
            return _iota_groups(devices.iota_replica_group_list)
        return tuple(tuple(g.replica_ids) for g in devices.replica_groups)
    return tuple(tuple(g.replica_ids) for g in proto.replica_groups)


def _iota_groups(proto: Any) -> Groups:
    dims = (proto.num_replica_groups, proto.num_devices_per_group)
    grid = _iota(dims, list(proto.iota_reshape_dims), list(proto.iota_transpose_perm))
    return tuple(tuple(map(int, row)) for row in grid)


def write_replica_groups(proto: Any, groups: Groups) -> None:
    """Write explicit groups, the form every jaxlib reads."""
    for name in ("mesh_replica_groups", "iota_replica_groups", "replica_groups", "collective_device_list"):
        proto.ClearField(name)
    for group in groups:
        proto.collective_device_list.replica_groups.add(replica_ids=group)
        proto.replica_groups.add(replica_ids=group)
