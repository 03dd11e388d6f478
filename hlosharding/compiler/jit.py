"""`hs.jit`: a drop-in for `jax.jit` that runs our own propagation and partitioning.

Floor: compiler.  Inside another JAX transformation (`jit`, `grad`, `vmap`, `scan`) the call is handed to `jax.jit` of
the original function, so that results are those of JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any

from hlosharding import xla_bridge
from hlosharding.compiler.stages import Compiled, PartitionedStage, Traced
from hlosharding.errors import TraceError
from hlosharding.frontends import is_one_array, trace


class Jitted:
    """What `hs.jit` returns: call it, or walk its stages with `trace(...)`."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        mesh: Any,
        in_shardings: Any,
        out_shardings: Any,
        static_argnums: tuple[int, ...],
        donate_argnums: tuple[int, ...],
    ) -> None:
        update_wrapper(self, fn)
        self._fn, self._mesh = fn, mesh
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        self._static_given, self._donated_given = static_argnums, donate_argnums
        self._compiled: dict[Any, Compiled] = {}
        self._fallback: Callable[..., Any] | None = None

    def trace(self, *arguments: Any, **keywords: Any) -> Traced:
        """The first stage; arguments may be `jax.ShapeDtypeStruct`."""
        module = trace(
            self._fn,
            mesh=self._mesh,
            in_shardings=self._in_shardings,
            out_shardings=self._out_shardings,
            static_argnums=_positions(self._static_given, arguments),
            platform=self._platform(),
        )(*arguments, **keywords)
        return Traced(module, self._donated_parameters(arguments), self._devices())

    def lower(self, *arguments: Any, **keywords: Any) -> PartitionedStage:
        """The stage before compiling, as jax.jit names it: `f.lower(x).compile()(x)`."""
        return self.trace(*arguments, **keywords).lower()

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._is_traced(arguments, keywords):
            return self._as_jax()(*arguments, **keywords)
        key = self._key(arguments, keywords)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self.lower(*arguments, **keywords).compile()
            self._compiled[key] = compiled
        return compiled(*arguments, **keywords)

    def clear_cache(self) -> None:
        """Forget compiled programs."""
        self._compiled.clear()

    def _devices(self) -> tuple[Any, ...] | None:
        devices = getattr(self._mesh, "devices", None)
        return None if devices is None else tuple(devices.flat)

    def _platform(self) -> str | None:
        devices = self._devices()
        return devices[0].platform if devices else None

    def _is_traced(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
        import jax
        from jax.core import Tracer

        if xla_bridge.is_tracing():
            return True
        return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((arguments, keywords)))

    def _as_jax(self) -> Callable[..., Any]:
        """`jax.jit` of the original function, under its mesh.  Shardings only move data: the result is the same."""
        if self._fallback is None:
            import jax

            mesh = getattr(self._mesh, "abstract_mesh", self._mesh)

            def function(*arguments: Any, **keywords: Any) -> Any:
                with jax.sharding.use_abstract_mesh(mesh):
                    return self._fn(*arguments, **keywords)

            self._fallback = jax.jit(function, static_argnums=self._static_given)
        return self._fallback

    def _key(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        import jax

        positions = _positions(self._static_given, arguments)
        static = tuple(arguments[n] for n in positions)
        dynamic = tuple(a for n, a in enumerate(arguments) if n not in positions)
        leaves, tree = jax.tree.flatten((dynamic, keywords), is_leaf=is_one_array)
        try:
            hash(static)
        except TypeError as error:
            raise TraceError(f"a static argument cannot be hashed: {error}", remedy="pass hashable values") from error
        return tree, static, tuple(_leaf_key(leaf) for leaf in leaves), bool(jax.config.read("jax_enable_x64"))

    def _donated_parameters(self, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        import jax

        numbers: list[int] = []
        start = 0
        static, donated = _positions(self._static_given, arguments), _positions(self._donated_given, arguments)
        for position, argument in enumerate(arguments):
            if position in static:
                continue
            count = len(jax.tree.leaves(argument, is_leaf=is_one_array))
            if position in donated:
                numbers += range(start, start + count)
            start += count
        return tuple(numbers)


def _positions(numbers: tuple[int, ...], arguments: tuple[Any, ...]) -> tuple[int, ...]:
    """Argument numbers as positions of this call; negative ones count from the end, those not given are left out."""
    count = len(arguments)
    return tuple(n % count for n in numbers if -count <= n < count)


def _leaf_key(leaf: Any) -> Any:
    """What a compiled program depends on: shape, dtype, weak type, and a sharding the array brings."""
    import jax
    from jax.sharding import NamedSharding

    if isinstance(leaf, (bool, int, float, complex)):
        return type(leaf)
    sharding = getattr(leaf, "sharding", None)
    if is_one_array(leaf):
        return leaf.shape, leaf.dtype, False, sharding
    try:
        aval = jax.typeof(leaf) if not isinstance(leaf, jax.ShapeDtypeStruct) else leaf
    except TypeError:
        return type(leaf)  # tracing says what is wrong with it, and where
    return (
        aval.shape,
        aval.dtype,
        getattr(aval, "weak_type", False),
        sharding if isinstance(sharding, NamedSharding) else None,
    )


def jit(
    fn: Callable[..., Any],
    *,
    mesh: Any,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] = (),
    donate_argnums: int | Sequence[int] = (),
) -> Jitted:
    """`jax.jit` with our propagation and partitioning: the same call, the same results, fewer bytes.

    `in_shardings` and `out_shardings` are prefix trees of PartitionSpec, NamedSharding, HloSharding, HLO text or None
    (open: chosen to suit the program).  Called inside `jax.jit`, `grad` or `vmap` it behaves as `jax.jit(fn)`.
    Raises TraceError, at the call, for what is no mesh and for arguments or shardings that do not fit the function.

    >>> import jax, numpy as np
    >>> from jax.sharding import Mesh, PartitionSpec as P
    >>> mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
    >>> step = jit(lambda x: 2 * x, mesh=mesh, in_shardings=P("x"))
    >>> step(np.arange(3.0))
    Array([0., 2., 4.], dtype=float32)
    """
    import jax

    if mesh is None:
        raise TraceError("hs.jit needs a mesh", remedy="pass mesh=jax.sharding.Mesh(devices, axis_names)")
    if isinstance(mesh, jax.sharding.AbstractMesh):
        raise TraceError(
            "hs.jit runs on the devices of its mesh, and an AbstractMesh has none",
            remedy="pass a jax.sharding.Mesh; to look and to price, hs.trace takes an AbstractMesh",
        )
    return Jitted(
        fn,
        mesh=mesh,
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        static_argnums=_numbers(static_argnums),
        donate_argnums=_numbers(donate_argnums),
    )


def _numbers(numbers: int | Sequence[int]) -> tuple[int, ...]:
    return (numbers,) if isinstance(numbers, int) else tuple(numbers)
