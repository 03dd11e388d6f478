"""A partitioned module as Python: one `jax.shard_map` program in the words of `jax.lax`.

Floor: executor.  The text made here is what runs (`program.py`); it knows nothing of devices that exist.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hlosharding.executor import catalog  # noqa: F401  (fills the table of emitters)
from hlosharding.executor.axes import Axes, Groups, Needs, choose_axes
from hlosharding.executor.emit import Op, emit
from hlosharding.executor.flow import Flow, Leaf, Line, Slot, Tree, Var, flow_of, leaves, tree_of
from hlosharding.executor.functions import Call, Shared, Step, live_ranges, plan
from hlosharding.executor.lax_collectives import device_groups, is_ordered, permute_pairs
from hlosharding.executor.lax_elementwise import is_wide
from hlosharding.executor.layout import Layout, entry_layouts
from hlosharding.executor.raw import stablehlo_of
from hlosharding.executor.structure import Structure
from hlosharding.executor.text import GLOBAL_NAMES, Namer, dtype_text, identifier, scalar_text, wrapped
from hlosharding.ir import COLLECTIVES, Computation, Instruction, Module

CHUNK = 360
"""Lines of one function's body, after which it is cut: with its signature a function stays below 500 lines."""
_INLINE_ELEMENTS = 16
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a program, the constants it refers to, and how its arrays lie at the boundary."""

    text: str
    constants: dict[str, np.ndarray]
    axes: Axes
    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    is_wide: bool
    """True for a program with 64-bit values: trace and call it under `jax.enable_x64(True)`."""


def as_python(
    module: Module,
    *,
    inputs: Sequence[Layout] | None = None,
    outputs: Sequence[Layout] | None = None,
    causes: Mapping[int, str] | None = None,
) -> str:
    """The program's text.  `causes`: per instruction id a word on why it is there; it becomes a comment."""
    return write_source(module, inputs=inputs, outputs=outputs, causes=causes).text


def write_source(
    module: Module,
    *,
    inputs: Sequence[Layout] | None = None,
    outputs: Sequence[Layout] | None = None,
    causes: Mapping[int, str] | None = None,
) -> Source:
    """Write a partitioned module (local shapes, explicit collectives).

    `inputs` and `outputs`: global shape and sharding of each entry parameter's and of the root's leaves; from the
    module's sharding table where not given (all tiles even).
    """
    found_inputs, found_outputs = entry_layouts(module, inputs, outputs)
    axes = choose_axes(module.mesh, max(1, module.num_partitions), _needs(module, (*found_inputs, *found_outputs)))
    inputs_said = tuple(layout.over(axes) for layout in found_inputs)
    outputs_said = tuple(layout.over(axes) for layout in found_outputs)
    writer = _Writer(module, axes, dict(causes or {}))
    text = writer.write(inputs_said, outputs_said)
    return Source(text, writer.constants, axes, inputs_said, outputs_said, writer.is_wide)


def _needs(module: Module, layouts: Sequence[Layout]) -> Needs:
    count = max(1, module.num_partitions)
    collectives = [i for i in module.instructions if i.opcode in COLLECTIVES]
    grouped = [i for i in collectives if i.opcode != "collective-permute"]
    return Needs(
        ordered=frozenset(device_groups(i, count) for i in grouped if is_ordered(i)),
        unordered=frozenset(device_groups(i, count) for i in grouped if not is_ordered(i)),
        permutes=frozenset(permute_pairs(i, count) for i in collectives if i.opcode == "collective-permute"),
        shardings=frozenset((layout.sharding, layout.shape.rank) for layout in layouts if layout.is_even),
    )


@dataclass(slots=True)
class _Scope:
    """The names of one function's values."""

    namer: Namer
    names: dict[Leaf, str] = field(default_factory=dict)

    def text(self, tree: Tree) -> str:
        """An operand as an expression."""
        if isinstance(tree, str):
            return tree
        if isinstance(tree, tuple):
            inner = ", ".join(self.text(part) for part in tree)
            return f"({inner},)" if len(tree) == 1 else f"({inner})"
        return self.names[tree]

    def bind(self, tree: Tree, wishes: Mapping[Var, str] | None = None) -> str:
        """New names for the values of a tree, as the target of an assignment."""
        if isinstance(tree, tuple):
            inner = ", ".join(self.bind(part, wishes) for part in tree)
            return f"({inner},)" if len(tree) == 1 else f"({inner})"
        assert not isinstance(tree, str)
        if tree not in self.names:
            var = tree.var if isinstance(tree, Slot) else tree
            self.names[tree] = self.namer.fresh((wishes or {}).get(var) or wish(var))
        return self.names[tree]


def wish(var: Var) -> str:
    """The name a value would like: that of its instruction, or of the element taken out of it."""
    inst = var.inst
    if inst.opcode == "parameter" and inst.computation.is_entry and inst.op_name and not var.path:
        return identifier(inst.op_name)
    for index in var.path[:1]:
        for user in inst.users:
            if user.opcode == "get-tuple-element" and user.tuple_index == index and len(var.path) == 1:
                if not user.name.startswith("get-tuple-element"):
                    return identifier(user.name)
                break
    return identifier("_".join([inst.name, *map(str, var.path)]))


class _Writer:
    """Writes functions, callees before callers; the emitters' `Program`."""

    def __init__(self, module: Module, axes: Axes, causes: dict[int, str]) -> None:
        self.module = module
        self.axes = axes
        self.num_devices = max(1, module.num_partitions)
        self.causes = causes
        self.constants: dict[str, np.ndarray] = {}
        self.is_wide = any(is_wide(i.shape) for i in module.instructions)
        self._structure = Structure()
        local = {identifier(i.name) for i in module.instructions}
        local |= {wish(Var(p)) for p in module.entry.parameters}
        self._local_names = local
        self._globals = Namer(GLOBAL_NAMES)
        self._blocks: list[str] = []
        self._functions: dict[int, str] = {}
        self._shared: dict[Shared, str] = {}
        self._groups: dict[Groups, str] = {}
        self._raw: dict[str, str] = {}
        self._locations: dict[int, str] = {}

    def _global_name(self, wish_name: str) -> str:
        """A name that no local value can have: their names are those of instructions, with or without a number."""
        return self._globals.fresh(f"{wish_name}_fn" if wish_name in self._local_names else wish_name)

    # ---- what emitters ask for

    def function(self, computation: Computation) -> str:
        """The Python function of a computation, written at its first use."""
        key = self._structure.computation(computation)
        name = self._functions.get(key)
        if name is None:
            name = self._functions[key] = self._global_name(identifier(computation.name))
            # A function that XLA may keep as one is traced and lowered once; regions of ops have to be plain.
            is_called = any(c.opcode in ("call", "fusion") for c in self._callers(computation))
            self._write_flow(name, flow_of(computation), is_jitted=is_called)
        return name

    def _callers(self, computation: Computation) -> list[Instruction]:
        if not hasattr(self, "_caller_table"):
            table: dict[Computation, list[Instruction]] = {}
            for inst in self.module.instructions:
                for callee in inst.called:
                    table.setdefault(callee, []).append(inst)
            self._caller_table = table
        return self._caller_table.get(computation, [])

    def constant(self, value: np.ndarray) -> str:
        """A constant array: splat and small ones in place, others by name."""
        from hlosharding.ir import Shape

        shape = Shape.from_dtype(value.dtype, value.shape)
        flat = value.reshape(-1)
        if value.size and (flat.view(f"V{flat.itemsize}") == flat[:1].view(f"V{flat.itemsize}")).all():
            return f"lax.broadcast({scalar_text(flat[0])}, {tuple(value.shape)})"
        if value.size <= _INLINE_ELEMENTS and value.dtype.kind in "iub" and shape.element_type[0] != "f":
            return f"np.array({value.tolist()}, {dtype_text(shape)})"
        key = f"c{len(self.constants)}"
        self.constants[key] = value
        return f'CONSTANTS["{key}"]'

    def raw(self, inst: Instruction) -> str:
        """The entry of RAW_OPS with the op's StableHLO."""
        text = stablehlo_of(inst)
        name = self._raw.get(text)
        if name is None:
            name = self._raw[text] = self._global_name(f"RAW_{identifier(inst.name).upper()}")
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

    def _write_flow(self, name: str, flow: Flow, *, is_jitted: bool, doc: str = "") -> None:
        steps = plan(flow.lines, leaves(flow.result), self._structure)
        scope = _Scope(Namer(GLOBAL_NAMES | set(self._functions.values())))
        self._write_function(name, flow.parameters, steps, flow.result, scope, is_jitted=is_jitted, doc=doc)

    def _write_function(
        self, name: str, parameters: Sequence[Tree], steps: Sequence[Step], result: Tree, scope: _Scope, *,
        is_jitted: bool, doc: str = "", head: Sequence[str] = (), results: list[str] | None = None,
    ) -> None:  # fmt: skip
        """Append a function; a long one is cut into parts first.  `results` overrides the returned expressions."""
        signature, unpack = self._signature(parameters, scope)
        rendered = [self._render(step, scope) for step in steps]
        body = self._cut(name, list(steps), rendered, result, scope)
        lines = ["@jax.jit"] if is_jitted else []
        lines += wrapped(f"def {name}(", signature, "):", "")
        lines += [f'{_INDENT}"""{doc}"""'] if doc else []
        lines += [f"{_INDENT}{line}" for line in (*unpack, *head, *body)]
        if results is None:
            returned = [scope.text(part) for part in result] if isinstance(result, tuple) else [scope.text(result)]
            comma = "," if isinstance(result, tuple) and len(result) == 1 else ""
            brackets = ("(", f"{comma})") if isinstance(result, tuple) else ("", "")
        else:
            returned, brackets = results, ("(", ",)" if len(results) == 1 else ")")
        lines += wrapped(f"return {brackets[0]}", returned, brackets[1], _INDENT)
        self._blocks.append("\n".join(lines))

    def _signature(self, parameters: Sequence[Tree], scope: _Scope) -> tuple[list[str], list[str]]:
        names, unpack = [], []
        for tree in parameters:
            if isinstance(tree, tuple):
                whole = scope.namer.fresh("state" if len(parameters) == 1 else "values")
                names.append(whole)
                if tree:
                    unpack.append(f"{scope.bind(tree)} = {whole}")
            else:
                names.append(scope.bind(tree))
        return names, unpack

    def _render(self, step: Step, scope: _Scope) -> list[str]:
        if isinstance(step, Call):
            return self._render_call(step, scope)
        inst = step.inst
        expression = emit(Op(inst, tuple(scope.text(o) for o in step.operands), self))
        target = scope.bind(tree_of(inst))
        if inst.opcode == "token" or target == "()":
            return [expression]
        cause = self.causes.get(inst.id)
        return [f"{target} = {expression}" + (f"  # {cause}" if cause else "")]

    def _render_call(self, call: Call, scope: _Scope) -> list[str]:
        name = self._shared_function(call.shared)
        arguments = [scope.text(a) for a in call.arguments]
        targets = [scope.bind(r) if r is not None else "_" for r in call.results]
        target = f"({targets[0]},)" if len(targets) == 1 else ", ".join(targets)
        lines = wrapped("(", targets, ") = \\", "") if len(target) > 80 and len(targets) > 1 else []
        if not lines:
            return wrapped(f"{target} = {name}(", arguments, ")", "") if targets else wrapped(f"{name}(", arguments, ")", "")
        return [*lines, *wrapped(f"{name}(", arguments, ")", _INDENT)]

    def _shared_function(self, shared: Shared) -> str:
        name = self._shared.get(shared)
        if name is None:
            name = self._shared[shared] = self._global_name(self._shared_wish(shared.lines))
            scope = _Scope(Namer(GLOBAL_NAMES | set(self._functions.values())))
            self._write_function(
                name, shared.parameters, shared.steps, shared.results, scope, is_jitted=True,
            )  # fmt: skip
        return name

    def _shared_wish(self, lines: Sequence[Line]) -> str:
        """The user's function that most of the lines came from."""
        names: Counter[str] = Counter()
        for line in lines:
            frame = next((f for f in line.inst.frames if not f.is_library and f.function.rsplit(".", 1)[-1].isidentifier()), None)
            if frame is not None:
                names[frame.function.rsplit(".", 1)[-1]] += 1
        if not names:
            return "layer"
        backward = sum("transpose(" in line.inst.op_name for line in lines) * 2 > len(lines)
        name = identifier(names.most_common(1)[0][0])
        return f"{name}_backward" if backward else name

    # ---- cutting long functions

    def _cut(
        self, name: str, steps: list[Step], rendered: list[list[str]], result: Tree, scope: _Scope
    ) -> list[str]:
        commented = [[*self._comment(step, before), *lines] for step, before, lines in
                     zip(steps, [None, *steps][: len(steps)], rendered, strict=True)]  # fmt: skip
        if sum(map(len, commented)) <= CHUNK:
            return [line for lines in commented for line in lines]
        last = live_ranges(steps, result)
        body: list[str] = []
        for number, (begin, end) in enumerate(_pieces(steps, commented, last)):
            body += self._write_part(f"{name}_part_{number}", steps[begin:end], commented[begin:end], end, last, scope)
        return body if len(body) <= CHUNK else body

    def _write_part(
        self, wish_name: str, steps: Sequence[Step], lines: Sequence[list[str]], end: int,
        last: Mapping[Leaf, int], scope: _Scope,
    ) -> list[str]:  # fmt: skip
        name = self._global_name(wish_name)
        made = {v for step in steps for v in step.defines}
        uses = dict.fromkeys(u for s in steps for u in s.uses if not isinstance(u, str) and u not in made)
        arguments = [scope.names[leaf] for leaf in uses]
        results = [scope.names[v] for s in steps for v in s.defines if last.get(v, -1) >= end]
        text = ["@jax.jit", *wrapped(f"def {name}(", arguments, "):", "")]
        text += [f"{_INDENT}{line}" for part in lines for line in part]
        text += wrapped("return (", results, ",)" if len(results) == 1 else ")", _INDENT)
        self._blocks.append("\n".join(text))
        call = wrapped(f"{name}(", arguments, ")", "")
        targets = wrapped("(", results, ",) = \\" if len(results) == 1 else ") = \\", "")
        one = f"{targets[0][:-2]} {call[0]}"
        return [one] if len(targets) == len(call) == 1 and len(one) < 110 else [*targets, *[f"{_INDENT}{c}" for c in call]]

    def _comment(self, step: Step, before: Step | None) -> list[str]:
        """`# model.py:31` above the first line of a run that came from there."""
        if isinstance(step, Call):
            return []
        here = self._location(step.inst)
        there = self._location(before.inst) if isinstance(before, Line) else ""
        return [f"# {here}"] if here and here != there else []

    def _location(self, inst: Instruction) -> str:
        frame = inst.proto.metadata.stack_frame_id
        if not frame:
            return inst.location
        if frame not in self._locations:
            self._locations[frame] = inst.location
        return self._locations[frame]

    # ---- the whole

    def write(self, inputs: Sequence[Layout], outputs: Sequence[Layout]) -> str:
        """The program's text."""
        flow = flow_of(self.module.entry)
        name = self._global_name(identifier(self.module.name.removeprefix("jit_")))
        parameters = [leaf for tree in flow.parameters for leaf in leaves(tree)]
        results = list(leaves(flow.result))
        steps = plan(flow.lines, results, self._structure)
        scope = _Scope(Namer(GLOBAL_NAMES))
        head = []
        for leaf, layout in zip(parameters, inputs, strict=True):
            bound = scope.bind(leaf)
            if layout.is_stacked and not layout.shape.rank:
                head.append(f"{bound} = lax.reshape({bound}, ())")
        rendered: list[str] = []

        def returned() -> Iterator[str]:
            for leaf, layout in zip(results, outputs, strict=True):
                text = scope.text(leaf)
                yield f"lax.reshape({text}, (1,))" if layout.is_stacked and not layout.shape.rank else text

        doc = "One device's share of the program."
        self._write_entry(name, parameters, steps, tuple(results), scope, head, returned, doc)
        rendered = [self._header(), *self._blocks, self._specs("IN_SPECS", [scope.names[p] for p in parameters], inputs)]
        rendered.append(self._specs("OUT_SPECS", [scope.text(r) for r in results], outputs))
        rendered.append(_PROGRAM.format(name=name))
        return "\n\n\n".join(rendered)

    def _write_entry(self, name, parameters, steps, result, scope, head, returned, doc) -> None:  # type: ignore[no-untyped-def]
        signature, _ = self._signature(parameters, scope)
        rendered = [self._render(step, scope) for step in steps]
        body = self._cut(name, list(steps), rendered, result, scope)
        lines = [*wrapped(f"def {name}(", signature, "):", ""), f'{_INDENT}"""{doc}"""']
        lines += [f"{_INDENT}{line}" for line in (*head, *body)]
        values = list(returned())
        lines += wrapped("return (", values, ",)" if len(values) == 1 else ")", _INDENT)
        self._blocks.append("\n".join(lines))

    def _specs(self, name: str, names: Sequence[str], layouts: Sequence[Layout]) -> str:
        lines = [f"{name} = ("]
        for value, layout in zip(names, layouts, strict=True):
            note = f"{value}: {layout.shape}" + (f" as stacked tiles {layout.sharding}" if layout.is_stacked else "")
            lines.append(f"{_INDENT}{layout.spec_text(self.axes)},  # {note}")
        return "\n".join([*lines, ")"])

    def _header(self) -> str:
        axes = ", ".join(f"{n}={s}" for n, s in zip(self.axes.names, self.axes.sizes, strict=True))
        lines = [
            f'"""{self.module.name}: what each of {self.num_devices} devices runs, on a mesh {axes}.',
            "",
            "Shapes are local.  Written by hlosharding; this text is what runs.",
        ]
        if self.is_wide:
            lines.append("It has 64-bit values: trace and call it under jax.enable_x64(True).")
        text = "\n".join([*lines, '"""'])
        body = "\n".join([*text.split("\n"), "", "import jax"])
        blocks = "\n".join(self._blocks)
        if "ml_dtypes." in blocks:
            body += "\nimport ml_dtypes"
        body += "\nimport numpy as np\nfrom jax import lax\nfrom jax.sharding import PartitionSpec as P"
        if self._raw:
            body += "\n\nfrom hlosharding.executor import raw"
        names = ", ".join(f'"{n}"' for n in self.axes.names) + ("," if len(self.axes.names) == 1 else "")
        body += f"\n\nAXES = ({names})"
        if "CLAMPED" in blocks:
            body += '\nCLAMPED = "promise_in_bounds"  # the plain HLO gather: it clamps indices that are out of bounds'
        if "DROPPED" in blocks:
            body += '\nDROPPED = "drop"  # the plain HLO scatter: it drops updates that are out of bounds'
        for groups, name in self._groups.items():
            body += f"\n{name} = {groups!r}"
        if self.constants:
            body += "\n\n# Arrays of the module, handed over beside this text."
            body += "".join(
                f'\n# CONSTANTS["{k}"]: {v.dtype.name}{list(v.shape)}' for k, v in self.constants.items()
            )
        if self._raw:
            body += "\n\n# Ops without a jax.lax form, in their own StableHLO."
            for text, name in self._raw.items():
                body += f'\n{name} = r"""\n{text.strip()}\n"""'
        return body


def _pieces(
    steps: Sequence[Step], lines: Sequence[list[str]], last: Mapping[Leaf, int]
) -> Iterator[tuple[int, int]]:
    """Cut where few values are alive, in pieces of at most CHUNK lines."""
    alive = _alive(steps, last)
    begin = 0
    while begin < len(steps):
        end, height = begin, 0
        while end < len(steps) and (height + len(lines[end]) <= CHUNK or end == begin):
            height += len(lines[end])
            end += 1
        if end < len(steps):
            window = range(begin + max(1, (end - begin) * 2 // 3), end + 1)
            end = min(window, key=lambda place: (alive[place], -place), default=end)
        yield begin, end
        begin = end


def _alive(steps: Sequence[Step], last: Mapping[Leaf, int]) -> list[int]:
    """How many values made before each place are used at or after it."""
    change = [0] * (len(steps) + 2)
    for i, step in enumerate(steps):
        for var in step.defines:
            end = last.get(var, i)
            if end > i:
                change[i + 1] += 1
                change[min(end, len(steps)) + 1] -= 1
    alive, total = [], 0
    for step_change in change[: len(steps) + 1]:
        total += step_change
        alive.append(total)
    return alive


_PROGRAM = '''def program(mesh):
    """The program over all devices of `mesh`, whose axes are AXES."""
    return jax.shard_map({name}, mesh=mesh, in_specs=IN_SPECS, out_specs=OUT_SPECS, check_vma=False)
'''
