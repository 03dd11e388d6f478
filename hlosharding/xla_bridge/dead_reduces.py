"""Reduces of several operands in dead code: where a region calls a function, jaxlib ends its process on one.

Floor: ground.  JAX keeps dead code where it keeps unused arguments.
"""

from __future__ import annotations

import re
from typing import Any

from hlosharding.xla_bridge.private import first_import

_NAME = "stablehlo.reduce"
_IN_TEXT = re.compile(rb":\d+ = \"?stablehlo\.reduce\"?\(")


def may_reduce_several(module: bytes, *, is_text: bool) -> bool:
    """Does text hold a reduce of several operands, or bytecode any reduce?"""
    return _IN_TEXT.search(module) is not None if is_text else b"reduce" in module


def without_dead_reduces(module: Any) -> Any:
    """An MLIR module as it is; where it has such reduces, a copy without dead code."""
    count = len(_reduces(module))
    if not count:
        return module
    with module.context:
        copy = first_import("jaxlib.mlir.ir").Module.parse(module.operation.get_asm(binary=True))
        _drop_dead_code(copy)
    return module if len(_reduces(copy)) == count else copy


def _drop_dead_code(module: Any) -> None:
    """MLIR's pass keeps an op whose region calls a function: the reduces are taken out by hand, with what they used."""
    passes = first_import("jaxlib.mlir.passmanager").PassManager.parse("builtin.module(func.func(trivial-dce))")
    passes.run(module.operation)
    while dead := [op for op in _reduces(module) if not any(_is_used(result) for result in op.results)]:
        for op in dead:
            op.erase()
        passes.run(module.operation)


def _reduces(module: Any) -> list[Any]:
    """Those of several operands."""
    advance = first_import("jaxlib.mlir.ir").WalkResult.ADVANCE
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.operation.name == _NAME and len(op.results) > 1:
            found.append(op.operation)
        return advance

    module.operation.walk(visit)
    return found


def _is_used(value: Any) -> bool:
    return next(iter(value.uses), None) is not None
