"""Lines as a module of their own: what raw ops are lowered from, to StableHLO, and the reference executor compiles.

Floor: executor.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError, LoadError
from hlosharding.executor.flow import CodeLine, Leaf, Tree, Var, leaves, tree_of
from hlosharding.ir import Builder, Callees, Computation, ComputationBuilder, Instruction, Module, Shape, rewrite


def extract(lines: Sequence[CodeLine], inputs: Sequence[Var], outputs: Sequence[Var]) -> Module:
    """A module with one parameter per value of `inputs` whose root is the tuple of the values `outputs`.

    The lines come in order and use nothing but each other and the inputs; called computations are copied.
    """
    builder = Builder("extract")
    callees = _callees(builder)
    for line in lines:
        callees.of(line.inst)
    main = builder.computation("main")
    new: dict[Leaf, Instruction] = {var: main.parameter(i, var.shape) for i, var in enumerate(inputs)}
    for line in lines:
        operands = [
            _operand(main, tree, o.shape, new) for tree, o in zip(line.operands, line.inst.operands, strict=True)
        ]
        made = _copy(main, line.inst, operands, callees.of(line.inst))
        new.update(zip(leaves(tree_of(line.inst)), _parts(main, made), strict=True))
    main.root(main.op("tuple", [new[o] for o in outputs]))
    return builder.finish(main)


def op_module(inst: Instruction) -> Module:
    """One op alone: a parameter for each leaf of each operand, in order; the root is the op."""
    builder = Builder("op")
    callees = _callees(builder)
    callees.of(inst)
    main = builder.computation("main")
    numbers = iter(range(sum(len(o.shape.leaves) for o in inst.operands)))
    operands = [_parameters(main, o.shape, numbers) for o in inst.operands]
    main.root(_copy(main, inst, operands, callees.of(inst)))
    return builder.finish(main)


def copy_computation(builder: Builder, computation: Computation) -> Computation:
    """A copy of a computation, and of those that it calls, in another module."""
    return _callees(builder).add_copy(computation)


def _parameters(main: ComputationBuilder, shape: Shape, numbers: Iterator[int]) -> Instruction:
    if not shape.is_tuple:
        return main.parameter(next(numbers), shape)
    return main.op("tuple", [_parameters(main, part, numbers) for part in shape.tuple_shapes])


def _operand(main: ComputationBuilder, tree: Tree, shape: Shape, new: dict[Leaf, Instruction]) -> Instruction:
    if not isinstance(tree, tuple):
        return new[tree]
    parts = [_operand(main, part, s, new) for part, s in zip(tree, shape.tuple_shapes, strict=True)]
    return main.op("tuple", parts)


def _parts(main: ComputationBuilder, made: Instruction) -> Iterator[Instruction]:
    if not made.shape.is_tuple:
        yield made
        return
    for index in range(len(made.shape.tuple_shapes)):
        yield from _parts(main, main.op("get-tuple-element", (made,), tuple_index=index))


def _callees(builder: Builder) -> Callees:
    return Callees(builder, _copy, name="called")


def _copy(
    into: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], called: Sequence[Computation]
) -> Instruction:
    # Named by opcode: equal stretches make equal modules, which are compiled once.
    copy = into.add(inst.opcode, inst.shape, operands, like=inst, called=called, name=inst.opcode)
    rewrite.drop_metadata(copy)  # the frame table stays behind
    return copy


# ---- an op's own StableHLO

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
