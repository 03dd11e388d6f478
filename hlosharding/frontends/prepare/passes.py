"""What XLA's compile pipeline does to a module before sharding propagation, so that ours starts where XLA's starts.

Floor: frontends.  In XLA's order (CPU compiler): calls flattened and inlined, dead code removed if a call was inlined,
zero-sized values made constants, conditionals given tuples to take and return.  Order of instructions and users, names
and frames come out as XLA's do.  Memory placement marks, which JAX writes for accelerators only, become moves first;
sizes that TensorFlow sets to all that there is go.
"""

from __future__ import annotations

import numpy as np

from hlosharding.frontends.prepare.inlining import flatten_calls, inline_calls
from hlosharding.ir import (
    Computation,
    Edit,
    Instruction,
    Module,
    Shape,
    is_sharding_call,
    memory_of,
    named_memory,
    rewrite,
    sets_full_size,
)
from hlosharding.ir import custom_call_targets as targets


def prepare(module: Module) -> Module:
    """A new module: calls inlined, dead code and zero-sized values gone.

    >>> from hlosharding.frontends.hlo import from_hlo_text
    >>> text = '''HloModule m
    ... f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    ... ENTRY e { x = f32[4] parameter(0)  ROOT c = f32[4] call(x), to_apply=f }'''
    >>> prepare(from_hlo_text(text)).entry.root
    %n.1 = f32[4] negate(%x)
    """
    return prepare_edit(Edit.of_copy(module))


def prepare_edit(edit: Edit) -> Module:
    """The same of a module that is the caller's to change."""
    _marks_to_moves(edit)
    _drop_full_sizes(edit)
    flatten_calls(edit)
    if inline_calls(edit):
        _remove_dead_code(edit)
    _zero_sized_to_constants(edit)
    _conditionals_take_and_return_tuples(edit)
    return edit.finish()


def _marks_to_moves(edit: Edit) -> None:
    """XLA's ConvertMemoryPlacementToInternalAnnotations.  A mark that names no memory says nothing, and goes."""
    for call in edit.each("custom-call", edit.module.computations):
        if call.custom_call_target != targets.PLACEMENT_MARK:
            continue
        edit.drop_control(call)
        memory = memory_of(call)
        if memory is not None:
            target = targets.MOVE_TARGETS[memory]
            rewrite.set_attributes(call, custom_call_target=target, custom_call_has_side_effect=False)
        elif named_memory(call) is None:
            edit.replace_uses(call, call.operands[0])
            edit.remove(call)


def _drop_full_sizes(edit: Edit) -> None:
    """What XLA leaves out where it reads StableHLO: through a size that is set no split goes."""
    sizes = edit.each("set-dimension-size", edit.module.computations)
    edit.bypass([i for i in sizes if sets_full_size(i) and i not in edit.shardings])


def _remove_dead_code(edit: Edit) -> None:
    """XLA's HloDCE: callers before callees, then computations that nothing reaches."""
    reached = {edit.module.entry}
    worklist = [edit.module.entry]
    while worklist:
        computation = worklist.pop()
        dead = [i for i in edit.instructions(computation) if _is_dead_root(edit, i)]
        for instruction in dead:
            edit.remove_with_unused_operands(instruction)
        for instruction in edit.calls_of(computation):
            for callee in instruction.called:
                if callee not in reached:
                    reached.add(callee)
                    worklist.append(callee)
    edit.drop_computations(reached)


def _is_dead_root(edit: Edit, instruction: Instruction) -> bool:
    if not edit.is_dead(instruction) or not edit.is_safely_removable(instruction):
        return False
    if is_sharding_call(instruction):
        # An annotation on a value that others use says something about that value.
        value = instruction.operands[0]
        if value.is_root or value.opcode == "parameter" or len(value.users) != 1:
            return False
    return not edit.has_side_effect(instruction)


def _zero_sized_to_constants(edit: Edit) -> None:
    for computation in edit.computations_post_order():
        if not any(map(_is_empty, {i.shape for i in edit.live(computation)})):
            continue
        for instruction in edit.post_order(computation):
            if instruction.opcode == "constant" or not _is_empty(instruction.shape):
                continue
            # An earlier one may have taken its operands with it.
            if instruction not in edit.live(computation) or edit.has_side_effect(instruction):
                continue
            if edit.is_safely_removable(instruction):
                edit.replace(instruction, _empty_constant(edit, computation, instruction.shape))
            elif instruction.opcode == "parameter" and instruction.users and not edit.has_control(instruction):
                edit.replace_uses(instruction, _empty_constant(edit, computation, instruction.shape))


def _is_empty(shape: Shape) -> bool:
    return 0 in shape.dims


def _empty_constant(edit: Edit, computation: Computation, shape: Shape) -> Instruction:
    return edit.create(computation, "constant", shape=shape, literal=np.empty(shape.dims, shape.dtype))


def _conditionals_take_and_return_tuples(edit: Edit) -> None:
    """XLA's ConditionalCanonicalizer."""
    for conditional in edit.each("conditional", edit.computations_post_order()):
        _use_tuples(edit, conditional)


def _use_tuples(edit: Edit, conditional: Instruction) -> None:
    for branch in conditional.called:
        parameter = branch.parameters[0]
        if not parameter.shape.is_tuple:
            _take_tuple(edit, parameter)
        root = branch.root
        if not root.shape.is_tuple:
            branch.set_root(edit.create(branch, "tuple", (root,)))
    for position in range(1, len(conditional.operands)):
        operand = conditional.operands[position]
        if not operand.shape.is_tuple:
            part = edit.create(conditional.computation, "tuple", (operand,))
            edit.replace_operand(conditional, position, part)
    if not conditional.shape.is_tuple:
        _return_tuple(edit, conditional)


def _take_tuple(edit: Edit, parameter: Instruction) -> None:
    branch, number = parameter.computation, parameter.parameter_number
    shape = Shape.tuple((parameter.shape,))
    wide = edit.create(branch, "parameter", shape=shape, name=parameter.name, parameter_number=number)
    edit.replace_uses(parameter, wide)
    edit.remove(parameter)
    edit.replace_uses(wide, edit.create(branch, "get-tuple-element", (wide,), tuple_index=0))


def _return_tuple(edit: Edit, conditional: Instruction) -> None:
    computation, shape, name = conditional.computation, Shape.tuple((conditional.shape,)), f"{conditional.name}.clone"
    wide = edit.create(computation, "conditional", conditional.operands, shape=shape, like=conditional, name=name)
    edit.replace(conditional, edit.create(computation, "get-tuple-element", (wide,), tuple_index=0))
