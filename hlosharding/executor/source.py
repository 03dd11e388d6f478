"""A partitioned module as Python: one `jax.shard_map` program in the words of `jax.lax`.

Floor: executor.  The text made here is what runs (`program.py`); it knows nothing of devices that exist.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hlosharding.collector import collector_waits
from hlosharding.cost import leaves_on_host
from hlosharding.deep_stack import deep_stack
from hlosharding.executor import catalog  # noqa: F401  (fills the table of emitters)
from hlosharding.executor.axes import Axes
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.executor.boundary import Boundary, BoundaryArray, boundary_arrays
from hlosharding.executor.call_tree import by_calls
from hlosharding.executor.device_numbers import DeviceNumbers
from hlosharding.executor.extract import stablehlo_of
from hlosharding.executor.flow import CodeLine, Flow, Inline, Leaf, Tree, Var, flow_of, leaves
from hlosharding.executor.functions import FunctionCall, Shared, Step, alive_before, live_ranges, plan
from hlosharding.executor.header import header_text
from hlosharding.executor.lax_collectives import is_ordered
from hlosharding.executor.lax_elementwise import is_wide
from hlosharding.executor.native_calls import is_lapack
from hlosharding.executor.scope import MANY, Scope
from hlosharding.executor.statements import Statements, uses_of
from hlosharding.executor.text import (
    GLOBAL_NAMES,
    Namer,
    block_text,
    comment_text,
    dtype_text,
    identifier,
    is_plain_nan,
    scalar_text,
    shape_text,
    wrap_items,
)
from hlosharding.executor.wishes import COUNTER, Wishes
from hlosharding.ir import COLLECTIVES, Computation, Instruction, Module, Sameness, callers
from hlosharding.sharding import MeshInfo
from hlosharding.spmd import Devices, Groups, device_groups, permute_pairs

CHUNK = 320
"""Lines of one function's body, after which it is cut: with its signature a function stays below 500 lines.  At half as
many, programs are 1.04 times as long for what the parts hand on, at twice as many 0.95 times."""
_INLINE_ELEMENTS = 16
"""Of a table that stands where it is used: half a line.  Half and double change no program."""
_MANY_INPUTS = 40
"""More come as one record.  With half as many programs are 0.998 times as long, with twice as many 1.028 times."""
_MANY_SAVED = 400
"""Lines that XLA need not compile again if a function's calls stay calls.  At fewer, what it fuses across their borders
and the memory that results take weigh more."""
_INDENT = "    "
_RECORD = re.compile(r"_out(_\d+)?$")


@dataclass(frozen=True, slots=True)
class ProgramSource(Boundary):
    """The text of a program, the constants it refers to, and how its arrays lie at the boundary."""

    text: str
    constants: dict[str, np.ndarray]


@deep_stack
@collector_waits
def write_source(
    module: Module,
    *,
    inputs: Sequence[BoundaryArray] | None = None,
    outputs: Sequence[BoundaryArray] | None = None,
) -> ProgramSource:
    """Write a partitioned module (local shapes, explicit collectives).

    `inputs` and `outputs`: global shape and sharding of each entry parameter's and of the root's leaves; from the
    module's sharding table where not given (all tiles even).  What the partitioner noted on why an instruction is there
    becomes a comment.
    """
    found_inputs, found_outputs = boundary_arrays(module, inputs, outputs)
    axes = choose_axes(module.mesh, max(1, module.num_partitions), _needs(module, (*found_inputs, *found_outputs)))
    inputs_said = tuple(layout.over(axes) for layout in found_inputs)
    outputs_said = tuple(layout.over(axes) for layout in found_outputs)
    writer = _ProgramWriter(module, axes)
    text = writer.write(inputs_said, outputs_said)
    return ProgramSource(
        module.name,
        axes,
        inputs_said,
        outputs_said,
        writer.is_wide,
        _user_mesh(module, axes),
        any(i.opcode == "custom-call" and is_lapack(i) for i in module.instructions),
        text,
        writer.constants,
    )


def _user_mesh(module: Module, axes: Axes) -> MeshInfo | None:
    if module.callbacks:
        return None  # JAX takes no second mesh in a program that calls back into Python
    info = module.mesh
    return None if info is None or tuple(info.names) == axes.names or info.num_devices != axes.num_devices else info


def _needs(module: Module, layouts: Sequence[BoundaryArray]) -> Needs:
    devices = Devices(max(1, module.num_partitions))
    collectives = [i for i in module.instructions if i.opcode in COLLECTIVES]
    grouped = [i for i in collectives if i.opcode != "collective-permute"]
    return Needs(
        ordered=frozenset(device_groups(i, devices) for i in grouped if is_ordered(i)),
        unordered=frozenset(device_groups(i, devices) for i in grouped if not is_ordered(i)),
        permutes=frozenset(permute_pairs(i, devices) for i in collectives if i.opcode == "collective-permute"),
        shardings=frozenset((layout.sharding, layout.shape.rank) for layout in layouts if layout.is_even),
    )


class _ProgramWriter:
    """Writes functions, callees before callers; the emitters' `WrittenProgram`."""

    def __init__(self, module: Module, axes: Axes) -> None:
        self.module = module
        self.axes = axes
        self.num_devices = max(1, module.num_partitions)
        self.constants: dict[str, np.ndarray] = {}
        self.is_wide = any(is_wide(i.shape) for i in module.instructions)
        self._numbers, self._on_host = DeviceNumbers(axes), leaves_on_host(module)
        self._sameness = Sameness()
        self._callers = callers(module)
        local = {identifier(i.name) for i in module.instructions}
        self._wishes = Wishes(self._callers)
        local |= {COUNTER, *(self._wishes.of(Var(p)) for p in module.entry.parameters)}
        self._local_names = local
        self._globals = Namer(GLOBAL_NAMES)
        self._blocks: list[str] = []
        self._functions: dict[int, str] = {}
        self._shared: dict[object, tuple[str, list[str]]] = {}
        self._groups: dict[Groups, str] = {}
        self._raw: dict[str, str] = {}
        self._locations: dict[int, str] = {}
        self._entry_name = ""

    def _global_name(self, wish_name: str) -> str:
        """A name that no local variable can have: those are named after instructions, or after functions and `_out`."""
        is_taken = wish_name in self._local_names or _RECORD.search(wish_name)
        return self._globals.fresh(f"{wish_name}_fn" if is_taken else wish_name)

    def _flow(self, computation: Computation) -> Flow:
        return flow_of(computation, numbers=self._numbers.constant, on_host=self._on_host)

    # ---- what emitters ask for

    def function(self, computation: Computation) -> str:
        """The Python function of a computation, written at its first use."""
        key = self._sameness.computation(computation)
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = self._global_name(identifier(computation.name))
            # Traced and lowered once; regions of ops have to be plain.
            is_called = any(c.opcode in ("call", "fusion") for c in self._callers.get(computation, ()))
            self._write_flow(name, self._flow(computation), decorator="@jax.jit" if is_called else "")
        return name

    def constant(self, value: np.ndarray) -> str:
        """A constant array: splat and small ones in place, others by name."""
        from hlosharding.ir import Shape

        shape = Shape.from_dtype(value.dtype, value.shape)
        flat = value.reshape(-1)
        if not value.size:
            return f"np.zeros({tuple(value.shape)}, {dtype_text(shape)})"
        # Compared as bits: a NaN is equal to nothing, and 0.0 to -0.0.
        is_splat = (flat.view(f"V{flat.itemsize}") == flat[:1].view(f"V{flat.itemsize}")).all()
        if is_splat and is_plain_nan(flat[:1]):
            return f"lax.broadcast({scalar_text(flat[0])}, {tuple(value.shape)})"
        if value.size <= _INLINE_ELEMENTS and value.dtype.kind in "iub" and shape.element_type[0] != "f":
            return f"np.array({value.tolist()}, {dtype_text(shape)})"
        key = f"c{len(self.constants)}"
        self.constants[key] = value
        return f'CONSTANTS["{key}"]'

    def raw(self, inst: Instruction) -> str:
        """The function that runs the op's StableHLO."""
        text = f"stablehlo({block_text(stablehlo_of(inst).strip())}, {shape_text(inst.shape)})"
        name = self._raw.get(text)
        if name is None:
            name = self._raw[text] = self._global_name(f"raw_{identifier(inst.opcode)}")
        return name

    def groups(self, groups: Groups) -> str:
        """A short list of groups in place, a longer one as a constant of the program."""
        text = repr(groups)
        if len(text) <= 40:
            return text
        name = self._groups.get(groups)
        if name is None:
            name = self._groups[groups] = self._global_name(f"GROUPS_{len(self._groups)}")
        return name

    # ---- functions

    def _write_flow(self, name: str, flow: Flow, *, decorator: str) -> None:
        steps = self._plan(flow)
        scope = self._scope()
        result = flow.result
        signature, unpack = self._signature(flow.parameters, scope, uses_of(steps, leaves(result)).used)
        body = [*unpack, *self._body(name, steps, result, scope)]
        if isinstance(result, tuple):
            body += _returned_tuple([scope.text(r) for r in result])
        else:
            body.append(f"return {scope.text(result)}")
        self._define(name, signature, body, decorator=decorator)

    def _plan(self, flow: Flow) -> tuple[Step, ...]:
        lines, paths = by_calls(flow.lines)
        return plan(lines, leaves(flow.result), self._sameness, paths)

    def _scope(self) -> Scope:
        return Scope(self._functions.values(), self._wishes)

    def _define(self, name: str, signature: list[str], body: Sequence[str], *, decorator: str = "") -> None:
        head = [decorator] if decorator else []
        lines = [*head, *wrap_items(f"def {name}(", signature, "):"), *[f"{_INDENT}{line}" for line in body]]
        self._blocks.append("\n".join(lines))

    def _signature(
        self, parameters: Sequence[Tree], scope: Scope, used: Container[Leaf]
    ) -> tuple[list[str], list[str]]:
        names, unpack = [], []
        for tree in parameters:
            if isinstance(tree, tuple):
                whole = scope.namer.fresh("state" if len(parameters) == 1 else "values")
                names.append(whole)
                if tree:
                    unpack += scope.unpack(tree, whole, used)
            else:
                names.append(scope.bind(tree))
        return names, unpack

    def _body(self, name: str, steps: Sequence[Step], result: Tree, scope: Scope) -> list[str]:
        """The lines of a function; of a long one the calls of its parts, which are written first."""
        heights = [_height(step) for step in steps]
        if sum(heights) <= CHUNK:
            return self._lines(steps, list(leaves(result)), scope)
        last = live_ranges(steps, leaves(result))
        body: list[str] = []
        for number, (begin, end) in enumerate(_pieces(steps, heights, last)):
            body += self._part(
                f"{name}_part_{number}" if name != self._entry_name else f"part_{number}",
                steps[begin:end],
                end,
                last,
                scope,
            )
        return body

    def _lines(
        self, steps: Sequence[Step], results: Sequence[Leaf], scope: Scope, *, is_part: bool = False
    ) -> list[str]:
        statements = Statements(scope, self, self._location, uses_of(steps, results))
        for step in steps:
            if isinstance(step, FunctionCall):
                statements.call(step.arguments)
                statements.lines += self._call(step, scope)
            else:
                statements.add(step)
        if is_part:
            statements.name(results)
        else:
            statements.finish(results)
        return statements.lines

    def _call(self, call: FunctionCall, scope: Scope) -> list[str]:
        name, keys = self._shared_function(call.shared)
        arguments = [scope.text(a) for a in call.arguments]
        if len(keys) > MANY:
            target = scope.namer.fresh(f"{name}_out")
            for var, key in zip(call.results, keys, strict=True):
                if var is not None:
                    scope.bind_entry(var, target, key)
        else:
            targets = [scope.bind(r) if r is not None else "_" for r in call.results]
            target = ", ".join(targets)
        return wrap_items(f"{target} = {name}(" if target else f"{name}(", arguments, ")")

    def _shared_function(self, shared: Shared) -> tuple[str, list[str]]:
        """Name of the function and the keys of its results."""
        known = self._shared.get(shared.key)
        if known is not None:
            return known
        name = self._global_name(identifier(shared.name) if shared.name else _wish_of(shared.lines))
        scope = self._scope()
        signature = [scope.bind(p) for p in shared.parameters]
        body = self._body(name, shared.steps, shared.results, scope)
        texts = [scope.text(r) for r in shared.results]
        namer = Namer()
        keys = [namer.fresh(self._wishes.of(r)) for r in shared.results]
        saved = len(shared.lines) * (shared.calls - 1)
        decorator = "@compile_once" if saved >= _MANY_SAVED else "@jax.jit" if shared.calls > 1 else ""
        self._define(name, signature, [*body, *_returned(texts, keys)], decorator=decorator)
        self._shared[shared.key] = name, keys
        return name, keys

    def _part(
        self, wish_name: str, steps: Sequence[Step], end: int, last: Mapping[Leaf, int], scope: Scope
    ) -> list[str]:
        """Write some steps as a function of their own; the line that calls it."""
        name = self._global_name(wish_name)
        made = {v for step in steps for v in step.defines}
        uses = [u for s in steps for u in s.uses if not isinstance(u, Inline) and u not in made]
        arguments = list(dict.fromkeys(scope.root(u) for u in uses))
        kept = [v for s in steps for v in s.defines if last.get(v, -1) >= end]
        body = self._lines(steps, kept, scope, is_part=True)
        # Several of them may be entries of one record, which is handed on once.
        results = list(dict.fromkeys(scope.root(v) for v in kept))
        self._define(name, arguments, [*body, *_returned(results, results)], decorator="@jax.jit")
        target = ", ".join(results)
        if len(results) > MANY:
            target = scope.namer.fresh(f"{name}_out")
            scope.move(results, target)
        return wrap_items(f"{target} = {name}(", arguments, ")")

    def _location(self, inst: Instruction) -> str:
        frame = inst.proto.metadata.stack_frame_id
        if not frame:
            return inst.location
        if frame not in self._locations:
            self._locations[frame] = inst.location
        return self._locations[frame]

    # ---- the whole

    def write(self, inputs: Sequence[BoundaryArray], outputs: Sequence[BoundaryArray]) -> str:
        """The program's text."""
        flow = self._flow(self.module.entry)
        name = self._entry_name = self._global_name(identifier(self.module.name.removeprefix("jit_")))
        parameters = [leaf for tree in flow.parameters for leaf in leaves(tree)]
        results = tuple(leaves(flow.result))
        scope = self._scope()
        signature, head, keys = self._entry_signature(parameters, inputs, scope)
        steps = self._plan(flow)
        body = self._body(name, steps, results, scope)
        returned = [_at_boundary(scope.text(r), layout) for r, layout in zip(results, outputs, strict=True)]
        doc = '"""One device\'s share of the program."""'
        self._define(name, signature, [doc, *head, *body, *_returned_tuple(returned)])
        header = header_text(
            self.module.name, self.axes, self.num_devices, is_wide=self.is_wide, blocks=self._blocks,
            constants=self.constants, groups=self._groups, raw=self._raw,
        )  # fmt: skip
        return "\n\n\n".join([
            header, *self._blocks, self._in_specs(keys, inputs), self._out_specs(outputs),
            _PROGRAM.format(name=name),
        ])  # fmt: skip

    def _entry_signature(
        self, parameters: Sequence[Leaf], inputs: Sequence[BoundaryArray], scope: Scope
    ) -> tuple[list[str], list[str], list[str]]:
        """Plain parameters, or for many of them one record `inputs`; lines that unstack scalars; the inputs' names."""
        namer = Namer(GLOBAL_NAMES)
        keys = [namer.fresh(self._wishes.of(p)) for p in parameters if isinstance(p, Var)]
        if len(parameters) <= _MANY_INPUTS:
            signature, head = [scope.bind(p) for p in parameters], []
            keys = signature
        else:
            record = scope.namer.fresh("inputs")
            signature, head = ["*arrays"], [f"{record} = dict(zip(IN_SPECS, arrays, strict=True))"]
            for leaf, key in zip(parameters, keys, strict=True):
                scope.bind_entry(leaf, record, key)
        for leaf, layout in zip(parameters, inputs, strict=True):
            if layout.memory is not None:
                head.append(f"{scope.text(leaf)} = jax.device_put({scope.text(leaf)}, jax.memory.Space.Device)")
            if layout.is_stacked and not layout.shape.rank:
                head.append(f"{scope.text(leaf)} = lax.reshape({scope.text(leaf)}, ())")
        return signature, head, keys

    def _in_specs(self, keys: Sequence[str], layouts: Sequence[BoundaryArray]) -> str:
        lines = [f'{_INDENT}"{key}": {self._spec(layout)}' for key, layout in zip(keys, layouts, strict=True)]
        return "\n".join(["IN_SPECS = {", *lines, "}"])

    def _out_specs(self, layouts: Sequence[BoundaryArray]) -> str:
        lines = [f"{_INDENT}{self._spec(layout)}" for layout in layouts]
        return "\n".join(["OUT_SPECS = (", *lines, ")"])

    def _spec(self, layout: BoundaryArray) -> str:
        said = f"{layout.shape} as stacked tiles, {layout.sharding}" if layout.is_stacked else str(layout.shape)
        return f"{layout.spec_text(self.axes)},  # {comment_text(said)}"


def _at_boundary(text: str, layout: BoundaryArray) -> str:
    return f"lax.reshape({text}, (1,))" if layout.is_stacked and not layout.shape.rank else text


def _returned_tuple(texts: Sequence[str]) -> list[str]:
    return wrap_items("return (", texts, ",)" if len(texts) == 1 else ")")


def _returned(texts: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The return of a function: a tuple, or a record where it has many results."""
    if len(texts) == 1:
        return [f"return {texts[0]}"]
    if len(texts) <= MANY:
        return _returned_tuple(texts)
    entries = [f'"{key}": {text}' for key, text in zip(keys, texts, strict=True)]
    return wrap_items("return {", entries, "}")


def _height(step: Step) -> int:
    """About how many lines a step takes."""
    return 1 + len(step.arguments) // 2 if isinstance(step, FunctionCall) else 1


def _pieces(steps: Sequence[Step], heights: Sequence[int], last: Mapping[Leaf, int]) -> Iterator[tuple[int, int]]:
    """Cut where few values are alive, in pieces of at most CHUNK lines."""
    alive = alive_before(steps, last)
    begin = 0
    while begin < len(steps):
        end, height = begin, 0
        # A call that is higher than a whole piece is one by itself: else no piece would come to an end.
        while end < len(steps) and (height + heights[end] <= CHUNK or end == begin):
            height += heights[end]
            end += 1
        if end < len(steps):
            # In the last third alone, or pieces would be many and short.
            window = range(begin + max(1, (end - begin) * 2 // 3), end + 1)
            end = min(window, key=lambda place: (alive[place], -place), default=end)
        yield begin, end
        begin = end


def _wish_of(lines: Sequence[CodeLine]) -> str:
    """The user's function that nearly all lines came from, or `layer`."""
    [(favourite, count)] = Counter(line.inst.frames.function_name for line in lines).most_common(1)
    name = identifier(favourite) if favourite and 2 * count > len(lines) else "layer"
    backward = sum(line.inst.is_backward for line in lines) * 2 > len(lines)
    return f"{name}_grad" if backward else name


_PROGRAM = '''def program(mesh):
    """The program over all devices of `mesh`, whose axes are AXES."""
    in_specs = tuple(IN_SPECS.values())
    return jax.shard_map({name}, mesh=mesh, in_specs=in_specs, out_specs=OUT_SPECS, check_vma=False)
'''
