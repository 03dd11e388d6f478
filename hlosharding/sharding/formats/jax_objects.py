"""JAX's shardings: a PartitionSpec beside its mesh, as an object or as text, and a NamedSharding.

Floor: sharding.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from hlosharding.errors import ShardingError, ShardingParseError
from hlosharding.sharding import jax_forms
from hlosharding.sharding.formats.interchange import FormatContext, Interchange
from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.mesh import MeshInfo

_NAMED = re.compile(
    r"\s*NamedSharding\(mesh=\w*Mesh\((?P<axes>[^()]*)(?P<types>\([^()]*\))?\)\s*,\s*spec=(?P<rest>.*)\)\s*", re.S
)
_AXIS = re.compile(r"\s*'(?P<name>[^'\\]*)'\s*:\s*(?P<size>\d{1,9})\s*")
_KIND = re.compile(r",\s*memory_kind=\w+\s*$")
_SPEC = re.compile(r"\s*(P|PartitionSpec)\s*\(")
_LONGEST, _DEEPEST = 100_000, 50
"""Letters and opening brackets of a spec's text: Python's parser, which reads it, has no such bounds."""


def is_jax(source: Any) -> bool:
    """A sharding of JAX's, its text, or None, which says nothing?"""
    if isinstance(source, str):
        return source.lstrip().startswith("NamedSharding(")
    names = {base.__name__ for base in type(source).__mro__}
    return source is None or "Sharding" in names or "UnspecifiedValue" in names


def is_spec(source: Any) -> bool:
    """A PartitionSpec, its text, or a sequence of axis names, tuples of them and None?"""
    if isinstance(source, str):
        return _SPEC.match(source) is not None
    return isinstance(source, tuple | list) or hasattr(source, "partitions")


def read_sharding(source: Any, context: FormatContext) -> Interchange:
    """From a NamedSharding or its text; its memory kind is no part of a sharding."""
    if isinstance(source, str):
        return _over(*_named_from_text(source), context)
    spec = getattr(source, "spec", None)
    if spec is not None:
        return _over(source.mesh, spec, context)
    return Interchange(HloSharding.from_jax(source, context.ndim or 0))


def read_spec(source: Any, context: FormatContext) -> Interchange:
    """From a PartitionSpec over the caller's mesh."""
    spec = spec_from_text(source) if isinstance(source, str) else source
    return _over(context.jax_mesh or context.needed_mesh(f"{source}"), spec, context)


def _named_from_text(text: str) -> tuple[MeshInfo, Any]:
    """`NamedSharding(mesh=Mesh('x': 2, axis_types=(Auto,)), spec=P('x',), memory_kind=device)`, as JAX prints it."""
    found = _NAMED.fullmatch(text)
    parts = found["axes"].removesuffix("axis_types=").strip().rstrip(",").split(",") if found is not None else []
    axes = [_AXIS.fullmatch(part) for part in parts]
    if found is None or not all(axes):
        remedy = "write NamedSharding(mesh=Mesh('x': 2), spec=P('x'))"
        raise ShardingParseError("no NamedSharding", text=text, position=0, remedy=remedy)
    if "Manual" in (found["types"] or ""):
        raise ShardingError(f"{text} is of a mesh with manual axes", remedy="pass the NamedSharding itself")
    mesh = MeshInfo([axis["name"] for axis in axes if axis], [int(axis["size"]) for axis in axes if axis])
    return mesh, spec_from_text(_KIND.sub("", found["rest"]))


def _over(mesh: Any, spec: Any, context: FormatContext) -> Interchange:
    if getattr(spec, "reduced", None):
        raise ShardingError(f"{spec} says what becomes of gradients, too", remedy="leave reduced={...} out")
    form = jax_forms.form_of_spec(mesh, spec, context.ndim)
    return Interchange.of_form(form, knows_rank=context.ndim is not None and form.whole is None)


def to_sharding(found: Interchange, context: FormatContext) -> Any:
    """A NamedSharding over the caller's jax mesh, or over an AbstractMesh."""
    return jax_forms.to_jax(found.sharding, context.jax_mesh)


def to_spec(found: Interchange, context: FormatContext) -> Any:
    """A PartitionSpec over the axes of the mesh."""
    return jax_forms.to_partition_spec(found.sharding)


def spec_from_text(text: str) -> Any:
    """The entries of `P(data, None)`, with `unreduced={...}` a PartitionSpec; names may be quoted or not.

    >>> spec_from_text("P('data', None, (x, y))")
    ('data', None, ('x', 'y'))
    """
    remedy = "write P(axis, None, (axis, axis))"
    try:
        if len(text) > _LONGEST or text.count("(") > _DEEPEST:
            raise ValueError("too long")
        call = ast.parse(text.strip(), mode="eval").body
        entries = _entries(call)
        keywords = _keywords(call)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        shown = text if len(text) <= 200 else f"{text[:200]} ..."
        raise ShardingParseError(f"{shown!r} is no PartitionSpec", text=text, position=0, remedy=remedy) from None
    if not keywords:
        return entries
    from jax.sharding import PartitionSpec

    try:
        return PartitionSpec(*entries, **keywords)
    except ValueError as error:  # an axis that splits a dim and is unreduced, too
        raise ShardingParseError(str(error), text=text, position=0, remedy=remedy) from None


def _entries(node: ast.expr) -> tuple[Any, ...]:
    match node:
        case ast.Call(func=ast.Name(id="P" | "PartitionSpec"), args=entries) | ast.Tuple(elts=entries):
            return tuple(_entry(entry) for entry in entries)
        case ast.Name() | ast.Constant():
            return (_entry(node),)
        case _:
            raise ValueError("no entries")


def _entry(node: ast.expr) -> Any:
    match node:
        case ast.Name(id="UNCONSTRAINED") | ast.Attribute(attr="UNCONSTRAINED"):
            from jax.sharding import PartitionSpec

            return PartitionSpec.UNCONSTRAINED
        case ast.Name(id=name):
            return name
        case ast.Constant(value=None | str() as value):
            return value
        case ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return tuple(_name(part) for part in parts)
        case _:
            raise ValueError("no entry")


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Constant(value=str() as name):
            return name
        case _:
            raise ValueError("no axis")


def _keywords(call: ast.expr) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for keyword in call.keywords if isinstance(call, ast.Call) else ():
        if keyword.arg not in ("unreduced", "reduced") or not isinstance(keyword.value, ast.Set):
            raise ValueError("no such keyword")
        found[keyword.arg] = frozenset(_name(part) for part in keyword.value.elts)
    return found
