"""What jaxlib ends its process on when it exports a module: constants of six bits, and dead reduces.

Floor: ground.  A reduce of several operands whose region calls a function must not be in dead code, which JAX keeps
where it keeps unused arguments.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from hlosharding.errors import LoadError
from hlosharding.xla_bridge.private import bytecode_of, first_import, ops_of

_REDUCE, _CONSTANT = "stablehlo.reduce", "stablehlo.constant"
_IN_TEXT = re.compile(rb":\d+ = \"?stablehlo\.reduce\"?\(")


def may_reduce_several(module: bytes, *, is_text: bool) -> bool:
    """Does text hold a reduce of several operands, or bytecode any reduce?"""
    return _IN_TEXT.search(module) is not None if is_text else b"reduce" in module


def without_fatal_ops(module: Any) -> Any:
    """An MLIR module as it is; where it has such reduces, a copy without dead code.

    Raises LoadError where it has such constants.
    """
    found = _found(module)
    if found.six_bits is not None:
        remedy = "convert them: astype(jnp.float8_e4m3fn)"
        raise LoadError(f"a constant of type {found.six_bits}, which has no form in HLO", remedy=remedy)
    if not found.reduces:
        return module
    with module.context:
        copy = first_import("jaxlib.mlir.ir").Module.parse(bytecode_of(module))
        _drop_dead_code(copy)
    return module if len(_found(copy).reduces) == len(found.reduces) else copy


def _drop_dead_code(module: Any) -> None:
    """MLIR's pass keeps an op whose region calls a function: the reduces are taken out by hand, with what they used."""
    passes = first_import("jaxlib.mlir.passmanager").PassManager.parse("builtin.module(func.func(trivial-dce))")
    passes.run(module.operation)
    while dead := [op for op in _found(module).reduces if not any(_is_used(result) for result in op.results)]:
        for op in dead:
            op.erase()
        passes.run(module.operation)


class _Found(NamedTuple):
    reduces: list[Any]
    """Those of several operands."""
    six_bits: Any
    """The type of a constant's elements."""


def _found(module: Any) -> _Found:
    """In one walk: it is all that this takes."""
    ops = ops_of(module)
    reduces = [op for op in ops if op.name == _REDUCE and len(op.results) > 1]
    types = (op.results[0].type.element_type for op in ops if op.name == _CONSTANT)
    return _Found(reduces, next((each for each in types if type(each).__name__.startswith("Float6")), None))


def _is_used(value: Any) -> bool:
    return next(iter(value.uses), None) is not None
