"""Shapes: an element type with dims, or a tuple of shapes.  Interned, so equal shapes are one object.

Floor: ir.  Knows nothing of layouts (they stay in the proto) and nothing of shardings.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from hlosharding import wire
from hlosharding.errors import ModuleError

# XLA's PrimitiveType numbers, and the bits an element takes in memory.
_TYPES: dict[str, tuple[int, int]] = {
    "pred": (1, 8), "s2": (26, 2), "s4": (21, 4), "s8": (2, 8), "s16": (3, 16), "s32": (4, 32), "s64": (5, 64),
    "u2": (27, 2), "u4": (22, 4), "u8": (6, 8), "u16": (7, 16), "u32": (8, 32), "u64": (9, 64),
    "f16": (10, 16), "f32": (11, 32), "bf16": (16, 16), "f64": (12, 64),
    "f8e5m2": (19, 8), "f8e4m3": (28, 8), "f8e4m3fn": (20, 8), "f8e4m3b11fnuz": (23, 8), "f8e3m4": (29, 8),
    "f8e5m2fnuz": (24, 8), "f8e4m3fnuz": (25, 8), "f4e2m1fn": (32, 4), "f8e8m0fnu": (33, 8),
    "c64": (15, 64), "c128": (18, 128), "tuple": (13, 0), "opaque": (14, 0), "token": (17, 0), "buffer": (34, 0),
}  # fmt: skip
_NAMES = {number: name for name, (number, _) in _TYPES.items()}
_NUMPY = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64",
    "c128": "complex128",
}  # fmt: skip
_ML_DTYPES = {
    "bf16": "bfloat16", "s2": "int2", "s4": "int4", "u2": "uint2", "u4": "uint4", "f8e5m2": "float8_e5m2",
    "f8e4m3": "float8_e4m3", "f8e4m3fn": "float8_e4m3fn", "f8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "f8e3m4": "float8_e3m4", "f8e5m2fnuz": "float8_e5m2fnuz", "f8e4m3fnuz": "float8_e4m3fnuz",
    "f4e2m1fn": "float4_e2m1fn", "f8e8m0fnu": "float8_e8m0fnu",
}  # fmt: skip
UNBOUNDED = -(1 << 63)
"""XLA's size of a dim that has neither a size nor a bound (`f32[?]`)."""
_ARRAY_TEXT = re.compile(r"\s*([a-z]\w*)\[([^\]]*)\](\{[^}]*\})?\s*$")
# XLA counts in 64 bits.
_SIZE = re.compile(r"(<=)?\d{1,18}|\?")


@dataclass(frozen=True, eq=False)
class Shape:
    """An array shape, a tuple shape, or a token.  Make one with `array`, `tuple` or `parse`.

    >>> Shape.array("f32", (2, 3)) is Shape.parse("f32[2,3]{1,0}")
    True
    >>> str(Shape.tuple((Shape.array("f32", (2,)), Shape.array("s32", ())))), Shape.array("bf16", (2, 3)).byte_size
    ('(f32[2], s32[])', 12)
    """

    element_type: str
    """XLA's lower-case name: "f32", "pred", "token", or "tuple"."""
    dims: tuple[int, ...] = ()
    tuple_shapes: tuple[Shape, ...] = ()
    dynamic_dims: tuple[int, ...] = ()
    """Dims whose size is only a bound."""

    @staticmethod
    def array(element_type: str, dims: tuple[int, ...] = (), dynamic_dims: tuple[int, ...] = ()) -> Shape:
        """The shape of an array (or, without dims, of a scalar or token)."""
        return _intern(element_type, tuple(dims), (), dynamic_dims)

    @staticmethod
    def tuple(shapes: tuple[Shape, ...]) -> Shape:
        """The shape of a tuple."""
        return _intern("tuple", (), tuple(shapes), ())

    @staticmethod
    def parse(text: str) -> Shape:
        """Read XLA's text form; layouts are dropped.  Raises ModuleError."""
        return _parsed(text, 0)

    @staticmethod
    def from_dtype(dtype: Any, dims: tuple[int, ...]) -> Shape:
        """The shape of a numpy or JAX array.

        >>> str(Shape.from_dtype("int32", (4,)))
        's32[4]'
        """
        name = np.dtype(dtype).name
        for table in (_NUMPY, _ML_DTYPES):
            for element_type, numpy_name in table.items():
                if numpy_name == name:
                    return Shape.array(element_type, tuple(int(d) for d in dims))
        raise ModuleError(f"no XLA element type for dtype {name}")

    @staticmethod
    def from_proto(proto: Any) -> Shape:
        """Read a ShapeProto."""
        if proto.element_type == 13:
            return Shape.tuple(tuple(Shape.from_proto(s) for s in proto.tuple_shapes))
        flags = proto.is_dynamic_dimension
        dynamic = tuple(i for i, d in enumerate(flags) if d)
        if flags and len(flags) != len(proto.dimensions):
            raise ModuleError(f"a shape has {len(proto.dimensions)} dims, and {len(flags)} marks of dynamic ones")
        if proto.HasField("layout") and len(proto.layout.minor_to_major) != len(proto.dimensions):
            raise ModuleError(f"a shape has {len(proto.dimensions)} dims, its layout others")
        if proto.element_type not in _NAMES:
            raise ModuleError(f"a shape has the element type {proto.element_type}, which is none of XLA's")
        return _intern(_NAMES[proto.element_type], tuple(proto.dimensions), (), dynamic)

    @cached_property
    def proto(self) -> Any:
        """The ShapeProto, with the default (row-major) layout.  Shared: copy before changing it."""
        out = wire.ShapeProto(element_type=_TYPES[self.element_type][0], dimensions=self.dims)
        out.tuple_shapes.extend(s.proto for s in self.tuple_shapes)
        if self.is_array:
            out.layout.minor_to_major.extend(reversed(range(len(self.dims))))
            out.layout.tail_padding_alignment_in_elements = 1
            out.is_dynamic_dimension.extend(i in self.dynamic_dims for i in range(len(self.dims)))
        return out

    @cached_property
    def is_tuple(self) -> bool:
        return self.element_type == "tuple"

    @cached_property
    def is_token(self) -> bool:
        return self.element_type == "token"

    @cached_property
    def is_array(self) -> bool:
        return self.element_type not in ("tuple", "token", "opaque", "buffer")

    @property
    def rank(self) -> int:
        return len(self.dims)

    @cached_property
    def leaves(self) -> tuple[Shape, ...]:
        """All non-tuple shapes inside, in order; an array is its own leaf, an empty tuple has none."""
        return tuple(leaf for s in self.tuple_shapes for leaf in s.leaves) if self.is_tuple else (self,)

    @cached_property
    def first_leaves(self) -> tuple[int, ...]:
        """Number of the first leaf of each element of a tuple, and behind the last how many leaves there are.

        >>> Shape.parse("(f32[], (f32[], s32[]), pred[])").first_leaves
        (0, 1, 3, 4)
        """
        return tuple(accumulate((len(s.leaves) for s in self.tuple_shapes), initial=0))

    @cached_property
    def size(self) -> int:
        """Number of elements (of all leaves)."""
        return sum(s.size for s in self.tuple_shapes) if self.is_tuple else math.prod(self.dims)

    @property
    def bits(self) -> int:
        """Bits that an element takes in memory."""
        return _TYPES[self.element_type][1]

    @cached_property
    def byte_size(self) -> int:
        """Bytes in memory (of all leaves); 4-bit types take half a byte, rounded up per array."""
        if self.is_tuple:
            return sum(s.byte_size for s in self.tuple_shapes)
        return -(-math.prod(self.dims) * self.bits // 8)

    @cached_property
    def dtype(self) -> np.dtype:
        """The numpy dtype of the elements (ml_dtypes for what numpy lacks)."""
        if self.element_type in _NUMPY:
            return np.dtype(_NUMPY[self.element_type])
        import ml_dtypes  # only modules with narrow types pay for it

        return np.dtype(getattr(ml_dtypes, _ML_DTYPES[self.element_type]))

    @property
    def is_floating(self) -> bool:
        return self.element_type[0] == "f" or self.element_type == "bf16"

    @property
    def is_complex(self) -> bool:
        return self.element_type in ("c64", "c128")

    @property
    def is_integral(self) -> bool:
        return self.element_type[0] in "su" and self.is_array

    def with_dims(self, dims: tuple[int, ...]) -> Shape:
        """The same element type over other dims."""
        return _intern(self.element_type, tuple(dims), (), ())

    def with_dim(self, dim: int, size: int) -> Shape:
        """The same element type, one dim of another size.

        >>> Shape.parse("f32[4,8]").with_dim(1, 2)
        f32[4,2]
        """
        return self.with_dims((*self.dims[:dim], size, *self.dims[dim + 1 :]))

    def with_type(self, element_type: str) -> Shape:
        """The same dims with another element type."""
        return _intern(element_type, self.dims, (), self.dynamic_dims)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        if self.is_tuple:
            return f"({', '.join(map(str, self.tuple_shapes))})"
        sizes = (
            "?" if d == UNBOUNDED else f"<={d}" if i in self.dynamic_dims else str(d) for i, d in enumerate(self.dims)
        )
        return f"{self.element_type}[{','.join(sizes)}]"

    __repr__ = __str__

    def __reduce__(self) -> Any:
        # Unpickled by way of the table: shapes are compared by identity, and a copy would equal none.
        return _intern, (self.element_type, self.dims, self.tuple_shapes, self.dynamic_dims)


_DEEPEST = 100
"""Tuples in tuples, as protobuf takes them."""


def _parsed(text: str, depth: int) -> Shape:
    body = text.strip()
    if body.startswith("(") and body.endswith(")"):
        if depth == _DEEPEST:
            raise ModuleError(f"a shape is nested more than {_DEEPEST} tuples deep", remedy="take flatter ones")
        return Shape.tuple(tuple(_parsed(part, depth + 1) for part in _split(body[1:-1])))
    match = _ARRAY_TEXT.match(body)
    sizes = [d.strip() for d in match.group(2).split(",") if d.strip()] if match else []
    if not match or match.group(1) not in _TYPES or not all(map(_SIZE.fullmatch, sizes)):
        raise ModuleError(f"no shape: {text!r}", remedy='write it like "f32[2,3]" or "(f32[2], s32[])"')
    dynamic = tuple(i for i, d in enumerate(sizes) if d.startswith("<="))
    dims = tuple(UNBOUNDED if d == "?" else int(d.removeprefix("<=")) for d in sizes)
    return Shape.array(match.group(1), dims, dynamic)


def write_shape(proto: Any, shape: Shape) -> None:
    """Make a ShapeProto say `shape`.  Layouts stay where rank and type do: a custom call means them."""
    if proto.element_type and Shape.from_proto(proto) is shape:
        return
    is_alike = proto.element_type == _TYPES[shape.element_type][0] and len(proto.dimensions) == shape.rank
    if not is_alike or len(proto.tuple_shapes) != len(shape.tuple_shapes):
        proto.CopyFrom(shape.proto)
        return
    proto.dimensions[:] = shape.dims
    for part, own in zip(proto.tuple_shapes, shape.tuple_shapes, strict=True):
        write_shape(part, own)


_Parts = tuple[str, tuple[int, ...], tuple[Shape, ...], tuple[int, ...]]
_interned: dict[_Parts, Shape] = {}


def _intern(
    element_type: str, dims: tuple[int, ...], tuple_shapes: tuple[Shape, ...], dynamic: tuple[int, ...]
) -> Shape:
    key = element_type, dims, tuple_shapes, dynamic
    found = _interned.get(key)
    if found is not None:
        return found
    # Sizes may be numpy's, whose products wrap around.  Two threads may both make it: they take the first one's.
    made = Shape(element_type, tuple(map(int, dims)), tuple_shapes, dynamic)
    return _interned.setdefault(key, _lawful(made))


def _lawful(made: Shape) -> Shape:
    """The shape, if it can be one.  Raises ModuleError."""
    unsized = next((n for n, size in enumerate(made.dims) if size < 0), None)
    if unsized is not None:
        if made.dims[unsized] != UNBOUNDED:
            raise ModuleError(f"dim {unsized} of {made} is negative")
        raise ModuleError(
            f"dim {unsized} of {made} has no bound", remedy="give it a size, or a bound as in f32[<=8]: tiles need one"
        )
    if made.dims and not made.is_array:
        raise ModuleError(f"a {made.element_type} has dims {list(made.dims)}")
    return made


def _split(text: str) -> list[str]:
    """Split at top-level commas."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [p for p in (*parts, text[start:]) if p.strip()]
