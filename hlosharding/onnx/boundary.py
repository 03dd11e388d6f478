"""What a model takes: its inputs bound to shapes, or to values, that the user gave.

Floor: onnx.  Dims come from the arrays given, not from symbols: exporters give one dim two symbols.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

import numpy as np

from hlosharding.errors import LoadError
from hlosharding.ir import Shape
from hlosharding.onnx.budget import check_size
from hlosharding.onnx.element_types import bounds, dtype_of
from hlosharding.onnx.node_errors import errors_at
from hlosharding.onnx.values import Entry, NeedsInput, OnnxValue


@dataclass(frozen=True)
class Ports:
    """The inputs of a graph in order, each with what binds it."""

    bound: dict[str, Any]
    """Per input an array, a `jax.ShapeDtypeStruct`, a list of these (a sequence), or None (an empty optional)."""
    by_value: frozenset[str] = field(default=frozenset())
    """Whose values are constants of the program, since they decide shapes."""

    @classmethod
    def of(cls, ports: Sequence[Any], given: Mapping[str, Any]) -> Ports:
        """Binds each `onnx.ValueInfoProto`; raises LoadError for names, types and shapes that do not fit."""
        names = [port.name for port in ports]
        for name in given:
            if name not in names:
                near = get_close_matches(name, names, 1)
                remedy = f"did you mean {near[0]!r}?" if near else f"the inputs are {', '.join(names) or 'none'}"
                raise LoadError(f"the model has no input {name!r}", remedy=remedy)
        return cls({port.name: _bound(port, given) for port in ports})

    def with_value(self, needed: NeedsInput) -> Ports:
        """With one more input bound by value; raises the error where only its shape was given."""
        if needed.name in self.by_value or not _is_array(self.bound[needed.name]):
            raise needed
        return replace(self, by_value=self.by_value | {needed.name})

    @property
    def traced(self) -> tuple[Any, ...]:
        """The arguments of the program: shapes of all inputs but those bound by value."""
        return tuple(_shapes(v) for name, v in self.bound.items() if name not in self.by_value)

    @property
    def paths(self) -> list[str]:
        """The name of each array among them."""
        import jax

        named = {n: _shapes(v) for n, v in self.bound.items() if n not in self.by_value}
        found = [(name, jax.tree_util.tree_flatten_with_path(value)[0]) for name, value in named.items()]
        return [f"{name}{jax.tree_util.keystr(path)}" for name, leaves in found for path, _ in leaves]

    def entries(self, arguments: Sequence[Any]) -> dict[str, Entry]:
        """What the graph reads under each name, given the traced arguments."""
        waiting = iter(arguments)
        return {
            name: OnnxValue(known=np.asarray(value)) if name in self.by_value else _entry(next(waiting), name)
            for name, value in self.bound.items()
        }


def sizes_that_differ(ports: Sequence[Any], bound: Mapping[str, Any]) -> str:
    """Of the first symbol that two dims of the inputs share, and that has two sizes, both; else nothing."""
    found: dict[str, tuple[str, int]] = {}
    for port in ports:
        dims = port.type.tensor_type.shape.dim
        for dim, size in zip(dims, getattr(bound[port.name], "shape", ()), strict=False):
            name, first = found.setdefault(dim.dim_param, (port.name, size))
            if dim.dim_param and size != first:
                return f"the model's {dim.dim_param!r} is {first} in input {name!r} and {size} in {port.name!r}"
    return ""


def describe_array(array: Any) -> Any:
    """Shape and dtype of an array, as `jax.ShapeDtypeStruct`."""
    import jax

    return jax.ShapeDtypeStruct(np.shape(array), array.dtype)


def _entry(argument: Any, name: str) -> Entry:
    if argument is None:
        return None
    if isinstance(argument, list):
        return [_entry(each, name) for each in argument]
    return OnnxValue(argument, evaluate=partial(_refuse, name))


def _refuse(name: str) -> np.ndarray:
    raise NeedsInput(name)


def _is_array(bound: Any) -> bool:
    return isinstance(bound, np.ndarray | np.generic) or (hasattr(bound, "__array__") and hasattr(bound, "dtype"))


def _shapes(bound: Any) -> Any:
    if isinstance(bound, list):
        return [_shapes(each) for each in bound]
    return describe_array(bound) if _is_array(bound) else bound


def _bound(port: Any, given: Mapping[str, Any]) -> Any:
    kind = port.type.WhichOneof("value")
    if kind == "optional_type" and (port.name not in given or given[port.name] is None):
        return None
    inner = port.type.optional_type.elem_type if kind == "optional_type" else port.type
    if inner.WhichOneof("value") == "sequence_type":
        if not isinstance(given.get(port.name), list | tuple):
            raise LoadError(f"input {port.name!r} is a sequence", remedy="give it as a list of arrays")
        return [
            _array(each, inner.sequence_type.elem_type, f"{port.name}[{n}]") for n, each in enumerate(given[port.name])
        ]
    if inner.WhichOneof("value") != "tensor_type":
        found = inner.WhichOneof("value") or "value of no type"
        raise LoadError(f"input {port.name!r} is a {found}, which has no form in HLO")
    return _array(given[port.name], inner, port.name) if port.name in given else _declared(inner.tensor_type, port.name)


def _declared(tensor: Any, name: str) -> Any:
    """The shape as the model states it.  Raises LoadError where a dim is open."""
    import jax

    dims = [d.dim_value if d.dim_value > 0 else None for d in tensor.shape.dim]
    if not tensor.HasField("shape") or None in dims:
        shape = _dims_text(tensor.shape.dim) if tensor.HasField("shape") else "of any rank"
        hlo = Shape.from_dtype(dtype_of(tensor.elem_type), ()).element_type
        raise LoadError(
            f"input {name!r} is {dtype_of(tensor.elem_type)}{shape}: its size is open",
            remedy=f"give it: inputs={{{name!r}: array or jax.ShapeDtypeStruct}} (--input {name}={hlo}[...])",
        )
    with errors_at(f"input {name!r}"):
        check_size([size or 0 for size in dims], dtype_of(tensor.elem_type))
    return jax.ShapeDtypeStruct(tuple(dims), dtype_of(tensor.elem_type))


def _array(given: Any, declared: Any, name: str) -> Any:
    tensor = declared.tensor_type
    dtype = dtype_of(tensor.elem_type)
    array = given if hasattr(given, "shape") and hasattr(given, "dtype") else _of_numbers(given, dtype, name)
    if array.dtype != dtype:
        raise LoadError(
            f"input {name!r} is {dtype}, and {array.dtype} was given", remedy=f"convert it: astype({dtype.name!r})"
        )
    if tensor.HasField("shape"):
        _check_dims(array.shape, tensor.shape.dim, name)
    return array


def _of_numbers(given: Any, dtype: Any, name: str) -> np.ndarray:
    """Python's numbers take the type that the model states, if they are of its kind and within its bounds."""
    try:
        found, (least, most) = np.asarray(given), bounds(dtype)
        kinds = "biuf" if np.isinf(most) else "biu"
        # As Python's numbers again: numpy compares truth values with no bound of 64 bits.
        if found.dtype.kind in kinds and not any(n < least or n > most for n in found.ravel().tolist()):
            return found.astype(dtype)
    except (ValueError, TypeError, OverflowError):
        pass
    raise LoadError(f"input {name!r} is {dtype}, and {reprlib.repr(given)} was given")


def _check_dims(shape: tuple[int, ...], declared: Sequence[Any], name: str) -> None:
    if len(shape) != len(declared) or any(d.dim_value not in (n, 0) for n, d in zip(shape, declared, strict=True)):
        raise LoadError(f"input {name!r} is {_dims_text(declared)}, and {list(shape)} was given")


def _dims_text(dims: Sequence[Any]) -> str:
    return f"[{', '.join(str(d.dim_value) if d.dim_value > 0 else d.dim_param or '?' for d in dims)}]"
