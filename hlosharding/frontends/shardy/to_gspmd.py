"""Modules that JAX lowered for Shardy, given the form that GSPMD reads, with the same meaning.

Floor: frontends.  Shardy's open dims become `unspecified_dims`, its shard_map regions the `SPMDFullToShardShape` /
`SPMDShardToFullShape` pair around an inlineable call, its sharding groups `shard_as`, its result marks vanish: exactly
what JAX itself writes when Shardy is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hlosharding.errors import LoadError, ShardingError
from hlosharding.frontends.shardy.attribute_text import (
    Meshes,
    largest_mesh,
    parse_manual_axes,
    parse_meshes,
    parse_shardings,
    to_hlo,
    without_axes,
)
from hlosharding.ir import RULE_MARK, Computation, Edit, Instruction, Module, unspecified_dims_text
from hlosharding.ir import custom_call_targets as targets
from hlosharding.ir import rewrite as ir_rewrite
from hlosharding.sharding import HloSharding, Scanner, SdySharding, ShardGroup

_BODY = "manual_computation"


def without_shardy_marks(module: Module) -> Module:
    """The module, which is changed, without Shardy's attributes and calls.  Sets `mesh` from Shardy's."""
    meshes = _meshes(module)
    if not has_shardy_marks(module):
        return module
    rewrite = _Rewrite(Edit(module), meshes)
    for computation in rewrite.outermost_first():
        rewrite.visit(computation)
    out = rewrite.edit.finish()
    out.mesh = module.mesh or largest_mesh(meshes)
    kept = [e for e in out.proto.frontend_attributes.map if not e.key.startswith(targets.SHARDY_PREFIX)]
    del out.proto.frontend_attributes.map[:]
    out.proto.frontend_attributes.map.extend(kept)
    return out


def has_shardy_marks(module: Module) -> bool:
    """Whether JAX, or whoever wrote the module, spoke to Shardy in it."""
    return bool(_meshes(module)) or any(_is_marked(i) for i in module.instructions)


def _meshes(module: Module) -> Meshes:
    attributes = {e.key: e.value for e in module.proto.frontend_attributes.map}
    return parse_meshes(attributes.get(targets.SHARDY_PREFIX + "meshes", ""))


def _is_marked(instruction: Instruction) -> bool:
    proto = instruction.proto
    if instruction.opcode == "custom-call" and proto.custom_call_target.startswith(targets.SHARDY_PREFIX):
        return True
    return proto.HasField("frontend_attributes") and any(_is_mark(e.key) for e in proto.frontend_attributes.map)


@dataclass(slots=True)
class _Rewrite:
    edit: Edit
    meshes: Meshes
    manual: dict[Computation, tuple[str, ...]] = field(default_factory=dict)
    """Manual axes around the instructions of a computation."""
    results: list[Instruction] = field(default_factory=list)
    """Calls of the computation that mark what a function returns."""

    def outermost_first(self) -> list[Computation]:
        # Callers first: what is manual around a call is so in what it calls.
        return self.edit.computations_post_order()[::-1]

    def visit(self, computation: Computation) -> None:
        manual = self.manual.setdefault(computation, ())
        instructions = [i for i in self.edit.post_order(computation) if manual or i.called or _is_marked(i)]
        regions = self._regions(instructions)
        for instruction in instructions:
            for callee in instruction.called:
                axes = regions.get(instruction, ())
                self.manual.setdefault(callee, tuple(dict.fromkeys((*manual, *axes))))
        for instruction in instructions:
            handler = _HANDLERS.get(instruction.custom_call_target) if instruction.opcode == "custom-call" else None
            if handler is not None:
                self._take(instruction, handler, manual)
            elif instruction.custom_call_target.startswith(targets.SHARDY_PREFIX):
                raise LoadError(f"Shardy's {instruction.custom_call_target} is not known", where=repr(instruction))
            else:
                self._annotate_inside(instruction, manual)
                self._drop_marks(instruction)
        # At once: a step returns thousands of arrays, each marked, in one root.
        self.bypass(self.results)
        self.results.clear()

    def _take(self, call: Instruction, handler: _Handler, manual: tuple[str, ...]) -> None:
        """Give a call of Shardy's its meaning; LoadError for one that jaxlib would not write."""
        if not _ON_ONE_VALUE.get(call.custom_call_target, lambda _: True)(call):
            what = f"{call.custom_call_target} says something of one value and makes no other, unlike this call"
            raise LoadError(what, where=repr(call), remedy="load the module as JAX lowered it")
        try:
            handler(self, call, manual)
        except ShardingError as error:
            raise LoadError(error.what, where=repr(call), remedy=error.remedy) from error

    def _regions(self, instructions: Sequence[Instruction]) -> dict[Instruction, tuple[str, ...]]:
        """Calls of shard_map bodies and the axes that they make manual."""
        found: dict[Instruction, tuple[str, ...]] = {}
        for instruction in instructions:
            target = instruction.custom_call_target
            if target == targets.LOCAL_TO_GLOBAL:
                ends = [_behind_tuples(o) for o in instruction.operands]
            elif target == targets.GLOBAL_TO_LOCAL:
                ends = [u for part in (instruction, *instruction.users) for u in part.users]
            else:
                continue
            axes = _manual_axes(instruction)
            for call in ends:
                if call.opcode == "call" and _BODY in call.called[0].name:
                    found[call] = axes
                    _make_inlineable(call)
        return found

    def _annotate_inside(self, instruction: Instruction, manual: tuple[str, ...]) -> None:
        """What JAX calls once per device inside a region (a callback into Python) is manual; Shardy says it nowhere."""
        if manual and instruction in self.edit.shardings:
            leaves = [_inside(sharding, manual) for sharding in self.shardings(instruction)]
            if leaves:
                self.edit.shardings[instruction] = (
                    HloSharding.tuple(leaves) if instruction.shape.is_tuple else leaves[0]
                )

    def _drop_marks(self, instruction: Instruction) -> None:
        ir_rewrite.keep_frontend_attributes(instruction, lambda key: not _is_mark(key))

    def shardings(self, instruction: Instruction) -> list[SdySharding]:
        text = instruction.frontend_attributes.get(targets.SHARDY_PREFIX + "sharding", "")
        return parse_shardings(text, self.meshes)

    def operand_shardings(self, call: Instruction, key: str) -> list[tuple[Instruction, SdySharding]]:
        """Each operand of a region's edge with its sharding; LoadError where there is not one for each."""
        found = parse_shardings(_mark(call, key), self.meshes)
        results = len(call.shape.tuple_shapes) if call.shape.is_tuple else 1
        if len(found) != len(call.operands) or len(found) != results:
            raise LoadError(
                f"{targets.SHARDY_PREFIX}{key} has {len(found)} shardings for {len(call.operands)} operands",
                where=repr(call),
            )
        return list(zip(call.operands, found, strict=True))

    def bypass(self, marks: Sequence[Instruction]) -> None:
        """Take out calls of one computation that say no more than that their operand is marked."""
        if marks:
            _return_copies(self.edit, marks[0].computation.root, marks)
            self.edit.bypass(marks)

    def custom_call(
        self,
        like: Instruction,
        target: str,
        operand: Instruction,
        shape: Any,
        sharding: HloSharding,
        open_dims: Sequence[int] = (),
    ) -> Instruction:
        opened: dict[str, Any] = {"opaque": unspecified_dims_text(open_dims)} if open_dims else {}
        made = self.edit.create(
            like.computation, "custom-call", (operand,), shape=shape, name=like.name, metadata_of=like,
            custom_call_target=target, custom_call_api_version=1, **opened,
        )  # fmt: skip
        self.edit.shardings[made] = sharding
        return made


def _mark(instruction: Instruction, name: str) -> str:
    """What Shardy's export says of a call; LoadError where it does not."""
    found = instruction.frontend_attributes.get(targets.SHARDY_PREFIX + name)
    if found is None:
        raise LoadError(
            f"{instruction.custom_call_target} has no frontend attribute {targets.SHARDY_PREFIX}{name}",
            where=repr(instruction),
            remedy="load the module as JAX lowered it, all its attributes kept",
        )
    return found


def _manual_axes(call: Instruction) -> tuple[str, ...]:
    text = _mark(call, "manual_axes")
    try:
        return parse_manual_axes(text)
    except ShardingError as error:
        raise LoadError(error.what, where=repr(call), remedy=error.remedy) from error


def _is_mark(key: str) -> bool:
    """A custom call's rule is no mark of Shardy's passes, but the user's word."""
    return key.startswith(targets.SHARDY_PREFIX) and key != RULE_MARK


def _behind_tuples(instruction: Instruction) -> Instruction:
    while instruction.opcode == "get-tuple-element":
        instruction = instruction.operands[0]
    return instruction


def _make_inlineable(call: Instruction) -> None:
    for instruction in (call, *call.users):
        ir_rewrite.keep_frontend_attributes(instruction, lambda key: key != "inlineable")


def _sharding_call(rewrite: _Rewrite, call: Instruction, manual: tuple[str, ...]) -> None:
    """`Sharding` with Shardy's attribute: open dims and manual axes stand only there."""
    found = rewrite.shardings(call)
    if not found:
        return
    rewrite.edit.shardings[call] = to_hlo(found[0], manual)
    if found[0].open_dims:
        ir_rewrite.set_attributes(call, opaque=unspecified_dims_text(found[0].open_dims))
    rewrite._drop_marks(call)


def _func_result(rewrite: _Rewrite, call: Instruction, _manual: tuple[str, ...]) -> None:
    """The result's sharding stands on the root already."""
    value = call.operands[0]
    for user in call.users:
        # MLIR's export wraps a single result in a tuple and gives it the result's own annotation.
        if user.opcode == "tuple" and len(user.operands) == 1 and value in rewrite.edit.shardings:
            rewrite.edit.shardings.setdefault(user, HloSharding.tuple([rewrite.edit.shardings[value]]))
    rewrite.results.append(call)


def _return_copies(edit: Edit, root: Instruction, marked: Iterable[Instruction]) -> None:
    """MLIR's export returns the copy that it makes of each result where the value itself has another layout."""
    copied = [call for call in marked if _layout(call.operands[0]) != _layout(call)]
    if not copied or root.opcode != "tuple":
        return
    operands, positions = list(root.operands), dict[Instruction, list[int]]()
    for position, operand in enumerate(operands):
        positions.setdefault(operand, []).append(position)
    for call in copied:
        copies = [user for user in call.users if user.opcode == "reshape" and not user.users]
        places = positions.get(call, [])
        if len(copies) == len(places):
            for position, copy in zip(places, copies, strict=True):
                operands[position] = copy
    edit.set_operands(root, operands)


def _layout(instruction: Instruction) -> tuple[int, ...]:
    return tuple(instruction.proto.shape.layout.minor_to_major)


def _barrier(rewrite: _Rewrite, call: Instruction, _manual: tuple[str, ...]) -> None:
    rewrite.bypass([call])


def _cross_edge(rewrite: _Rewrite, call: Instruction, manual: tuple[str, ...], *, is_entry: bool) -> None:
    """Into a region or out of it: an annotation on this side of the edge, and a conversion to the other side."""
    axes = _manual_axes(call)
    inside = tuple(dict.fromkeys((*manual, *axes)))
    target = targets.FULL_TO_SHARD if is_entry else targets.SHARD_TO_FULL
    made: list[Instruction] = []
    for operand, sharding in rewrite.operand_shardings(call, "in_shardings" if is_entry else "out_shardings"):
        if sharding.reduction != "sum" and not is_entry:
            raise LoadError(
                f"sharding {sharding} of what leaves a region is partial by {sharding.reduction}",
                where=repr(call),
                remedy="HLO knows partial sums alone; reduce it inside (jax.lax.pmax)",
            )
        _check_axes(call, axes, sharding)
        shape = _result_shape(call, len(made))
        every_dim = tuple(range(operand.shape.rank)) if _is_partial(sharding, axes) else ()
        sides = [(to_hlo(sharding, manual), sharding.open_dims), (_inside(sharding, inside), every_dim)]
        here, there = sides if is_entry else sides[::-1]
        annotated = rewrite.custom_call(call, targets.SHARDING, operand, operand.shape, *here)
        made.append(rewrite.custom_call(call, target, annotated, shape, *there))
    _replace_results(rewrite, call, made)


def _check_axes(call: Instruction, axes: Sequence[str], sharding: SdySharding) -> None:
    names = sharding.form.mesh.names
    unknown = next((axis for axis in axes if axis not in names), None)
    if unknown is not None:
        raise LoadError(f"axis {unknown!r} is manual, and the mesh has {', '.join(names)}", where=repr(call))


def _is_partial(sharding: SdySharding, inside: Sequence[str]) -> bool:
    return any(axis not in inside for axis in sharding.form.mesh.names)


def _inside(sharding: SdySharding, inside: Sequence[str]) -> HloSharding:
    """Of a value inside the region: nothing but the manual axes."""
    return to_hlo(without_axes(sharding), inside) if _is_partial(sharding, inside) else HloSharding.manual()


def _result_shape(call: Instruction, number: int) -> Any:
    return call.shape.tuple_shapes[number] if call.shape.is_tuple else call.shape


def _replace_results(rewrite: _Rewrite, call: Instruction, made: list[Instruction]) -> None:
    edit = rewrite.edit
    if not call.shape.is_tuple:
        edit.replace_uses(call, made[0])
    else:
        for part in [user for user in call.users if user.opcode == "get-tuple-element"]:
            edit.replace_uses(part, made[part.tuple_index])
            edit.remove(part)
        if call.users or call.is_root:
            edit.replace_uses(call, edit.create(call.computation, "tuple", made))
    edit.remove(call)


def _sharding_group(rewrite: _Rewrite, call: Instruction, _manual: tuple[str, ...]) -> None:
    value, text = call.operands[0], _mark(call, "sharding_group_id")
    number = Scanner(text).integer("the number of a sharding group")
    if number < 0:
        raise LoadError(f"a sharding group has the number {text!r}", where=repr(call))
    rewrite.edit.remove(call)
    unknown = HloSharding.unknown().with_shard_group(ShardGroup("as", number))
    made = rewrite.custom_call(call, targets.SHARDING, value, value.shape, unknown)
    ir_rewrite.set_attributes(made, custom_call_has_side_effect=True)
    rewrite.edit.replace_uses(value, made)


def _keeps_its_value(call: Instruction) -> bool:
    return [operand.shape for operand in call.operands] == [call.shape]


_ON_ONE_VALUE: dict[str, Callable[[Instruction], bool]] = {
    targets.FUNC_RESULT_SHARDING: _keeps_its_value,
    targets.PROPAGATION_BARRIER: _keeps_its_value,
    targets.SHARDING_GROUP: lambda call: len(call.operands) == 1 and not call.users and not call.is_root,
}
"""Whether a call has the form that jaxlib gives it."""
_Handler = Callable[[_Rewrite, Instruction, tuple[str, ...]], None]
_HANDLERS: dict[str, _Handler] = {
    targets.SHARDING: _sharding_call,
    targets.FUNC_RESULT_SHARDING: _func_result,
    targets.GLOBAL_TO_LOCAL: partial(_cross_edge, is_entry=True),
    targets.LOCAL_TO_GLOBAL: partial(_cross_edge, is_entry=False),
    targets.PROPAGATION_BARRIER: _barrier,
    targets.SHARDING_GROUP: _sharding_group,
}
