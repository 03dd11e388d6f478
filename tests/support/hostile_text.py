"""A stranger's strings in every place of a module, one kind of place at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding import wire
from hlosharding.errors import HloShardingError

T = TypeVar("T")

HOSTILE = [
    "a.py\n    __import__('os').abort()\n    #",
    'x"""\n__import__("os").abort()\n"""',
    "'\"\\",
    "\x00\x1b[31m\x85\u2028\u202e",
    "[bold]<script>alert(1)</script>&{0}{name}%s",
    "ﬁ²",
]


def propagated_program() -> bytes:
    """With loops, a library call, constants, and stacked (uneven) boundaries."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))

    def f(x: jax.Array, w: jax.Array) -> Any:
        q, _ = jnp.linalg.qr(w)
        return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c @ w) + i, x) + q.sum(), jnp.sort(x, 0)

    traced = hs.trace(f, mesh=mesh, in_shardings=(P("data"), P("model")))(jnp.ones((5, 8)), jnp.ones((8, 8)))
    return hs.propagate(traced, to_outputs=True).module.to_hlo_proto()


def kinds_of_strings(program: bytes) -> list[str]:
    """Every place of a module that holds text, as a path of fields."""
    return sorted({where for where, *_ in _strings(wire.HloModuleProto.FromString(program))})


def with_text(program: bytes, kind: str, text: str) -> bytes:
    """The program with `text` in every place of that kind; a number behind it keeps names apart."""
    proto = wire.HloModuleProto.FromString(program)
    for number, (where, owner, field, place) in enumerate(_strings(proto)):
        if where != kind:
            continue
        value: Any = f"{text}{number}"
        value = value.encode() if isinstance(getattr(owner, field), bytes) else value
        if place is None:
            setattr(owner, field, value)
        else:
            getattr(owner, field)[place] = value
    return proto.SerializeToString()


def taken(program: bytes, text: str, make: Callable[[bytes], T]) -> dict[str, T]:
    """By kind of place: what `make` makes of the program with the text there, unless it refuses the text."""
    made: dict[str, T] = {}
    for kind in kinds_of_strings(program):
        with contextlib.suppress(HloShardingError, UnicodeError):
            made[kind] = make(with_text(program, kind, text))
    return made


def _strings(message: Any, path: str = "") -> Iterator[tuple[str, Any, str, int | None]]:
    """(where it is, its owner, the field, its place in a list)."""
    for field, value in message.ListFields():
        is_list = not isinstance(value, (str, bytes, int, float, bool)) and hasattr(value, "__len__")
        for number, one in enumerate(value if is_list else [value]):
            where = f"{path}.{field.name}"
            if isinstance(one, (str, bytes)):
                yield where, message, field.name, number if is_list else None
            elif hasattr(one, "ListFields"):
                yield from _strings(one, where)
