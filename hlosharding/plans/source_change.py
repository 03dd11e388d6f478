"""Annotations as lines of the user's Python: a copy of the file with constraints in it, and the difference as a patch.

Floor: plans.  The file is one that the user names, or that a function came from which was traced in this process.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from functools import cached_property
from io import StringIO
from pathlib import Path

from hlosharding.errors import PlanError
from hlosharding.ir import Instruction, Module
from hlosharding.notebook import file_name
from hlosharding.plans.constraints import spec_of
from hlosharding.plans.export import mesh_of_primes
from hlosharding.plans.exported_text import at_text
from hlosharding.plans.source_places import SourcePlace, node_at, parsed, places, traced_text
from hlosharding.printable import printable
from hlosharding.sharding import HloSharding, MeshInfo
from hlosharding.small_files import read_text
from hlosharding.whole_files import write_whole

_CONSTRAIN = "jax.lax.with_sharding_constraint"
_AT = "sharding_at"
_HELPER = '''

def {name}(*axes):
    """Over these axes of the mesh, a dim each; for `jax.lax.with_sharding_constraint`."""
    mesh = jax.sharding.AbstractMesh({sizes}, {names})
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
'''


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A Python file with annotations written in.  `str` is a patch, behind comments that tell what no line says."""

    file: str
    before: str
    after: str
    unsaid: tuple[str, ...]
    """What no line of this file says, and why; and what a line says beside what was asked for."""
    edits: tuple[Edit, ...] = field(default=(), repr=False)
    """Without what these lines call."""

    @property
    def diff(self) -> str:
        """As `patch` and `git apply` read it."""
        path, here = Path(self.file).resolve(), Path.cwd()
        name = path.relative_to(here) if path.is_relative_to(here) else path.name
        lines = unified_diff(_lines(self.before), _lines(self.after), f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that change, or come in, each with its place in the file as it is."""
        groups: dict[tuple[int, bool], list[Edit]] = {}
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            groups.setdefault((self._line(edit.start), edit.start < edit.end), []).append(edit)
        name = file_name(self.file)
        return tuple(f"{name}:{line}: {self._changed(line, edits)}" for (line, _), edits in groups.items())

    def _changed(self, line: int, edits: Sequence[Edit]) -> str:
        if edits[0].start == edits[0].end:
            return " ".join(edit.head.strip() for edit in edits)
        last = max(self._line(edit.end) for edit in edits)
        return " ".join(part.strip() for part in _lines(edited(self.before, edits))[line - 1 : last])

    def _line(self, place: int) -> int:
        return self.before.encode().count(b"\n", 0, place) + 1

    def write(self, path: str | Path) -> None:
        """Write the file with its annotations.  Raises PlanError for the file itself."""
        if Path(path).resolve() == Path(self.file).resolve():
            raise PlanError(f"{path} is the source itself", remedy="write a copy, or apply the patch")
        write_whole(path, self.after)

    def __str__(self) -> str:
        return "".join((*(f"# {printable(line)}\n" for line in self.unsaid), self.diff))


def change_source(
    module: Module,
    annotations: Mapping[str, HloSharding],
    *,
    source: str | Path | None = None,
    mesh: MeshInfo | None = None,
) -> SourceChange:
    """Annotations of values of a traced function, by name, as constraints in its source.

    An expression is put into `jax.lax.with_sharding_constraint`; one that stands in such a call already gets the other
    sharding there; an argument that is a name is constrained where its function begins.  `source`: the file; by default
    that of the function, where it was traced in this process.  `mesh`: the axes; by default the module's.

    Raises PlanError where the file is not known, or is no Python.

    >>> import jax, jax.numpy as jnp, hlosharding as hs
    >>> mesh = jax.sharding.AbstractMesh((2,), ("x",))
    >>> step = hs.trace(lambda x: jnp.sin(x), mesh=mesh)(jnp.ones((4, 4)))
    >>> change_source(step, {"sin.1": hs.HloSharding.parse("{devices=[2,1]<=[2]}")}, source="gone.py")
    Traceback (most recent call last):
    ...
    hlosharding.errors.PlanError: cannot read gone.py: No such file or directory; is it the file that you mean?
    """
    name = str(source) if source is not None else _traced_file(module)
    text = read_text(name, PlanError) if source is not None else traced_text(name)
    tree = parsed(name, text)
    if not tree.body:
        raise PlanError(f"{name} is no Python", remedy="name the file in which the function stands")
    axes = mesh or module.mesh or mesh_of_primes(module.num_partitions)
    wanted = _Wanted(module, name, text, tree, axes)
    told = [wanted.find_edit(module.by_name(value), sharding) for value, sharding in annotations.items()]
    # An expression may make several of the values: it is changed once.
    edits = list(dict.fromkeys(one for one in told if isinstance(one, Edit)))
    notes = [*(one for one in told if isinstance(one, str)), *wanted.find_shared(annotations)]
    helper = [_helper(text, tree, axes)] if edits else []
    return SourceChange(name, text, edited(text, [*edits, *helper]), tuple(notes), tuple(edits))


def _helper(text: str, tree: ast.Module, mesh: MeshInfo) -> Edit:
    """The function that constraints call, behind what it needs; where they are not there."""
    imported = {n.name for one in tree.body if isinstance(one, ast.Import) for n in one.names if not n.asname}
    function = _HELPER.format(name=_AT, sizes=mesh.sizes, names=mesh.names)
    is_there = any(isinstance(one, ast.FunctionDef) and one.name == _AT for one in tree.body)
    place = behind_imports(text, tree)
    return Edit(place, place, "import jax\n" * ("jax" not in imported) + function * (not is_there))


def _traced_file(module: Module) -> str:
    """The file of the function itself; of one that cannot be found that of most of its values."""
    if module.signature is None:
        raise PlanError("the function's source is not known", remedy="name its file")
    name = module.name.removeprefix("jit_")
    frames = [frame for inst in module.instructions for frame in inst.frames.of_user]
    own = [frame.file for frame in frames if frame.function_name == name] or [frame.file for frame in frames]
    if not own:
        raise PlanError("the program names no source lines", remedy="trace the function")
    return Counter(own).most_common(1)[0][0]


@dataclass(frozen=True)
class _Wanted:
    module: Module
    file: str
    text: str
    tree: ast.Module
    mesh: MeshInfo

    def find_edit(self, inst: Instruction, sharding: HloSharding) -> Edit | str:
        """Or why no line of the file says it."""
        spec = spec_of(sharding, self.mesh)
        what = f"%{inst.name}{f' at {inst.location}' if inst.location else ''}"
        if isinstance(spec, str):
            return f"{what}: {spec}"
        said = at_text(spec, _AT)
        if inst.opcode == "parameter" and inst.computation.is_entry:
            return self._of_argument(inst, said)
        found = self._of_constraint(inst, said) if inst.opcode == "custom-call" else self._of_expression(inst, said)
        return found or f"{what} as {said}: no expression of {file_name(self.file)} makes it"

    def _of_argument(self, inst: Instruction, said: str) -> Edit | str:
        """One that has a sharding has it from `in_shardings`, which this would contradict."""
        name = inst.path
        for node in ast.walk(self.tree) if self.module.sharding(inst) is None else ():
            if isinstance(node, ast.FunctionDef) and node.name == self.module.name.removeprefix("jit_"):
                place = body_start(self.text, node)
                if place is not None and name in {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}:
                    return Edit(place[0], place[0], f"{place[1]}{name} = {_CONSTRAIN}({name}, {said})\n")
        return f"in_shardings of {name}: {said}"

    def _of_constraint(self, inst: Instruction, said: str) -> Edit | None:
        frame = inst.frames.of_user[0] if inst.frames.of_user else None
        if frame is None or not self._text_of(frame.file):
            return None
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and len(node.args) == 2)
        for call in calls:
            is_there = (call.lineno, call.col_offset) == (frame.line, frame.column)
            if is_there and ast.unparse(call.func).endswith("with_sharding_constraint"):
                return Edit(*span_of(self.text, call.args[1]), said, replaces=True)
        return None

    def _of_expression(self, inst: Instruction, said: str) -> Edit | None:
        place = next((place for place, values in self._places.items() if inst in values), None)
        node = node_at(place, self._text_of(place.file)) if place is not None else None
        return Edit(*span_of(self.text, node), f"{_CONSTRAIN}(", f", {said})") if node is not None else None

    @cached_property
    def _places(self) -> Mapping[SourcePlace, list[Instruction]]:
        return places(self.module, self._text_of)

    def _text_of(self, file: str) -> str:
        return self.text if file_name(file) == file_name(self.file) else ""

    def find_shared(self, names: Mapping[str, HloSharding]) -> Iterator[str]:
        """Expressions that make other values, too: of each call, in each layer."""
        for place, values in self._places.items():
            if len(values) > 1 and any(inst.name in names for inst in values):
                yield f"{place} makes {len(values)} values: all of them get that sharding, and were not priced so"


# ---- a text with insertions


@dataclass(frozen=True, slots=True)
class Edit:
    """`head` and `tail` around a part of a text; or, where `head` stands for it, in its place.  In bytes."""

    start: int
    end: int
    head: str
    tail: str = ""
    replaces: bool = False

    def pieces(self) -> Iterator[tuple[tuple[int, int, int], int, str]]:
        """In which order they come, up to where the text is left out, and what is inserted.

        Where parts begin or end together the outer ones begin first, and the inner ones end first.
        """
        yield (self.start, 1, -self.end), self.end if self.replaces else self.start, self.head
        if self.tail:
            yield (self.end, 0, -self.start), self.end, self.tail


def edited(text: str, edits: Iterable[Edit]) -> str:
    """
    >>> edited("f(x + y)", [Edit(0, 8, "g(", ")"), Edit(2, 7, "h(", ")"), Edit(2, 3, "z", replaces=True)])
    'g(f(h(z + y)))'
    """
    # `ast` counts columns in bytes of UTF-8.
    data, parts, at = text.encode(), list[bytes](), 0
    for (start, _, _), end, inserted in sorted(piece for edit in edits for piece in edit.pieces()):
        parts += [data[at:start], inserted.encode()]
        # An edit inside of a part that is replaced ends before that does.
        at = max(at, end)
    return b"".join([*parts, data[at:]]).decode()


def span_of(text: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression begins and ends, in bytes.

    >>> span_of("a = 1\\nb = a", ast.parse("a = 1\\nb = a").body[1].value)
    (10, 11)
    """
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return line_start(text, node.lineno) + node.col_offset, line_start(text, node.end_lineno) + node.end_col_offset


def line_start(text: str, number: int) -> int:
    """Where a line begins, in bytes; the first is 1."""
    return sum(len(line.encode()) for line in _lines(text)[: number - 1])


def _lines(text: str) -> list[str]:
    """With their ends."""
    # Not `splitlines`, for which form feeds and the like end lines, too: for `ast` and `patch` they do not.
    return StringIO(text, newline="").readlines()


def behind_imports(text: str, tree: ast.Module) -> int:
    """Where a new function may stand: behind the last import at the beginning, or the docstring."""
    last = 0
    for number, statement in enumerate(tree.body):
        is_docstring = not number and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring and not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        last = statement.end_lineno or statement.lineno
    return line_start(text, last + 1)


def body_start(text: str, function: ast.FunctionDef) -> tuple[int, str] | None:
    """Where a first statement may stand in a function, and its indentation; None where the first one there shares its
    line with what is ahead of it."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return None
    # A decorated function's line is that of its `def`.
    line = min([body[0].lineno, *(d.lineno for d in getattr(body[0], "decorator_list", ()))])
    start = line_start(text, line)
    ahead = text.encode()[start : start + body[0].col_offset].decode()
    return None if ahead.strip() else (start, ahead)
