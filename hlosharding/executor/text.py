"""How values, types and names are written in generated Python.

Floor: executor.  Knows numpy and identifiers; nothing of ops or devices.
"""

from __future__ import annotations

import keyword
import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding.ir import Shape
from hlosharding.printable import printable

_WIDTH = 112
_NOT_IDENTIFIER, _NOT_ASCII = re.compile(r"\W+"), re.compile(r"[^0-9A-Za-z_]+")
GLOBAL_NAMES = frozenset(
    "np jax jnp lax P AXES CALLBACKS CONSTANTS io_callback buffer_callback compute_on IN_SPECS compile_once"
    " attention_in_full keeping_nan OUT_SPECS program stablehlo Any Callable ml_dtypes operator partial CLIP DROP"
    " complex".split()  # the last is the builtin, which constants use
)


def identifier(name: str) -> str:
    """A Python identifier that still reads like `name`.

    >>> identifier("params['layers'][0]['w']"), identifier("dot.12"), identifier("in"), identifier("3d")
    ('params_layers_0_w', 'dot_12', 'in_', 'v3d')
    """
    # Python compares identifiers in this form: without it two names could be one variable.
    clean = _NOT_IDENTIFIER.sub("_", unicodedata.normalize("NFKC", name)).strip("_") or "value"
    if not f"v{clean}".isidentifier():  # Python counts fewer letters than \w does
        clean = _NOT_ASCII.sub("_", clean).strip("_") or "value"
    if not clean.isidentifier():
        clean = f"v{clean}"
    return f"{clean}_" if keyword.iskeyword(clean) or clean in GLOBAL_NAMES else clean


# ---- text of others: the only ways by which it gets into a program


def comment_text(text: str) -> str:
    r"""What may stand behind `#` until the end of the line, whatever is in it.

    >>> comment_text("model.py:3"), comment_text("a.py\n    import os"), comment_text("\u202e")
    ('model.py:3', 'a.py\\n    import os', '\\u202e')
    """
    return printable(text)


def string_text(text: str) -> str:
    r"""A string literal.

    >>> string_text("data"), string_text('a"b\\')
    ('"data"', '"a\\"b\\\\"')
    """
    return f'"{quoted_text(text)}"'


def quoted_text(text: str) -> str:
    """What may stand between double quotes, one or three.

    >>> quoted_text("jit_step")
    'jit_step'
    """
    return "".join(f"\\{c}" if c in '"\\' else printable(c) for c in text)


def block_text(text: str) -> str:
    """A literal of several lines: raw where nothing in it could end it."""
    if '"""' in text or text.endswith(('"', "\\")) or not all(c == "\n" or c.isprintable() for c in text):
        return "(\n" + "\n".join(f"    {string_text(line + chr(10))}" for line in text.split("\n")) + "\n)"
    return f'r"""\n{text}\n"""'


class Namer:
    """Gives each thing a name of its own.

    >>> namer = Namer({"taken"})
    >>> namer.fresh("taken"), namer.fresh("a"), namer.fresh("a")
    ('taken_1', 'a', 'a_1')
    """

    def __init__(self, taken: set[str] | frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def fresh(self, wish: str) -> str:
        """`wish`, or `wish_N` with the smallest free N."""
        name, number = wish, self._next.get(wish, 0)
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}"
        self._next[wish] = number
        self._taken.add(name)
        return name


def dtype_text(shape: Shape) -> str:
    """The dtype as an expression: `np.float32`, `np.bool_`, `ml_dtypes.bfloat16`.

    >>> dtype_text(Shape.array("pred")), dtype_text(Shape.array("bf16"))
    ('np.bool_', 'ml_dtypes.bfloat16')
    """
    name = shape.dtype.name
    if name == "bool":
        return "np.bool_"
    return f"np.{name}" if hasattr(np, name) else f"ml_dtypes.{name}"


def scalar_text(value: Any) -> str:
    """A numpy scalar as an expression that makes exactly that value.

    >>> scalar_text(np.float32(0.1)), scalar_text(np.int32(-3)), scalar_text(np.float32("-inf"))
    ('np.float32(0.1)', 'np.int32(-3)', "np.float32('-inf')")
    """
    array = np.asarray(value)
    kind = dtype_text(Shape.from_dtype(array.dtype, ()))
    if array.dtype == np.bool_:
        return f"{kind}({bool(array)})"
    if array.dtype.kind in "iu":
        return f"{kind}({int(array)})"
    if array.dtype.kind == "c":
        return f"{kind}(complex({_real(np.real(array))}, {_real(np.imag(array))}))"
    return f"{kind}({_real(array, exact=array.dtype)})"


def shape_text(shape: Shape) -> str:
    """Shape and type of an array, or a tuple of them.

    >>> shape_text(Shape.array("f32", (4,)))
    'jax.ShapeDtypeStruct((4,), np.float32)'
    """
    if not shape.is_tuple:
        return f"jax.ShapeDtypeStruct({shape.dims}, {dtype_text(shape)})"
    return tuple_of([shape_text(part) for part in shape.tuple_shapes])


_LITERAL_TYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
)


def literal_text(value: Any) -> str:
    """The Python literal that an operator takes for exactly that numpy scalar, or "" where there is none.

    >>> literal_text(np.float32(1e-5)), literal_text(np.int32(-3)), literal_text(np.float32("-inf"))
    ('1e-05', '-3', '-np.inf')
    >>> literal_text(np.uint32(2**32 - 1))  # JAX reads integers as signed first
    ''
    """
    array = np.asarray(value)
    if array.dtype.name not in _LITERAL_TYPES:
        return ""
    if array.dtype.kind == "b":
        return str(bool(array))
    if array.dtype.kind in "iu":
        return str(int(array)) if int(array) < 1 << (63 if array.dtype.itemsize == 8 else 31) else ""
    if not math.isfinite(float(array)):
        return {"nan": "np.nan", "inf": "np.inf", "-inf": "-np.inf"}[str(float(array))]
    short = _real(array, exact=array.dtype)
    # On its way to a narrow type a literal may be a float32.
    is_same = array.dtype.itemsize > 2 or np.float32(short).astype(array.dtype) == array
    return short if is_same else repr(float(array))


def _real(value: Any, exact: np.dtype | None = None) -> str:
    number = float(value)
    if not math.isfinite(number):
        return f"'{number}'" if exact is not None else f"float('{number}')"
    short = str(np.asarray(value)[()])
    if exact is not None and _is_number(short) and np.asarray(float(short)).astype(exact) == value:
        return short
    return repr(number)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_plain_nan(array: np.ndarray) -> bool:
    """True unless some NaN in `array`, or in a part of a complex number, has another bit pattern than numpy's own."""
    parts = array.reshape(-1).view(np.real(array).dtype)
    nan = parts[np.isnan(parts)]
    return not nan.size or nan.tobytes() == np.full(nan.size, np.nan, nan.dtype).tobytes()


def tuple_text(values: Any) -> str:
    """A tuple of ints, or of tuples, as Python writes it."""
    return repr(tuple(tuple(map(int, v)) if isinstance(v, (tuple, list)) else int(v) for v in values))


def tuple_of(texts: Sequence[str]) -> str:
    """Several expressions as a tuple.

    >>> tuple_of(["a"]), tuple_of(["a", "b"])
    ('(a,)', '(a, b)')
    """
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def one_or_tuple(texts: Sequence[str]) -> str:
    """Several expressions as the tuple that lax functions take; a single one as it is.

    >>> one_or_tuple(["a"]), one_or_tuple(["a", "b"])
    ('a', '(a, b)')
    """
    return texts[0] if len(texts) == 1 else tuple_of(texts)


def wrap_items(prefix: str, items: Sequence[str], suffix: str) -> list[str]:
    """`prefix item, item, ... suffix` on one line where it fits, else the items on lines of their own.

    >>> wrap_items("f(", ["a", "b"], ")")
    ['f(a, b)']
    """
    one = f"{prefix}{', '.join(items)}{suffix}"
    if len(one) <= _WIDTH or len(items) < 2:
        return [one]
    lines = ["    "]
    for item in items:
        if len(lines[-1]) + len(item) + 2 > _WIDTH and lines[-1].strip():
            lines.append("    ")
        lines[-1] += f"{item}, "
    return [prefix, *map(str.rstrip, lines), suffix]
