"""Ops that `jax.lax` cannot say, run from their own StableHLO: `raw(text, *operands)` inside any JAX program.

Floor: executor.  The text is a StableHLO module whose `main` takes the operands and returns the op's results; lowering
merges it into the program that calls it, so collectives in it mean the devices of that program.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, LoadError
from hlosharding.executor.extract import op_module
from hlosharding.ir import Instruction, Module
from hlosharding.once import once

_LOCATION = re.compile(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*")*\)')


def stablehlo_of(inst: Instruction) -> str:
    """The StableHLO module of one op; ExecutionError for the few HLO ops that have no such form."""
    try:
        return _readable(xla_bridge.hlo_proto_to_stablehlo(op_module(inst).to_hlo_proto()))
    except LoadError as error:
        where = f"%{inst.name} {inst.location}".strip()
        raise ExecutionError(f"{inst.opcode} has no StableHLO form: {error.what}", where=where) from error


def _readable(text: str) -> str:
    """Without source locations, module attributes, and functions that nothing calls (regions are written out)."""
    text = re.sub(r"^#loc.*\n", "", re.sub(_LOCATION, "", text), flags=re.MULTILINE)
    text = re.sub(r"^module @op attributes \{.*\} \{$", "module @op {", text, flags=re.MULTILINE)
    for function in re.findall(r"^  func\.func private .*?^  \}\n", text, flags=re.MULTILINE | re.DOTALL):
        name = re.search(r"@[\w.]+", function)
        if name is not None and not re.search(rf"{re.escape(name[0])}(?![\w.])", text.replace(function, "")):
            text = text.replace(function, "")
    return text


def prepare_custom_calls(module: Module) -> None:
    """Make sure that the module's custom calls have what they call; ExecutionError for those that nobody can run.

    XLA calls a LAPACK kernel by its address, which JAX fills in when it first lowers one: a module that was not traced
    in this process would end it.
    """
    for inst in module.instructions:
        if inst.opcode != "custom-call":
            continue
        if inst.custom_call_target.startswith(("lapack_", "blas_")):
            _load_lapack()
        if inst.custom_call_target == "CustomSPMDPartitioning":
            raise ExecutionError(
                "a call of custom_partitioning, which only XLA's own partitioner can resolve",
                where=f"%{inst.name} {inst.location}".strip(),
                remedy="trace the function with hs.trace or hs.jit instead of loading what JAX lowered",
            )


@once
def _load_lapack() -> None:
    import jax

    # Lowering any of these functions for CPU loads them all.
    shape = jax.ShapeDtypeStruct((1, 1), "float32")
    jax.jit(jax.lax.linalg.cholesky).trace(shape).lower(lowering_platforms=("cpu",))


def raw(text: str, *operands: Any) -> Any:
    """Run a StableHLO module on `operands`: one array, or a tuple of arrays where `main` returns several."""
    import jax

    flat = jax.tree.leaves(operands)
    results = _primitive().bind(*flat, text=text)
    return results[0] if _signature(text)[1] else tuple(results)


@lru_cache(maxsize=1024)
def _signature(text: str) -> tuple[tuple[Any, ...], bool]:
    """Result shapes of `main`, and whether it returns one bare array."""
    entry = Module.from_proto(xla_bridge.stablehlo_to_hlo_proto(text)).entry
    shape = entry.root.shape
    return tuple(shape.leaves), not shape.is_tuple


@once
def _primitive() -> Any:
    from jax.core import ShapedArray
    from jax.extend.core import Primitive
    from jax.interpreters import mlir

    primitive = Primitive("raw_stablehlo")
    primitive.multiple_results = True

    @primitive.def_abstract_eval
    def abstract(*_operands: Any, text: str) -> list[Any]:
        return [ShapedArray(leaf.dims, leaf.dtype) for leaf in _signature(text)[0]]

    mlir.register_lowering(primitive, _lower)
    return primitive


def _lower(context: Any, *operands: Any, text: str) -> Any:
    """A call of the text's `main`, merged once per module and text."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import func
    from jax.interpreters import mlir

    module_context = context.module_context
    cache = module_context.cached_primitive_lowerings
    key = ("hlosharding.raw", text)
    with module_context.module.context:
        if key not in cache:
            name = mlir.merge_mlir_modules(
                module_context.module, "raw_op", ir.Module.parse(text), dst_symtab=module_context.symbol_table
            )
            cache[key] = name
        callee = module_context.symbol_table[cache[key]]
        return func.CallOp(callee.type.results, ir.FlatSymbolRefAttr.get(cache[key]), list(operands)).results
