"""HLO texts of any size, for what may grow as they do and no faster: carried arrays, chains, nested loops, devices."""

from __future__ import annotations

from collections.abc import Iterable

ARRAY = "f32[8]"
_SPLIT = "sharding={devices=[8]<=[8]}"


def _tuple_of(count: int, *more: str) -> str:
    return f"({', '.join([*more, *[ARRAY] * count])})"


def _text(*parts: Iterable[str]) -> str:
    return "\n".join(["HloModule large", *(line for part in parts for line in part)])


def _parameters(count: int, first: int = 0) -> list[str]:
    return [f"  a{n} = {ARRAY} parameter({first + n}), {_SPLIT}" for n in range(count)]


def _names(prefix: str, count: int) -> str:
    return ", ".join(f"{prefix}{n}" for n in range(count))


def _negated(name: str, count: int) -> list[str]:
    """A computation that gives back each array of its parameter, a tuple, negated."""
    whole = _tuple_of(count)
    lines = [f"{name} {{", f"  p = {whole} parameter(0)"]
    for n in range(count):
        lines += [
            f"  g{n} = {ARRAY} get-tuple-element(p), index={n}",
            f"  n{n} = {ARRAY} negate(g{n})",
        ]
    return [*lines, f"  ROOT t = {whole} tuple({_names('n', count)})", "}"]


def carried(count: int) -> str:
    """A loop that carries so many arrays, split over eight devices."""
    whole = _tuple_of(count, "s32[]")
    body = [
        "body {",
        f"  p = {whole} parameter(0)",
        "  i = s32[] get-tuple-element(p), index=0",
        "  one = s32[] constant(1)",
        "  next = s32[] add(i, one)",
    ]
    for n in range(count):
        body += [f"  g{n} = {ARRAY} get-tuple-element(p), index={n + 1}", f"  n{n} = {ARRAY} negate(g{n})"]
    body += [f"  ROOT t = {whole} tuple(next, {_names('n', count)})", "}"]
    entry = ["ENTRY e {", "  z = s32[] constant(0)", *_parameters(count)]
    entry += [
        f"  t = {whole} tuple(z, {_names('a', count)})",
        f"  ROOT w = {whole} while(t), condition=going, body=body",
        "}",
    ]
    return _text(body, _going("going", whole), entry)


def _going(name: str, whole: str) -> list[str]:
    return [
        f"{name} {{",
        f"  p = {whole} parameter(0)",
        "  i = s32[] get-tuple-element(p), index=0",
        "  c = s32[] constant(10)",
        "  ROOT r = pred[] compare(i, c), direction=LT",
        "}",
    ]


def results(count: int) -> str:
    """So many arrays in and out."""
    made = [f"  n{n} = {ARRAY} negate(a{n})" for n in range(count)]
    root = f"  ROOT t = {_tuple_of(count)} tuple({_names('n', count)})"
    return _text(["ENTRY e {", *_parameters(count), *made, root, "}"])


def branches(count: int) -> str:
    """A conditional that is given so many arrays and gives them back."""
    whole = _tuple_of(count)
    entry = [
        "ENTRY e {",
        "  z = pred[] parameter(0)",
        *_parameters(count, 1),
        f"  t = {whole} tuple({_names('a', count)})",
        f"  ROOT w = {whole} conditional(z, t, t), true_computation=yes, false_computation=no",
        "}",
    ]
    return _text(_negated("yes", count), _negated("no", count), entry)


def called(count: int) -> str:
    """A function of so many arguments."""
    whole = _tuple_of(count)
    callee = ["callee {"]
    for n in range(count):
        callee += [f"  g{n} = {ARRAY} parameter({n})", f"  n{n} = {ARRAY} negate(g{n})"]
    callee += [f"  ROOT t = {whole} tuple({_names('n', count)})", "}"]
    entry = ["ENTRY e {", *_parameters(count), f"  ROOT w = {whole} call({_names('a', count)}), to_apply=callee", "}"]
    return _text(callee, entry)


def read_apart(count: int) -> str:
    """A loop whose arrays are all read behind it, each in a sharding of its own choice."""
    others = "{devices=[8]<=[8]}", "{devices=[8]7,6,5,4,3,2,1,0}", "{replicated}"
    loop = carried(count).replace("  ROOT w = ", "  w = ").rsplit("}", 1)[0].rstrip().split("\n")
    taken = [
        f"  r{n} = {ARRAY} get-tuple-element(w), index={n + 1}, sharding={others[n % len(others)]}"
        for n in range(count)
    ]
    return "\n".join([*loop, *taken, f"  ROOT o = {_tuple_of(count)} tuple({_names('r', count)})", "}"])


def chain(count: int) -> str:
    """So many elementwise ops, one after the other."""
    ops = ("negate", "abs", "cosine")
    lines = [f"  x0 = {ARRAY} parameter(0), {_SPLIT}"]
    lines += [f"  {'ROOT ' * (n == count)}x{n} = {ARRAY} {ops[n % 3]}(x{n - 1})" for n in range(1, count + 1)]
    return _text(["ENTRY e {", *lines, "}"])


def nested(count: int) -> str:
    """So many loops, each in the one before."""
    whole = f"(s32[], {ARRAY})"
    lines: list[str] = []
    for n in range(count):
        inner = [
            "  z = s32[] constant(0)",
            f"  t = {whole} tuple(z, x)",
            f"  w = {whole} while(t), condition=going{n - 1}, body=body{n - 1}",
            f"  y = {ARRAY} get-tuple-element(w), index=1",
        ]
        lines += [
            *_going(f"going{n}", whole),
            f"body{n} {{",
            f"  p = {whole} parameter(0)",
            "  i = s32[] get-tuple-element(p), index=0",
            "  one = s32[] constant(1)",
            "  next = s32[] add(i, one)",
            f"  x = {ARRAY} get-tuple-element(p), index=1",
            *(inner if n else [f"  y = {ARRAY} negate(x)"]),
            f"  ROOT r = {whole} tuple(next, y)",
            "}",
        ]
    entry = [
        "ENTRY e {",
        "  z = s32[] constant(0)",
        f"  x = {ARRAY} parameter(0), {_SPLIT}",
        f"  t = {whole} tuple(z, x)",
        f"  ROOT w = {whole} while(t), condition=going{count - 1}, body=body{count - 1}",
        "}",
    ]
    return _text(lines, entry)


def over_devices(count: int) -> str:
    """A product and a transpose over so many devices, in 16 columns, whose operands lie in different device orders."""
    rows, array = count // 16, f"f32[{count},{count}]"
    return f"""HloModule large, num_partitions={count}
ENTRY e {{
  x = {array} parameter(0), sharding={{devices=[{rows},16]<=[{count}]}}
  w = {array} parameter(1), sharding={{devices=[16,{rows}]<=[{rows},16]T(1,0)}}
  y = {array} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = {array} transpose(y), dimensions={{1,0}}
  ROOT v = {array} negate(z), sharding={{devices=[{rows},16]<=[{count}]}}
}}"""


RESHAPE_OVER_24576 = """HloModule large
ENTRY e {
  p = bf16[4,50331648,16384] parameter(0), sharding={devices=[1,24576,1]<=[24576]}
  ROOT r = bf16[24576,8192,16384] reshape(p), sharding={devices=[24576,1,1]<=[24576]}
}"""
"""Four instructions on a cluster."""
