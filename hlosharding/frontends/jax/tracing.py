"""A JAX function to a Module: traced abstractly, lowered, read in GSPMD's form, boundary shardings attached.

Floor: frontends.  JAX does the tracing and lowering: for GSPMD where it still can, for Shardy where not; the module is
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from hlosharding import xla_bridge
from hlosharding.collector import collector_waits
from hlosharding.errors import TraceError
from hlosharding.frontends.hlo import devices_of, from_hlo_proto
from hlosharding.frontends.jax import boundary
from hlosharding.frontends.jax.arguments import Arguments, arguments_of
from hlosharding.frontends.jax.custom_partitioning import custom_partitionings
from hlosharding.frontends.jax.naming import output_names
from hlosharding.frontends.jax.signature import FunctionSignature, of_numbers, refuse_references
from hlosharding.frontends.prepare import prepare_edit
from hlosharding.frontends.shardy import without_shardy_marks
from hlosharding.ir import PARTITIONING_MARK, RULE_MARK, Edit, Instruction, Module
from hlosharding.sharding import HloSharding, MeshInfo


def trace(
    fn: Callable[..., Any],
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    platform: str | None = None,
    prepare: bool = True,
) -> Callable[..., Module]:
    """A callable that takes `fn`'s arguments (arrays or `jax.ShapeDtypeStruct`, pytrees) and gives its Module.

    `in_shardings` (a prefix tree over the positional, non-static arguments) and `out_shardings` take NamedSharding,
    PartitionSpec over `mesh`, HloSharding, HLO text, or None for open; uneven splits are allowed.  An argument that
    brings a NamedSharding keeps it.  `platform` ("cpu", "cuda", "tpu"): the one that will run; default JAX's own.
    `prepare=False` leaves calls and dead code as JAX wrote them.  Raises TraceError.

    >>> import jax, jax.numpy as jnp
    >>> module = trace(lambda x: jnp.sin(x) + 1, in_shardings="{devices=[2]<=[2]}")(jnp.ones(4))
    >>> [i.opcode for i in module.entry.instructions], module.num_partitions
    (['parameter', 'sine', 'constant', 'broadcast', 'add'], 2)
    """
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    function = TraceableFunction(fn, mesh=mesh, in_shardings=in_shardings, out_shardings=out_shardings, options=options)

    def traced(*args: Any, **kwargs: Any) -> Module:
        with xla_bridge.cudnn_elsewhere() if platform in ("cuda", "gpu") else nullcontext():
            return function.trace(args, kwargs).module(platform, prepare=prepare)

    return traced


class TraceableFunction:
    """A function with its shardings, to be traced for calls of it.

    `options` are those of `jax.jit` that bear on tracing: static and donated arguments.
    """

    def __init__(
        self, fn: Callable[..., Any], *, mesh: Any, in_shardings: Any, out_shardings: Any, options: dict[str, Any]
    ) -> None:
        if not callable(fn):
            raise TraceError(f"Expected a callable value, got {fn!r}", remedy="pass a function of arrays")
        xla_bridge.prepare_tracing()
        self._fn, self._mesh = fn, mesh
        # So that the n-th flat argument is parameter n, whether anything reads it or not.
        self._options: dict[str, Any] = {**options, "keep_unused": True}
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        self._jitted = xla_bridge.jit(fn, **self._options)
        self._jitted_with: dict[Any, Any] = {}
        self._static = xla_bridge.static_arguments(self._jitted)

    def _with_results(self, results: _Results) -> Any:
        """The function jitted with its out_shardings; made once, since JAX remembers traces by it."""
        import jax

        leaves = jax.tree.leaves(results.for_jax, is_leaf=lambda node: node is None)
        key = results.tree, tuple(leaves)
        if key not in self._jitted_with:
            self._jitted_with[key] = xla_bridge.jit(self._fn, out_shardings=results.for_jax, **self._options)
        return self._jitted_with[key]

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedCall:
        """One call, traced by JAX; not lowered yet."""
        where_mesh = self._mesh if self._mesh is not None else xla_bridge.context_mesh()
        call = arguments_of(self._fn, args, kwargs, self._static, self._in_shardings, where_mesh)
        with _for_our_reader(self._mesh):
            traced = self._jitted.trace(*call.args, **call.kwargs)
            key = traced.jaxpr, call.shardings, call.known_to_jax, call.memory, call.mesh
            # Only a trace tells the tree of results that out_shardings are a prefix of: hence two of them.
            results = _results(traced, self._out_shardings, call.mesh)
            if results.for_jax is not None:
                traced = self._with_results(results).trace(*call.args, **call.kwargs)
        return TracedCall(traced, call, results, self._mesh, self._static, key)


@dataclass(frozen=True, slots=True)
class _Results:
    avals: tuple[Any, ...]
    tree: Any
    shardings: tuple[HloSharding | None, ...]
    for_jax: Any
    """out_shardings as handed to JAX: stand-ins where JAX cannot say them."""
    said: tuple[bool, ...]
    """Per output: is it open to us, or said by JAX's own words?"""


@dataclass(frozen=True)
class TracedCall:
    """A call of a function, traced by JAX, with the shardings of its boundary."""

    jax: Any
    """The `jax.stages.Traced`."""
    call: Arguments
    results: _Results
    mesh: Any
    """Around which it was traced; None: that of the context."""
    static: xla_bridge.StaticArguments
    key: Any
    """Equal for calls that are the same program."""

    @property
    def is_of_arrays(self) -> bool:
        """Else, for mutable arrays, tokens and ordered effects, only JAX can run it."""
        return xla_bridge.is_of_arrays(self.jax)

    @property
    def donated(self) -> tuple[int, ...]:
        """Numbers of the flat arguments whose buffers may be reused."""
        import jax

        return tuple(n for n, info in enumerate(jax.tree.leaves(self.jax.args_info)) if info.donated)

    @collector_waits
    def module(self, platform: str | None = None, *, prepare: bool = True) -> Module:
        """Lowered and read."""
        found: list[dict[str, Any]] = []
        options = xla_bridge.lowering_with_calls(found, PARTITIONING_MARK, RULE_MARK)
        live = xla_bridge.without_dead_code(self.jax)
        lowered = self._lowered(live, {"lowering_platforms": platforms(platform, self.call.mesh), **options})
        module = without_shardy_marks(from_hlo_proto(xla_bridge.lowered_to_hlo_proto(lowered)))
        facts = xla_bridge.lowering_facts(lowered)
        if self.call.mesh is None and "mesh" not in facts:
            facts["mesh"] = xla_bridge.mesh_inside(self.jax)
        self._attach(module, facts)
        xla_bridge.forget_lowering(live)
        module.partitionings = custom_partitionings(found, self.call.mesh, partial(trace, platform=platform))
        return prepare_edit(Edit(module)) if prepare else module

    def _lowered(self, traced: Any, options: dict[str, Any]) -> Any:
        try:
            with _for_our_reader(self.mesh):
                return traced.lower(**options)
        except AssertionError:  # JAX lowers unreduced values for Shardy alone
            with _for_our_reader(self.mesh), xla_bridge.shardy(True):
                return traced.lower(**options)

    def _attach(self, module: Module, facts: dict[str, Any]) -> None:
        """Shardings of the boundary, number of partitions, mesh and signature, onto a fresh module."""
        module.callbacks, module.custom_calls = facts.get("callbacks", ()), None
        extra = len(module.entry.parameters) - len(self.call.avals)
        self._attach_shardings(module, extra)
        _mark_per_device(module)
        mesh = self.call.mesh or facts.get("mesh")
        module.mesh = None if mesh is None else MeshInfo.from_jax(mesh)
        mesh_size = module.mesh.num_devices if module.mesh is not None else 1
        module.num_partitions = max(mesh_size, facts.get("num_devices", 1), devices_of(module.shardings.values()))
        module.open_parameters = tuple(p.id not in module.shardings for p in module.entry.parameters)
        is_open = facts.get("open_outputs", (None,) * len(self.results.shardings))
        refuse_references(is_open, len(self.results.shardings), TraceError)
        module.open_outputs = tuple(
            s is None and o is not False for s, o in zip(self.results.shardings, is_open, strict=True)
        )
        names = [p.op_name for p in module.entry.parameters[extra:]]
        module.signature = self._signature(names, extra, facts, module.num_partitions)

    def _attach_shardings(self, module: Module, extra: int) -> None:
        """`extra`: tokens of ordered effects, which come before the arguments and results proper."""
        for parameter, sharding in zip(module.entry.parameters[extra:], self.call.shardings, strict=True):
            if sharding is not None:
                module.shardings[parameter.id] = sharding
        _set_outputs(module, self.results.shardings)

    @property
    def signature(self) -> FunctionSignature:
        """What the function takes and gives, as far as it is known before it is lowered."""
        return self._signature(self.call.names, 0, {}, 1 if self.call.mesh is None else self.call.mesh.size)

    def digest(self) -> bytes | None:
        """A checksum of the program, before it is lowered; None where that takes its HLO, or no devices are named."""
        import jax

        if not isinstance(self.call.mesh, jax.sharding.Mesh):
            return None
        call, results = self.call, self.results
        shardings = tuple(map(str, (*call.shardings, *results.shardings)))
        words = call.mesh, shardings, call.spelled, call.memory, jax.tree.leaves(results.for_jax), results.said
        return xla_bridge.traced_digest(self.jax, words)

    def _signature(
        self, names: Sequence[str], extra: int, facts: dict[str, Any], num_partitions: int
    ) -> FunctionSignature:
        count = len(self.results.avals)
        mesh = self.call.mesh or facts.get("mesh")
        given = facts.get("output_shardings", (None,) * count)
        return FunctionSignature(
            in_tree=self.call.tree,
            out_tree=self.results.tree,
            in_avals=self.call.avals,
            out_avals=self.results.avals,
            names=tuple(names),
            parameters=tuple(range(extra, extra + len(self.call.avals))),
            static=self.static,
            devices=_devices(mesh, facts.get("devices", ()), num_partitions),
            input_memory=(None,) * extra + facts["input_memory"] if "input_memory" in facts else (),
            output_memory=facts.get("output_memory", ()),
            output_shardings=tuple(g if said else None for g, said in zip(given, self.results.said, strict=True)),
            output_names=output_names(self.call, self.jax.jaxpr.out_avals, mesh),
        )


@contextmanager
def _for_our_reader(mesh: Any) -> Iterator[None]:
    with mesh_context(mesh), xla_bridge.keeping_hlo_shardings():
        yield


def mesh_context(mesh: Any) -> AbstractContextManager[Any]:
    """The mesh as JAX's of the context; none for None."""
    import jax

    if mesh is None:
        return nullcontext()
    if isinstance(mesh, jax.sharding.AbstractMesh):
        return jax.sharding.use_abstract_mesh(mesh)
    if not isinstance(mesh, jax.sharding.Mesh):
        raise TraceError(f"{mesh!r} is no mesh", remedy="pass a jax.sharding.Mesh or AbstractMesh")
    try:
        return jax.set_mesh(mesh)
    except ValueError:  # inside another trace, where only the axes can be told
        return jax.sharding.use_abstract_mesh(mesh.abstract_mesh)


def platforms(platform: str | None, mesh: Any) -> tuple[str, ...]:
    """The platform to lower for: as told, else the mesh's, else JAX's default."""
    import jax

    device = mesh.devices.flat[0] if isinstance(mesh, jax.sharding.Mesh) else jax.devices()[0]
    chosen = platform or str(device.platform)
    # JAX calls those of both makers so, and lowers for each alone.
    is_rocm = chosen == "gpu" and "rocm" in device.client.platform_version
    return ("rocm" if is_rocm else "cuda" if chosen == "gpu" else chosen,)


def _results(traced: Any, out_shardings: Any, mesh: Any) -> _Results:
    import jax

    leaves, tree = jax.tree.flatten(traced.out_info)
    if out_shardings is None:
        return _Results(tuple(leaves), tree, (None,) * len(leaves), None, (True,) * len(leaves))
    entries = boundary.broadcast(out_shardings, traced.out_info, "out_shardings")
    wanted = [boundary.resolve(e, mesh, f"output {n}") for n, e in enumerate(entries)]
    found = tuple(
        of_numbers(boundary.as_hlo(w, leaf.shape, f"output {n}"), leaf)
        for n, (w, leaf) in enumerate(zip(wanted, leaves, strict=True))
    )
    said = tuple(w is None or boundary.divides(w, leaf.shape) for w, leaf in zip(wanted, leaves, strict=True))
    for_jax = [w if is_said else _stand_in(mesh, wanted, found) for w, is_said in zip(wanted, said, strict=True)]
    return _Results(tuple(leaves), tree, found, jax.tree.unflatten(tree, for_jax), said)


def _stand_in(mesh: Any, wanted: Sequence[Any], found: Sequence[HloSharding | None]) -> Any:
    """A replicated NamedSharding: JAX writes the output's annotation, we put the real sharding into it."""
    import jax

    mesh = mesh or boundary.mesh_of(wanted)
    if mesh is None:
        mesh = jax.sharding.AbstractMesh((devices_of(s for s in found if s is not None),), ("devices",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _set_outputs(module: Module, said: Sequence[HloSharding | None]) -> None:
    root = module.entry.root
    given = {number: sharding for number, sharding in enumerate(said) if sharding is not None}
    if not given:
        return
    if not (root.opcode == "tuple" and root.shape.is_tuple):
        module.shardings[root.id] = given[max(given)]
        return
    old = module.shardings.get(root.id)
    leaves = list(old.tuple_elements) if old is not None else [HloSharding.replicate()] * len(said)
    copies = _copies_of_outputs(root)
    for number, sharding in given.items():
        leaves[number] = sharding
        if number in copies:
            module.shardings[copies[number].id] = sharding
    module.shardings[root.id] = HloSharding.tuple(leaves)


def _copies_of_outputs(root: Instruction) -> dict[int, Instruction]:
    """MLIR's export makes a copy of each output, returned or unused, and XLA propagates from its annotation."""
    places: dict[Instruction, list[int]] = {}
    for number, value in enumerate(root.operands):
        places.setdefault(value, []).append(number)
    found: dict[int, Instruction] = {}
    for value, numbers in places.items():
        unused = [user for user in value.users if _is_copy(user) and not user.users]
        copies = [value] * len(numbers) if _is_copy(value) else unused
        if len(copies) == len(numbers):
            found.update(zip(numbers, copies, strict=True))
    return found


def _is_copy(instruction: Instruction) -> bool:
    # What a user reshapes has an op name, and another shape than before.
    is_reshape = instruction.opcode == "reshape" and not instruction.op_name
    return is_reshape and instruction.shape == instruction.operands[0].shape


def _mark_per_device(module: Module) -> None:
    """Each device's own number is a value of manual code, and JAX writes it nowhere else.

    Around a `debug.print` in a region that is manual over some of the axes only the number says so: one device prints.
    """
    for inst in module.instructions:
        if inst.opcode == "partition-id":
            module.shardings.setdefault(inst.id, HloSharding.manual())


def _devices(mesh: Any, arguments: tuple[Any, ...], count: int) -> tuple[Any, ...] | None:
    """Those of the mesh; without one those that the arguments lie on, where the program is for them."""
    import jax

    if isinstance(mesh, jax.sharding.Mesh):
        return tuple(mesh.devices.flat)
    return arguments if len(arguments) == count else None
