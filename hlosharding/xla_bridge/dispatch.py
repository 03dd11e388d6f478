"""How JAX reads a call of a jitted function, and the C++ that remembers how such a call went.

Floor: ground.  Where a JAX lacks one of the names, calls go through Python each time: slower, and the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from hlosharding.errors import ExecutionError
from hlosharding.once import once
from hlosharding.xla_bridge.private import first_import, jaxlib
from hlosharding.xla_bridge.tracing import is_tracing

_REMEMBERED = 8192
"""Calls, as `jax.jit` has it: many programs make a jitted function anew for each call."""

Miss = Callable[..., tuple[Any, Any, bool]]
"""What answers a call that nobody remembers: (the results, how to do it again in C++ or None, False)."""


class StaticArguments(NamedTuple):
    """Which arguments of a jitted function are static."""

    positions: tuple[int, ...]
    names: tuple[str, ...]

    def among(self, arguments: tuple[Any, ...]) -> set[int]:
        """The positions in a call; negative ones count from the end, those not given are left out."""
        count = len(arguments)
        return {n % count for n in self.positions if -count <= n < count}

    def left_out(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The other arguments of a call."""
        fixed = self.among(arguments)
        dynamic = tuple(a for n, a in enumerate(arguments) if n not in fixed)
        return dynamic, {name: a for name, a in keywords.items() if name not in self.names}


NO_STATIC_ARGUMENTS = StaticArguments((), ())


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """JAX's own `jit`, whatever stands at `jax.jit` now: users may put `hs.jit` there."""
    return first_import("jax._src.api").jit(function, **options)


def static_arguments(jitted: Any) -> StaticArguments:
    """As `jax.jit` takes `static_argnums` and `static_argnames`: each also says the other, where the signature does."""
    info = jitted._jit_info
    return StaticArguments(tuple(info.static_argnums), tuple(info.static_argnames))


def options_of(jitted: Any) -> tuple[Any, ...]:
    """What was said to `jax.jit`, shardings left out, to be compared."""
    info = jitted._jit_info
    static, donated = (info.static_argnums, info.static_argnames), (info.donate_argnums, info.donate_argnames)
    return static, donated, info.keep_unused, info.inline, info.compiler_options_kvs


def dispatcher(jitted: Any, function: Callable[..., Any], said: Any, miss: Miss) -> Callable[..., Any]:
    """A callable that calls as `jitted` (a `jax.jit` of `function`) does, but asks `miss` what a new call is.

    C++ tells calls apart as for `jax.jit`: by trees, shapes, types, static values, shardings, devices and whatever of
    JAX's configuration tracing depends on.  Dispatchers of one function with an equal `said` remember together.
    """
    try:
        pxla, trees = first_import("jax._src.interpreters.pxla"), first_import("jax._src.tree_util")
        info = jitted._jit_info
        made = jaxlib().pjit(
            getattr(function, "__name__", "function"),
            function,
            miss,
            info.static_argnums,
            info.static_argnames,
            _Remembered(said),
            trees.dispatch_registry,
            pxla.cc_shard_arg,
            _users_memory() or _own_memory(),
        )
        made.__wrapped__ = function  # whose name it shows
        made._fun = function  # whom JAX runs again where it finds a NaN
        return made
    except (AttributeError, TypeError):
        return lambda *arguments, **keywords: miss(*arguments, **keywords)[0]


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Under which C++ keeps calls: never those of `jax.jit`, which may share a memory with us."""

    said: Any


@once
def _own_memory() -> Any:
    return jaxlib().PjitFunctionCache(_REMEMBERED)


def _users_memory() -> Any:
    """What a user set in JAX's place for it."""
    setting = getattr(first_import("jax._src.config"), "jax_jit_cpp_cache_obj", None)
    return setting.value if setting is not None and not is_tracing() else None


def tell_miss() -> None:
    """Count, where JAX counts its own, a call that nobody remembered: tests of users' code go by it."""
    first_import("jax._src.util").test_event("jit_cpp_cache_miss")


def usual_miss(jitted: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, bool]:
    """What `jax.jit` itself answers to a new call of one of its functions, as a `Miss`."""
    miss = getattr(jitted, "_cache_miss", None)
    return (jitted(*arguments, **keywords), None, False) if miss is None else miss(*arguments, **keywords)


def prefix_errors(prefix: Any, tree: Any, what: str) -> list[str]:
    """All that keeps `prefix` (None is a leaf of it) from being one of `tree`, in JAX's words."""
    import jax

    # Asked of a tree alone: leaves of the value that are no leaves to JAX would be compared, too.
    whole = jax.tree.map(lambda _: 0, tree)
    return [error(what).args[0] for error in first_import("jax._src.tree_util").prefix_errors(prefix, whole)]


def kept_inputs(compiled: Any) -> frozenset[int] | None:
    """The flat arguments that a `jax.stages.Compiled` reads; None where nobody says so."""
    found = getattr(getattr(compiled, "_executable", None), "_kept_var_idx", None)
    return None if found is None else frozenset(found)


def has_compiler_option(name: str, device: Any) -> bool:
    """Does the XLA that compiles for a device know an option that is on or off?  It refuses those it does not."""
    if name not in _KNOWN_OPTIONS:
        import jax

        place = jax.sharding.SingleDeviceSharding(device)
        try:
            jit(lambda: 0.0, out_shardings=place).lower().compile({name: False})
            _KNOWN_OPTIONS[name] = True
        except RuntimeError as error:
            _KNOWN_OPTIONS[name] = "No such compile option" not in str(error)
    return _KNOWN_OPTIONS[name]


_KNOWN_OPTIONS: dict[str, bool] = {}


@once
def compile_error() -> type[ExecutionError]:
    """What XLA says of a program is ours to raise, and JAX's for those who expect that."""
    import jax

    return type("CompileError", (ExecutionError, jax.errors.JaxRuntimeError), {})


def indivisible_error() -> type[Exception]:
    """What JAX raises where the shardings of a boundary do not divide its arrays."""
    return getattr(first_import("jax._src.sharding"), "IndivisibleError", ValueError)


def spec_errors() -> tuple[type[Exception], ...]:
    """What JAX raises of a PartitionSpec that its mesh cannot have; of one axis on two dims that is no ValueError."""
    return ValueError, getattr(first_import("jax._src.named_sharding"), "DuplicateSpecError", ValueError)


def shortcut(compiled: Any, inputs: Sequence[Any], outputs: Sequence[Any], tree: Any) -> Any:
    """How C++ does again what `compiled` (a `jax.stages.Compiled`) did with flat `inputs`; None where it cannot.

    `outputs` (in a pytree as `tree` says) give the types and shardings that the results shall have.
    """
    try:
        make = first_import("jax._src.pjit")._get_fastpath_data
        found = make(compiled._executable, tree, list(inputs), list(outputs), (), [], None, [])
        return None if found is None else found._replace(out_shardings=[output.sharding for output in outputs])
    except (AttributeError, TypeError):
        return None


def array_of(
    shape: tuple[int, ...], dtype: Any, sharding: Any, local: Mapping[Any, Any], *, weak_type: bool = False
) -> Any:
    """A jax array of this process's local ones, by device; typed as its mesh says, and of `dtype` where it has none."""
    core, implementation = first_import("jax._src.core"), first_import("jax._src.array").ArrayImpl
    ordered = [local[device] for device in sharding._device_assignment if device in local]
    found = ordered[0].dtype if ordered else dtype
    aval = core.update_aval_with_sharding(core.ShapedArray(shape, found, weak_type), sharding)
    return implementation(aval, sharding, ordered, committed=True)


def is_of_arrays(traced: Any) -> bool:
    """Is a `jax.stages.Traced` a function of arrays alone?

    Else it reads or writes mutable arrays (`jax.new_ref`), takes or gives tokens, has effects whose order other
    programs see, or closes over what is no array (a tracer that leaked).
    """
    from jax.core import ShapedArray

    closed = traced.jaxpr
    ordered = first_import("jax._src.effects").ordered_effects
    reference = first_import("jax._src.state.types").RefEffect
    if getattr(closed, "is_high", False) or getattr(closed.jaxpr, "is_high", False):
        return False
    if getattr(traced, "_num_consts", 0):
        return False
    if any(isinstance(effect, reference) or ordered.contains(effect) for effect in closed.effects):
        return False
    return all(isinstance(aval, ShapedArray) for aval in (*closed.in_avals, *closed.out_avals))


@contextmanager
def finding_nans(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Iterator[None]:
    """Where `jax.debug_nans` finds one, run the function op by op, as `jax.jit` does, to say which op made it."""
    api = first_import("jax._src.api_util")
    try:
        yield
    except api.InternalFloatingPointError as error:
        api.maybe_recursive_nan_check(error, function, arguments, keywords)


def remembered_calls(dispatched: Callable[..., Any]) -> int:
    """How many calls C++ can do again."""
    count = getattr(dispatched, "_cache_size", None)
    return 0 if count is None else count()


def forget(dispatched: Callable[..., Any]) -> None:
    """Let a `dispatcher` forget its calls."""
    clear = getattr(dispatched, "_clear_cache", None)
    if clear is not None:
        clear()
