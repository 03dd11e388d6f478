"""A stranger's program is data: whatever stands in its strings, the source that we write is the same program."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import wire
from hlosharding.errors import HloShardingError
from hlosharding.executor.text import block_text, identifier

HOSTILE = [
    "a.py\n    __import__('os').abort()\n    #",
    'x"""\n__import__("os").abort()\n"""',
    "'\"\\",
    "\x00\x1b[31m\x85\u2028\u202e",
    "[bold]<script>alert(1)</script>&",
    "ﬁ²",
]


@pytest.fixture(scope="module")
def program() -> bytes:
    """With loops, a library call, constants, and stacked (uneven) boundaries."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def f(x: jax.Array, w: jax.Array) -> Any:
        q, _ = jnp.linalg.qr(w)
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w) + i, x) + q.sum(), jnp.sort(x, 0)

    traced = hs.trace(f, mesh=mesh, in_shardings=(P("data"), P("model")))(jnp.ones((5, 8)), jnp.ones((8, 8)))
    module = hs.propagate(traced, to_outputs=True).module
    return module.to_hlo_proto()


def strings(message: Any, path: str = "") -> Iterator[tuple[str, Any, str, int | None]]:
    """Every text in a message: (where it is, its owner, the field, its place in a list)."""
    for field, value in message.ListFields():
        is_list = not isinstance(value, (str, bytes, int, float, bool)) and hasattr(value, "__len__")
        for number, one in enumerate(value if is_list else [value]):
            where = f"{path}.{field.name}"
            if isinstance(one, (str, bytes)):
                yield where, message, field.name, number if is_list else None
            elif hasattr(one, "ListFields"):
                yield from strings(one, where)


def shape_of(source: str) -> list[str]:
    """The source's tree without names and literals, which may differ."""
    return [type(node).__name__ for node in ast.walk(ast.parse(source))]


def source_of(proto: bytes) -> str:
    module = hs.load(proto, format="hlo-proto")
    return hs.partition(module, num_partitions=8).as_python()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_string_of_a_module_becomes_code(program: bytes, text: str) -> None:
    wanted = shape_of(source_of(program))
    kinds = {where for where, *_ in strings(wire.HloModuleProto.FromString(program))}
    written = 0
    for kind in sorted(kinds):
        proto = wire.HloModuleProto.FromString(program)
        for number, (where, owner, field, place) in enumerate(strings(proto)):
            if where != kind:
                continue
            value: Any = f"{text}{number}"  # names stay apart
            value = value.encode() if isinstance(getattr(owner, field), bytes) else value
            if place is None:
                setattr(owner, field, value)
            else:
                getattr(owner, field)[place] = value
        try:
            source = source_of(proto.SerializeToString())
        except (HloShardingError, UnicodeError):
            continue  # such a name, type or attribute is refused
        written += 1
        assert shape_of(source) == wanted, kind
    assert written > 5


def test_letters_that_python_reads_as_others_are_one_name() -> None:
    assert identifier("ﬁ") == identifier("fi") == "fi"
    assert identifier("x²") == "x2"
    assert identifier("α") == "α"
    assert all(identifier(text).isidentifier() for text in HOSTILE)


@pytest.mark.parametrize("text", [*HOSTILE, 'ends with "', "plain\nlines"])
def test_a_block_of_text_is_itself(text: str) -> None:
    assert ast.literal_eval(block_text(text)).strip("\n") == text.strip("\n")
