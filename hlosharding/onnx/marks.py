"""Names of tensors and nodes, carried through JAX's trace into the module, as a JAX program's source lines are.

Floor: onnx.  A traced tensor passes through a call that only bears its number; when the module is there the call
goes, and the instruction takes the tensor's name.  A node's number stands in its scope, and becomes a stack frame.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hlosharding.ir import Instruction, Module, NameUniquer, rewrite
from hlosharding.onnx.graph import Node

_TARGET = "hlosharding.onnx_tensor"
_NUMBER = re.compile(r"number = (\d+)")
_SCOPE = re.compile(r"#(\d+)(?=/|$)")
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]")


def node_scope(node: Node) -> str:
    """What stands in the op names of a node's instructions.

    Slashes in names become levels, as in JAX's own scopes.
    """
    return f"{node.label.strip('/')}#{node.number}"


@dataclass
class TensorMarks:
    """The marks of one trace."""

    names: list[str] = field(default_factory=list)

    def mark(self, array: Any, name: str) -> Any:
        """The same array, with a name."""
        import jax

        self.names.append(name)
        described = jax.ShapeDtypeStruct(array.shape, array.dtype)
        return jax.ffi.ffi_call(_TARGET, described, vmap_method="sequential")(array, number=len(self.names) - 1)

    def take_off(self, module: Module) -> dict[str, str]:
        """Removes the marks; gives the instruction of each tensor, which has its name as far as HLO can say it."""
        taken = NameUniquer(i.name for i in module.instructions)
        found: dict[str, str] = {}
        named: set[Instruction] = set()
        marks = [i for i in module.instructions if _is_mark(i)]
        # All at once: one by one, a root of thousands of results would be written anew for each.
        rewrite.bypass(marks)
        for mark in marks:
            [value] = mark.operands
            [number] = _NUMBER.findall(mark.opaque)
            name = self.names[int(number)]
            # An Identity gives a value a second name, and the first one stays; parameters are named after their ports.
            if value not in named and value.opcode != "parameter":
                rewrite.rename(value, taken.fresh(hlo_name(name)))
                named.add(value)
            found.setdefault(name, value.name)
        _drop(module)
        return found


def hlo_name(tensor: str) -> str:
    """A tensor's name as HLO text can say it.

    >>> hlo_name("/h.0/attn/MatMul_output_0"), hlo_name("12")
    ('_h.0_attn_MatMul_output_0', '_12')
    """
    name = _UNNAMEABLE.sub("_", tensor)
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


def _drop(module: Module) -> None:
    for computation in module.computations:
        computation.instructions[:] = [i for i in computation.instructions if not _is_mark(i)]
    module.renumber()


def _is_mark(instruction: Instruction) -> bool:
    return instruction.opcode == "custom-call" and instruction.custom_call_target == _TARGET


def set_frames(module: Module, nodes: Sequence[Node], file: str) -> None:
    """Every instruction's Python stack becomes one frame: the model's file, and the node as its function."""
    index = module.proto.stack_frame_index
    index.Clear()
    index.file_names.append(file)
    # Nodes are numbered from 1 without gaps, and so are a stack frame index's names, places and frames: a node's number
    # is the id of all three.
    for node in nodes:
        index.function_names.append(node.label)
        index.file_locations.add(file_name_id=1, function_name_id=node.number, line=node.number)
        index.stack_frames.add(file_location_id=node.number)
    for instruction in module.instructions:
        # The last is the innermost: of a node inside a node both stand in the op's name.
        numbers = _SCOPE.findall(instruction.op_name or "")
        rewrite.set_metadata(instruction, stack_frame_id=int(numbers[-1]) if numbers else 0)
    # What was looked up before is of the old index.
    module._frames.clear()
