"""A checksum of what JAX traced: equal in two processes only where JAX would lower the same program.

Floor: ground.  Values are spelled by what they hold, never by their addresses or their short print.  What cannot be
spelled so (a Python function, a primitive that is not JAX's) has no checksum: then the HLO tells programs apart.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np

from hlosharding.xla_bridge.private import first_import
from hlosharding.xla_bridge.tracing import OWN_PRIMITIVES

_PLAIN = frozenset({str, bytes, bool, int, float, complex, type(None), type(...)})
_HOLDING: Mapping[type, Callable[[Any], str]] = {kind: kind.__repr__ for kind in (str, bytes, int, float, complex)}
"""Plain types whose subclasses hold what they are made of beside their fields."""
# What differentiation alone reads: functions, where the lowering reads the jaxpr beside them.
_NOT_LOWERED = {
    "custom_jvp_call": frozenset({"jvp_jaxpr_fun"}),
    "custom_vjp_call": frozenset({"fwd_jaxpr_thunk", "bwd", "out_trees"}),
    "remat2": frozenset({"policy"}),
}
# Where JAX's caches lie and what it prints: no program depends on them.  (XLA's caches: see `compilation_key`.)
_NO_SAY = ("jax_compilation_cache_", "jax_persistent_cache_", "jax_log", "jax_explain_cache_misses")


class _NoChecksumError(Exception):
    pass


def traced_digest(traced: Any, said: Sequence[Any]) -> bytes | None:
    """The checksum of a `jax.stages.Traced` with JAX's settings now, and of whatever else is `said`; None: it has none.

    It covers constants by their bytes, and the names of arguments and scopes; not the lines of source code.
    """
    try:
        jaxpr = traced.jaxpr.jaxpr
        what = traced._params, traced._meta_tys_flat, traced._consts, jaxpr.debug_info.arg_names, tuple(said)
        # Names may hold halves of letters, which UTF-8 has not.
        return sha256((_Speller().text(what) + _settings()).encode("utf-8", "surrogatepass")).digest()
    except (_NoChecksumError, AttributeError, TypeError, ValueError, RuntimeError):  # RecursionError among them
        return None


def _settings() -> str:
    config, core = first_import("jax._src.config"), first_import("jax").config
    values = sorted((name, value) for name, value in core.values.items() if not name.startswith(_NO_SAY))
    return _Speller().text((config.trace_context(), values))


class _Speller:
    """Spells values; remembers what it spelled by identity, and keeps it alive so long."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, str]] = {}

    def text(self, value: Any) -> str:
        kind = type(value)
        # By the very type: what is a number to Python may hold more, as JAX's literals do.
        if kind in _PLAIN:
            return repr(value)
        if kind is tuple or kind is list:
            return f"{kind.__name__[0]}({','.join(map(self.text, value))})"
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = value, self._spelled(value)
        return known[1]

    def _spelled(self, value: Any) -> str:
        rule = _RULES.get(type(value).__name__) if _is_jax(type(value)) else None
        if rule is not None:
            return rule(self, value)
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if isinstance(value, np.dtype):
            # To numpy JAX's narrow types are bytes of some width: only their print tells them apart.
            return f"dtype {value.str if value.names is None and value.kind != 'V' else value!r}"
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(np.asarray(value))
        if isinstance(value, Mapping):
            pairs = sorted((self.text(k), self.text(v)) for k, v in value.items())
            return f"{type(value).__name__}{{{','.join(map(':'.join, pairs))}}}"
        if isinstance(value, Set):
            return f"{type(value).__name__}{{{','.join(sorted(map(self.text, value)))}}}"
        if isinstance(value, type) or callable(value):
            return self._function(value)
        return self._object(value)

    def _array(self, array: np.ndarray) -> str:
        if array.dtype.hasobject:
            raise _NoChecksumError
        return f"{self.text(array.dtype)}{array.shape}{sha256(array.tobytes()).hexdigest()}"

    def _function(self, value: Any) -> str:
        """One that everybody finds under its name, in a module of a library whose version counts anyway."""
        module, name = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", "")
        if module.split(".")[0] not in ("jax", "jaxlib", "numpy", "ml_dtypes", "builtins"):
            raise _NoChecksumError
        if getattr(sys.modules.get(module), name, None) is not value:
            raise _NoChecksumError
        return f"{module}.{name}"

    def _object(self, value: Any) -> str:
        """A value of a class that JAX wrote in Python: all of its fields."""
        kind = type(value)
        if not _is_jax(kind) or any(map(_hides_what_it_holds, kind.__mro__)):
            raise _NoChecksumError
        return f"{_name(kind)}({','.join(f'{name}={self.text(field)}' for name, field in _fields(value))})"

    def jaxpr(self, value: Any) -> str:
        """Of a jaxpr, closed or not; variables are numbered, for their names are chosen anew in each process."""
        jaxpr = getattr(value, "jaxpr", value)
        numbers: dict[Any, str] = {}
        lines = [self._made((*jaxpr.constvars, *jaxpr.invars), numbers), self.text(jaxpr.effects)]
        lines += [self._equation(eqn, numbers) for eqn in jaxpr.eqns]
        lines += [self._read(jaxpr.outvars, numbers), self.text(tuple(getattr(value, "consts", ())))]
        # A digest in place of the lines: many equations may hold one jaxpr, and each would repeat it.
        return sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()

    def _equation(self, eqn: Any, numbers: dict[Any, str]) -> str:
        left_out = _NOT_LOWERED.get(eqn.primitive.name, ())
        params = [f"{name}={self.text(param)}" for name, param in eqn.params.items() if name not in left_out]
        around = self.text(eqn.ctx), self.text(eqn.source_info.name_stack), self.text(eqn.effects)
        read, primitive = self._read(eqn.invars, numbers), self.text(eqn.primitive)
        return f"{self._made(eqn.outvars, numbers)}={primitive} {read} {' '.join((*params, *around))}"

    def _made(self, variables: Sequence[Any], numbers: dict[Any, str]) -> str:
        for variable in variables:
            numbers[variable] = f"%{len(numbers)}"
        return " ".join([self.text(variable.aval) for variable in variables])

    def _read(self, values: Sequence[Any], numbers: dict[Any, str]) -> str:
        return " ".join([self.text(v) if hasattr(v, "val") else numbers[v] for v in values])


def _is_jax(kind: type) -> bool:
    return kind.__module__.split(".")[0] in ("jax", "jaxlib")


def _hides_what_it_holds(base: type) -> bool:
    """Is a class written in C, and what its values hold in no field that we know of?"""
    if base.__module__ == "builtins":
        return base not in (object, tuple, *_HOLDING)
    return base.__module__.startswith("jaxlib")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    if dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return
    if isinstance(value, tuple):
        yield from ((str(number), part) for number, part in enumerate(value))
    # JAX's literals are numbers that have a dtype as well; what a number holds is no field.
    yield from (("value", text(value)) for base, text in _HOLDING.items() if isinstance(value, base))
    for kind in type(value).__mro__:
        for name in kind.__dict__.get("__slots__", ()):
            if name != "__weakref__" and hasattr(value, name):
                yield name, getattr(value, name)
    yield from sorted(getattr(value, "__dict__", {}).items())


def _of(*names: str) -> Callable[[_Speller, Any], str]:
    """A rule: the named attributes say all."""
    return lambda speller, value: f"{_name(type(value))}{[speller.text(getattr(value, name)) for name in names]}"


def _mesh(speller: _Speller, mesh: Any) -> str:
    return speller.text((mesh.axis_names, tuple(mesh.shape.values()), mesh.axis_types, tuple(mesh.devices.flat)))


def _concrete(speller: _Speller, array: Any) -> str:
    """Of a constant that a function closes over; random keys are told apart by their numbers."""
    import jax

    if not array.is_fully_addressable:
        raise _NoChecksumError
    is_key = jax.numpy.issubdtype(array.dtype, jax.dtypes.extended)
    numbers = jax.random.key_data(array) if is_key else array
    where = speller.text((array.aval, array.sharding, array.committed))
    return where + speller.text(np.asarray(numbers))


def _primitive(_: _Speller, primitive: Any) -> str:
    """One of JAX's or ours: how others are lowered is up to functions that no version tells of.

    What a foreign call's dims mean users say elsewhere (`hs.register_rule`).
    """
    if primitive.name == "ffi_call":
        raise _NoChecksumError
    known = _known_primitives(len(sys.modules))
    if id(primitive) not in known and not any(primitive is own for own in OWN_PRIMITIVES):
        raise _NoChecksumError
    return primitive.name


@lru_cache(maxsize=1)
def _known_primitives(_modules: int) -> frozenset[int]:
    """Of so many modules as there are now: JAX imports some at first use."""
    kind = first_import("jax._src.core").Primitive
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "jax"]
    return frozenset(id(v) for module in modules for v in list(vars(module).values()) if isinstance(v, kind))


_RULES: dict[str, Callable[[_Speller, Any], str]] = {
    "Jaxpr": _Speller.jaxpr,
    "ClosedJaxpr": _Speller.jaxpr,
    "Primitive": _primitive,
    "Mesh": _mesh,
    "AbstractMesh": _of("axis_names", "axis_sizes", "axis_types"),
    "NamedSharding": _of("mesh", "spec", "memory_kind", "_logical_device_ids"),
    "PartitionSpec": _of("partitions", "unreduced", "reduced"),
    "SingleDeviceSharding": _of("_device", "memory_kind"),
    "Device": _of("platform", "device_kind", "id", "process_index"),
    "ArrayImpl": _concrete,
    "NameStack": lambda _, stack: repr(str(stack)),
    "DebugInfo": lambda _, __: "",
}
