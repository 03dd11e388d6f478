"""Calls flattened and inlined, as XLA's FlattenCallGraph and CallInliner do it, frames and names kept.

Floor: frontends.  A computation called at several places is cloned per place first; each inlined instruction then
carries the call's name path and Python frames in front of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlosharding.ir import Computation, Edit, Instruction, depth_first, rewrite

_MAX_OP_NAME = 1024
"""Characters, as where XLA inlines calls: names of nested calls grow with each level."""
_WITH_BODIES = frozenset({"conditional", "while", "async-start", "async-update", "async-done"})
_COMPOSITE = ("composite.name", "composite.attributes", "composite.version")


def flatten_calls(edit: Edit) -> None:
    """Give every call site, loop, branch and reducer a computation of its own."""
    sites = _call_sites(edit)
    for computation in _callees_first(edit, sites):
        for position, site in enumerate(sites.get(computation, ())):
            if position > 0 or site.called.count(computation) > 1:
                _clone_for(edit, site, computation)


def _clone_for(edit: Edit, site: Instruction, computation: Computation) -> None:
    made = {n: edit.clone_computation(c) for n, c in enumerate(site.called) if c is computation}
    rewrite.set_called(site, (made.get(n, c) for n, c in enumerate(site.called)))
    worklist = list(made.values())
    while worklist:
        for instruction in edit.calls_of(worklist.pop()):
            rewrite.set_called(instruction, [edit.clone_computation(c) for c in instruction.called])
            worklist.extend(instruction.called)


def _call_sites(edit: Edit) -> dict[Computation, list[Instruction]]:
    """Who calls each computation, in order, as XLA's CallGraph sees it."""
    sites: dict[Computation, list[Instruction]] = {}
    for computation in edit.module.computations:
        for instruction in edit.calls_of(computation):
            for callee in instruction.called:
                sites.setdefault(callee, []).append(instruction)
    return sites


def _callees_first(edit: Edit, sites: Mapping[Computation, object]) -> list[Computation]:
    """XLA's VisitNodes: depth first from each computation without callers."""
    roots = [root for root in edit.module.computations if root not in sites]
    return depth_first(roots, lambda caller: (callee for i in edit.calls_of(caller) for callee in i.called))


def inline_calls(edit: Edit) -> bool:
    """Inline every call that is not marked otherwise; true if there was one."""
    changed = False
    for call in edit.each("call", _callees_first(edit, _call_sites(edit))):
        if _is_inlineable(call):
            _inline(edit, call)
            changed = True
    return changed


def _is_inlineable(call: Instruction) -> bool:
    # As XLA's IsInlineableCallOp, which leaves calls that have a backend config.
    return not call.opaque and call.frontend_attributes.get("inlineable") not in ("false", "xla_late")


def _inline(edit: Edit, call: Instruction) -> None:
    _drop_composite_marks(call)
    outer, callee = call.computation, call.called[0]
    new: dict[Instruction, Instruction] = {}
    metadata = _CallMetadata(edit, call)
    for instruction in _visiting_order(edit, callee):
        if instruction.opcode == "parameter":
            new[instruction] = call.operands[instruction.parameter_number]
            continue
        copy = edit.clone_into(instruction, (new[o] for o in instruction.operands), outer)
        metadata.prepend_to(copy)
        new[instruction] = copy
        for before in instruction.control_predecessors:
            edit.add_control(new[before], copy)
        for before in call.control_predecessors:
            edit.add_control(before, copy)
    edit.replace(call, new[callee.root], relay_control=True, remove_operands=False)


def _drop_composite_marks(call: Instruction) -> None:
    # Else they would be inherited by the inlined root.
    if "composite.name" in call.frontend_attributes:
        rewrite.keep_frontend_attributes(call, lambda key: key not in _COMPOSITE)


def _visiting_order(edit: Edit, computation: Computation) -> list[Instruction]:
    """XLA's HloComputation::Accept: unreachable roots in list order, the root last."""
    dead = [i for i in edit.instructions(computation) if edit.is_dead(i) and not edit.has_control_successors(i)]
    return depth_first((*dead, computation.root), lambda i: (*i.operands, *i.control_predecessors))


class _CallMetadata:
    """The name path and frames of one call, put in front of those of inlined instructions."""

    def __init__(self, edit: Edit, call: Instruction) -> None:
        self.edit = edit
        self.prefix = call.op_name.removesuffix("/")
        self.frame = int(call.proto.metadata.stack_frame_id)

    def prepend_to(self, instruction: Instruction) -> None:
        """XLA's PropagateMetadataToInstruction: the instruction, and all inside its loops and branches."""
        if not self.prefix and not self.frame:
            return
        if instruction.opcode in _WITH_BODIES:
            for computation in instruction.called:
                for inner in self.edit.instructions(computation):
                    self.prepend_to(inner)
        name = self._name(instruction.op_name)
        frame = self.edit.frames.join(self.frame, int(instruction.proto.metadata.stack_frame_id))
        old = instruction.proto.metadata
        if name != old.op_name or frame != old.stack_frame_id:
            rewrite.set_metadata(instruction, op_name=name, stack_frame_id=frame)

    def _name(self, name: str) -> str:
        inner = name.removeprefix("/").removesuffix("/")
        too_long = len(self.prefix) + len(inner) >= _MAX_OP_NAME
        if not self.prefix or inner.startswith(self.prefix) or too_long:
            return name
        return f"{self.prefix}/{inner}" if inner else self.prefix
