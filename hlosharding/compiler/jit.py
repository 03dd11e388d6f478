"""`hs.jit`: a drop-in for `jax.jit` that runs our own propagation and partitioning.

Floor: compiler.  JAX itself reads the arguments, traces the function, and remembers in its C++ how a call went: ours is
what a call gives that nobody remembers.  Inside another transformation (`jit`, `grad`, `vmap`, `scan`), and where there
is nothing to split, that is what `jax.jit` of the function gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial, update_wrapper, wraps
from types import MethodType
from typing import Any
from weakref import WeakMethod

from hlosharding import xla_bridge
from hlosharding.compiler.made_programs import made_of
from hlosharding.compiler.partitioned import CompiledFunction
from hlosharding.compiler.stages import PartitionedStage, Traced
from hlosharding.compiler.warm_start import forget
from hlosharding.errors import TraceError
from hlosharding.executor import refuse_described
from hlosharding.frontends import (
    MARKS,
    TraceableFunction,
    TracedCall,
    are_on_several_devices,
    first_tracer,
    mesh_context,
    said_by_jax,
    with_sharding,
)

_Answer = tuple[Any, Any, bool]
_UNKNOWN: Any = object()


class Jitted:
    """What `hs.jit` returns: call it, or walk its stages with `trace(...)`."""

    def __repr__(self) -> str:
        return repr(self._call)

    def __copy__(self) -> Jitted:
        return self

    def __deepcopy__(self, _known: dict[int, Any]) -> Jitted:
        return self  # as functions are: users copy what holds one

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        mesh: Any,
        in_shardings: Any,
        out_shardings: Any,
        options: dict[str, Any],
        compiler_options: dict[str, Any] | None,
        usual: dict[str, Any],
    ) -> None:
        update_wrapper(self, fn)
        self._fn, self._mesh, self._compiler_options = fn, mesh, compiler_options
        self._keep_unused: bool = usual["keep_unused"]
        self._function = TraceableFunction(
            fn, mesh=mesh, in_shardings=in_shardings, out_shardings=out_shardings, options=options
        )
        shardings = {"in_shardings": in_shardings, "out_shardings": out_shardings}
        self._shardings = in_shardings, out_shardings
        said = {name: said_by_jax(given, mesh) for name, given in shardings.items() if given is not None}
        self._make_usual = partial(xla_bridge.jit, **options, **usual, compiler_options=compiler_options)
        self._usual: Any = self._make_usual(_under(mesh, fn), **said)
        said_to_us = mesh, self._shardings, xla_bridge.options_of(self._usual)
        self._made = made_of(fn, said_to_us)
        # Weakly: a function that nobody has any more takes along, at once, the arrays that it closes over.
        answer = WeakMethod(self._answer)

        def answered(*arguments: Any, **keywords: Any) -> _Answer:
            alive = answer()
            assert alive is not None, "who calls it has it"
            return alive(*arguments, **keywords)

        self._call = xla_bridge.dispatcher(self._usual, fn, self._made, answered)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._call(*arguments, **keywords)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def trace(self, *arguments: Any, **keywords: Any) -> Traced:
        """The first stage; arguments may be `jax.ShapeDtypeStruct`."""
        return self._traced(self._function.trace(arguments, keywords), arguments, keywords)

    def lower(self, *arguments: Any, **keywords: Any) -> PartitionedStage:
        """The stage before compiling, as jax.jit names it: `f.lower(x).compile()(x)`."""
        return self.trace(*arguments, **keywords).lower()

    def eval_shape(self, *arguments: Any, **keywords: Any) -> Any:
        """Shapes and types of the result."""
        return self._usual.eval_shape(*arguments, **keywords)

    def clear_cache(self) -> None:
        """Forget compiled programs, those of equal functions among them."""
        forget()
        self._made.clear()
        self._usual.clear_cache()
        xla_bridge.forget(self._call)

    def _cache_size(self) -> int:
        """As `jax.jit` tells those who ask it how often they called anew."""
        return xla_bridge.remembered_calls(self._call)

    def _answer(self, *arguments: Any, **keywords: Any) -> _Answer:
        """What a call gives that nobody remembers, and how C++ does it again."""
        tracer = first_tracer((arguments, keywords))  # of a leaked one JAX says where it comes from
        if xla_bridge.is_tracing() or tracer is not None:
            return self._nested(arguments, keywords)
        if self._is_for_one_device(arguments, keywords):
            return xla_bridge.usual_miss(self._usual, arguments, keywords)
        call = self._function.trace(arguments, keywords)
        # None is an answer, too: a call that is JAX's to run, which is not looked at anew either.
        program = self._made.compiled.get(call.key, _UNKNOWN)
        if program is _UNKNOWN:
            compiled = self._compiled(self._traced(call, arguments, keywords))
            program = self._made.compiled.setdefault(call.key, compiled)  # of two threads both run what came first
        if program is None:
            return xla_bridge.usual_miss(self._usual, arguments, keywords)
        # Who counts how often JAX's functions are called anew counts ours among them.
        xla_bridge.tell_miss()
        with xla_bridge.finding_nans(self._fn, arguments, keywords):
            return *program.with_shortcut(*call.static.left_out(arguments, keywords)), False

    def _is_for_one_device(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        """Does neither the call nor what JAX traces of it name several devices?  JAX runs it, and traces it once."""
        said = (self._mesh, *self._shardings, xla_bridge.context_mesh())
        if any(one is not None for one in said) or are_on_several_devices((arguments, keywords)):
            return False
        return not xla_bridge.names_devices(self._usual.trace(*arguments, **keywords), MARKS)

    def _nested(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> _Answer:
        """Inside another transformation: as `jax.jit`, which takes uneven shardings inside a function alone."""
        try:
            return xla_bridge.usual_miss(self._usual, arguments, keywords)
        except xla_bridge.indivisible_error():
            return xla_bridge.usual_miss(self._constrained, arguments, keywords)

    @cached_property
    def _constrained(self) -> Any:
        """The function with constraints in place of its boundary's shardings."""
        static, (given, wanted) = xla_bridge.static_arguments(self._usual), self._shardings

        @wraps(self._fn)
        def constrained(*arguments: Any, **keywords: Any) -> Any:
            fixed = static.among(arguments)
            dynamic = tuple(a for n, a in enumerate(arguments) if n not in fixed)
            laid_out = iter(with_sharding(dynamic, given))
            results = self._fn(*(a if n in fixed else next(laid_out) for n, a in enumerate(arguments)), **keywords)
            return with_sharding(results, wanted)

        return self._make_usual(_under(self._mesh, constrained))

    def _traced(self, call: TracedCall, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Traced:
        mesh = xla_bridge.context_mesh()  # a stage may be asked when it is another one

        def usual() -> Any:
            with mesh_context(mesh):
                return self._usual.trace(*arguments, **keywords)

        return Traced(call, usual, self._compiler_options, self._keep_unused, self._made.lowered)

    def _compiled(self, traced: Traced) -> CompiledFunction | None:
        """Our program for a call; None where it is for JAX to run."""
        if not traced.call.is_of_arrays:
            return None
        program = traced.program()
        if not program.is_known:  # what is known was ours to run
            if self._mesh is None and traced.module.num_partitions == 1:
                return None
            signature = traced.module.signature
            refuse_described(signature.devices or () if signature is not None else ())
        return PartitionedStage(traced, program).compile().function


def _under(mesh: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function under its mesh, where there is no other around it."""
    if mesh is None:
        return fn

    @wraps(fn)
    def function(*arguments: Any, **keywords: Any) -> Any:
        import jax

        if xla_bridge.context_mesh() is not None:
            return fn(*arguments, **keywords)
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return fn(*arguments, **keywords)

    return function


def jit(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    keep_unused: bool = False,
    device: Any = None,
    backend: str | None = None,
    inline: bool = False,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """`jax.jit` with our propagation and partitioning: the same call, the same results, fewer bytes.

    `mesh`: by default that of the context (`jax.set_mesh`) or of the arguments; without any there is nothing to split.
    `in_shardings` and `out_shardings` are prefix trees of PartitionSpec, NamedSharding, HloSharding, HLO text or None
    (open: chosen to suit the program).  All else is as for `jax.jit`, which may be replaced by it (`jax.jit = hs.jit`);
    without a function it is a decorator.  With a `device` or a `backend`, which JAX deprecates, and inside `jax.jit`,
    `grad` or `vmap` it behaves as `jax.jit(fn)`.  Raises TraceError, at the call, for what is no mesh
    and for arguments or shardings that do not fit the function.

    >>> import jax, numpy as np
    >>> from jax.sharding import Mesh, PartitionSpec as P
    >>> mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    >>> step = jit(lambda x: 2 * x, mesh=mesh, in_shardings=P("x"))
    >>> step(np.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    import jax

    if isinstance(mesh, jax.sharding.AbstractMesh):
        raise TraceError(
            "hs.jit runs on the devices of its mesh, and an AbstractMesh has none",
            remedy="pass a jax.sharding.Mesh; to look and to price, hs.trace takes an AbstractMesh",
        )
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
    }
    usual = {"keep_unused": keep_unused, "inline": inline}
    given = {"in_shardings": in_shardings, "out_shardings": out_shardings, "compiler_options": compiler_options}
    if device is None and backend is None:
        make = partial(Jitted, mesh=mesh, options=options, usual=usual, **given)
    else:
        said = {name: value for name, value in given.items() if value is not None}
        make = partial(xla_bridge.jit, **options, **usual, **said, device=device, backend=backend)
    return make if fn is None else make(fn)
