"""Ops that `jax.lax` cannot say, run from their own StableHLO: a module whose `main` takes an op's operands.

Floor: executor.  How such a module is called inside a JAX program stands in `prelude.py`.
"""

from __future__ import annotations

import re

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, LoadError
from hlosharding.executor.extract import op_module
from hlosharding.ir import Instruction

_LOCATION = re.compile(r' loc\((?:[^()"]|"(?:[^"\\]|\\.)*")*\)')


def stablehlo_of(inst: Instruction) -> str:
    """The StableHLO module of one op; ExecutionError for the few HLO ops that have no such form."""
    try:
        return _readable(xla_bridge.hlo_proto_to_stablehlo(op_module(inst).to_hlo_proto()))
    except LoadError as error:
        where = inst.where
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
