"""Values and users that bring a sharding of a given kind at a given level of the pass, and not before.

Level 0 takes an annotated neighbour; level 1 puts a slice between; level 2 a broadcast that gives back to its operand;
level 3 a broadcast that gives to its users.  Manual passes a broadcast at level 2 already; at level 3 it comes with the
tiling of another element of a tuple (`_manual_at_last`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.oracle.random_modules import Body, Dims, ModuleWriter, Value, braces

_LAST = 3
_LEVEL_ONE: dict[str, Callable[[Dims], str]] = {
    "collective-permute": lambda dims: "source_target_pairs={{0,1},{1,0}}",
    "slice": lambda dims: f"slice={{{', '.join(f'[0:{d}]' for d in dims)}}}",
    "reverse": lambda dims: "dimensions={0}",
}


def late_value(w: ModuleWriter, dims: Dims, element_type: str, kind: str, level: int) -> Value:
    """A value that has a sharding of that kind from that level on."""
    if level == 0:
        return _given(w, dims, element_type, kind)
    if level == 1:
        return _level_one(w, _given(w, dims, element_type, kind), "")
    if kind == "N" and level == _LAST:
        return _manual_at_last(w, dims, element_type)
    if level == 2 and kind != "N":
        value = _free(w, dims, element_type)
        _wide_user(w, value, kind)
        return value
    return _replicated_row(w, dims, element_type) if kind == "R" else _row(w, dims, element_type, kind)


def late_user(w: ModuleWriter, value: Value, kind: str, level: int) -> None:
    """A user that offers such a sharding to the value at that level."""
    if level == 0:
        w.emit("copy", value.dims, f"%{value.name}", _annotation(w, value.dims, kind), value.type)
    elif level == 1 and kind != "N":
        _level_one(w, value, _annotation(w, value.dims, kind))
    elif level == 2 and kind != "N":
        _wide_user(w, value, kind)
    else:
        # A manual user gives at level 0 whatever it is: it has to become manual late itself.
        other = late_value(w, value.dims, value.type, kind, level)
        opcode = "and" if value.type == "pred" else "add"
        w.emit(opcode, value.dims, f"%{value.name}, %{other.name}", "", value.type, free=True)


def in_group(w: ModuleWriter, value: Value, way: str = "like") -> str:
    """A shard group with that value in it; returns the mark of its other members."""
    mark = f"{{unknown shard_{way} {w.count * 8 + 1}}}"
    attributes = f'custom_call_target="Sharding", custom_call_has_side_effect=true, sharding={mark}'
    w.emit("custom-call", value.dims, f"%{value.name}", attributes, value.type)
    return mark


def _annotation(w: ModuleWriter, dims: Dims, kind: str) -> str:
    return f"sharding={w.of_kind(kind, dims)}"


def _given(w: ModuleWriter, dims: Dims, element_type: str, kind: str) -> Value:
    """Annotated from the start."""
    sharding = w.of_kind(kind, dims)
    roll = w.random.random()
    if w.depth == 0 and roll < 0.4:
        return w.parameter(dims, element_type, sharding)
    if dims and element_type != "pred" and roll < 0.7:
        dim = w.random.randrange(len(dims))
        return w.emit("iota", dims, "", f"iota_dimension={dim}, sharding={sharding}", element_type)
    return w.emit("copy", dims, f"%{_free(w, dims, element_type).name}", f"sharding={sharding}", element_type)


def _free(w: ModuleWriter, dims: Dims, element_type: str) -> Value:
    """A value without a sharding that may be given one."""
    if w.depth == 0 and (not dims or element_type == "pred" or w.random.random() < 0.6):
        source = w.parameter(dims, element_type, free=True)
        return w.emit("copy", dims, f"%{source.name}", "", element_type, free=True)
    if dims and element_type != "pred":
        return w.emit("iota", dims, "", f"iota_dimension={w.random.randrange(len(dims))}", element_type, free=True)
    scalar = w.emit("constant", (), one_of(element_type), "", element_type, free=True)
    if not dims:
        return w.emit("copy", (), f"%{scalar.name}", "", element_type, free=True)
    return w.emit("broadcast", dims, f"%{scalar.name}", "dimensions={}", element_type, free=True)


def one_of(element_type: str) -> str:
    """The constant one as HLO text writes it."""
    return {"pred": "true", "c64": "(1, 0)"}.get(element_type, "1")


def _level_one(w: ModuleWriter, value: Value, attributes: str) -> Value:
    opcode = w.random.choice(sorted(_LEVEL_ONE)) if value.dims else "collective-permute"
    more = ", ".join(filter(None, (_LEVEL_ONE[opcode](value.dims), attributes)))
    return w.emit(opcode, value.dims, f"%{value.name}", more, value.type, free=True)


def _wide_user(w: ModuleWriter, value: Value, kind: str) -> None:
    """A broadcast along one more dim, annotated."""
    sharding = w.of_kind(kind, value.dims).replace("{devices=[", "{devices=[1,")
    attributes = f"dimensions={braces(range(1, len(value.dims) + 1))}, sharding={sharding}"
    w.emit("broadcast", (w.random.choice((2, 3, 8)), *value.dims), f"%{value.name}", attributes, value.type)


def _row(w: ModuleWriter, dims: Dims, element_type: str, kind: str) -> Value:
    """A broadcast of an annotated value of fewer dims."""
    kept = sorted(w.random.sample(range(len(dims)), w.random.randint(min(1, len(dims)), len(dims))))
    row = _given(w, tuple(dims[d] for d in kept), element_type, kind)
    return w.emit("broadcast", dims, f"%{row.name}", f"dimensions={braces(kept)}", element_type, free=True)


def _replicated_row(w: ModuleWriter, dims: Dims, element_type: str) -> Value:
    """Tiles along a dim that is summed away leave a replicated result."""
    size = w.random.choice((4, 8, 16))
    wide = _row(w, (size,), element_type, "T")
    wide = w.emit("broadcast", (size, *dims), f"%{wide.name}", "dimensions={0}", element_type, free=True)
    return _summed(w, wide)


def _manual_at_last(w: ModuleWriter, dims: Dims, element_type: str) -> Value:
    """A copy of a tuple keeps its tiled element until another element brings tiles, at level 3; then it takes all.

    The tuple comes from a call, which takes nothing from its users; summed over the tiled dim, the element was
    replicated, and so becomes manual after all.
    """
    size = w.random.choice((4, 8, 16))
    wide = (size, *dims)
    shape = f"({Value('', wide, element_type).shape}, f32[{size}])"
    with _computation(w, "callee") as callee:
        w.body.lines.append(f"  %{callee}.p = f32[] parameter(0)")
        manual = _level_one(w, _given(w, wide, element_type, "N"), "")
        late = late_value(w, (size,), "f32", "T", _LAST)
        w.body.lines.append(f"  ROOT %{callee}.r = {shape} tuple(%{manual.name}, %{late.name})")
    scalar = w.emit("constant", (), "1", "", "f32", free=True)
    call, copy = w.fresh("call"), w.fresh("copy")
    w.body.lines.append(f"  %{call} = {shape} call(%{scalar.name}), to_apply=%{callee}")
    w.body.lines.append(f"  %{copy} = {shape} copy(%{call})")
    rows = w.of_kind("T", (size,)).replace("]", "".join([",1"] * len(dims)) + "]", 1)
    w.emit("get-tuple-element", wide, f"%{copy}", f"index=0, sharding={rows}", element_type)
    element = w.emit("get-tuple-element", wide, f"%{copy}", "index=0", element_type, free=True)
    return _summed(w, element)


def _summed(w: ModuleWriter, value: Value) -> Value:
    """The value without its first dim."""
    zero = w.emit("constant", (), one_of(value.type), "", value.type, free=True)
    region = w.region("and" if value.type == "pred" else "add", value.type)
    args = f"%{value.name}, %{zero.name}"
    attributes = f"dimensions={{0}}, to_apply=%{region}"
    return w.emit("reduce", value.dims[1:], args, attributes, value.type, free=True)


def late_operand(w: ModuleWriter, shape: str, kind: str, level: int) -> str:
    """A value of that shape, a tuple perhaps, of which an element comes late; returns its name."""
    parts = tuple_parts(shape)
    if parts is None:
        dims, element_type = array_of(shape)
        return late_value(w, dims, element_type, kind, level).name
    names: list[str] = []
    arrays = [n for n, part in enumerate(parts) if part != "token[]"]
    chosen = w.random.choice(arrays)
    for n, part in enumerate(parts):
        if part == "token[]":
            names.append(_anything(w, part))
        elif kind == "M":
            names.append(_one_device(w, part, level) if n == chosen else late_operand(w, part, "T", level))
        elif n == chosen or w.random.random() < 0.2:
            names.append(late_operand(w, part, kind, level))
        else:
            names.append(_anything(w, part))
    name = w.fresh("late")
    w.body.lines.append(f"  %{name} = {shape} tuple({', '.join(f'%{n}' for n in names)})")
    return name


def late_reader(w: ModuleWriter, name: str, shape: str, kind: str, level: int) -> None:
    """A user of that value, a tuple perhaps, that offers such a sharding at that level."""
    parts = tuple_parts(shape)
    if parts is None:
        dims, element_type = array_of(shape)
        late_user(w, Value(name, dims, element_type), kind, level)
    elif kind == "M" or w.random.random() < 0.3:
        _late_call(w, name, shape, kind, level)
    else:
        n = w.random.randrange(len(parts))
        part = w.fresh("part")
        w.body.lines.append(f"  %{part} = {parts[n]} get-tuple-element(%{name}), index={n}")
        late_reader(w, part, parts[n], kind, level)


def _late_call(w: ModuleWriter, name: str, shape: str, kind: str, level: int) -> None:
    """A call takes what its callee's root has, and gives it to an operand of its shape."""
    with _computation(w, "callee") as callee:
        w.body.lines.append(f"  %{callee}.p = {shape} parameter(0)")
        result = late_operand(w, shape, kind, level)
        line = next(line for line in w.body.lines if line.startswith(f"  %{result} = "))
        w.body.lines.remove(line)
        w.body.lines.append("  ROOT " + line.strip())
    w.body.lines.append(f"  %{w.fresh('call')} = {shape} call(%{name}), to_apply=%{callee}")


@contextmanager
def _computation(w: ModuleWriter, stem: str) -> Iterator[str]:
    """What is written meanwhile goes into a computation of its own."""
    outer, w.body = w.body, Body()
    w.depth += 1
    name = w.fresh(stem)
    yield name
    w.regions.append(f"%{name} {{\n" + "\n".join(w.body.lines) + "\n}\n")
    w.body = outer
    w.depth -= 1


def _one_device(w: ModuleWriter, shape: str, level: int) -> str:
    parts = tuple_parts(shape)
    if parts is None:
        dims, element_type = array_of(shape)
        return _given(w, dims, element_type, "M").name
    return late_operand(w, shape, "M", level)


def _anything(w: ModuleWriter, shape: str) -> str:
    parts = tuple_parts(shape)
    if shape == "token[]":
        token = w.fresh("token")
        w.body.lines.append(f"  %{token} = token[] after-all()")
        return token
    if parts is None:
        return _free(w, *array_of(shape)).name
    names = ", ".join(f"%{_anything(w, part)}" for part in parts)
    name = w.fresh("any")
    w.body.lines.append(f"  %{name} = {shape} tuple({names})")
    return name


def tuple_parts(shape: str) -> list[str] | None:
    """The elements of a tuple shape; None for an array."""
    if not shape.startswith("("):
        return None
    return re.findall(r"\((?:[^()]|\([^()]*\))*\)|\w+\[[^\]]*\]", shape[1:-1])


def array_of(shape: str) -> tuple[Dims, str]:
    """Dims and element type of an array shape."""
    element_type, _, rest = shape.partition("[")
    return tuple(int(d) for d in rest.rstrip("]").split(",") if d), element_type
