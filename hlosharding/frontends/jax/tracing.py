"""A JAX function to a Module: traced abstractly, lowered, read in GSPMD's form, boundary shardings attached.

Floor: frontends.  JAX does the tracing and lowering: for GSPMD where it still can, for Shardy where not; the module is
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from hlosharding import xla_bridge
from hlosharding.errors import TraceError
from hlosharding.frontends.hlo import devices_of, from_hlo_proto
from hlosharding.frontends.jax import boundary
from hlosharding.frontends.jax.arguments import Arguments, arguments_of
from hlosharding.frontends.jax.custom_partitioning import custom_partitionings
from hlosharding.frontends.jax.leaves import of_numbers
from hlosharding.frontends.jax.signature import FunctionSignature
from hlosharding.frontends.prepare import prepare as prepare_module
from hlosharding.frontends.shardy import without_shardy_marks
from hlosharding.ir import PARTITIONING_MARK, RULE_MARK, Instruction, Module
from hlosharding.sharding import HloSharding, MeshInfo


@dataclass(frozen=True, slots=True)
class _Results:
    avals: tuple[Any, ...]
    tree: Any
    shardings: tuple[HloSharding | None, ...]
    for_jax: Any
    """out_shardings as handed to JAX: stand-ins where JAX cannot say them."""


def trace(
    fn: Callable[..., Any],
    *,
    mesh: Any = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: int | Sequence[int] = (),
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
    if not callable(fn):
        raise TraceError(f"{fn!r} is no function", remedy="pass a function of arrays")
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)

    def traced(*args: Any, **kwargs: Any) -> Module:
        xla_bridge.hide_own_frames()
        where_mesh = mesh if mesh is not None else xla_bridge.context_mesh()
        call = arguments_of(args, kwargs, static, in_shardings, where_mesh)
        platforms = _platforms(platform, call.mesh)
        found: list[dict[str, Any]] = []
        as_calls = xla_bridge.custom_partitioning_as_calls(found, PARTITIONING_MARK, RULE_MARK)
        with _mesh_context(mesh), xla_bridge.keeping_hlo_shardings(), as_calls as options:
            module = _lower(fn, call, out_shardings, static, {"lowering_platforms": platforms, **options})
        module.partitionings = custom_partitionings(found, call.mesh, trace)
        return prepare_module(module) if prepare else module

    return traced


def _mesh_context(mesh: Any) -> AbstractContextManager[Any]:
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


def _lower(
    fn: Callable[..., Any], call: Arguments, out_shardings: Any, static: tuple[int, ...], lowering: dict[str, Any]
) -> Module:
    import jax

    options: dict[str, Any] = {"static_argnums": static, "keep_unused": True}
    traced = jax.jit(fn, **options).trace(*call.args, **call.kwargs)
    results = _results(traced, out_shardings, call.mesh)
    if results.for_jax is not None:
        traced = jax.jit(fn, out_shardings=results.for_jax, **options).trace(*call.args, **call.kwargs)
    lowered = traced.lower(**lowering)
    module = without_shardy_marks(from_hlo_proto(xla_bridge.lowered_to_hlo_proto(lowered)))
    _attach(module, lowered, call, results, static)
    return module


def _platforms(platform: str | None, mesh: Any) -> tuple[str, ...]:
    """The platform to lower for: as told, else the mesh's, else JAX's default."""
    import jax

    has_devices = isinstance(mesh, jax.sharding.Mesh)
    chosen = platform or (str(mesh.devices.flat[0].platform) if has_devices else jax.default_backend())
    return ("cuda" if chosen == "gpu" else chosen,)


def _results(traced: Any, out_shardings: Any, mesh: Any) -> _Results:
    import jax

    leaves, tree = jax.tree.flatten(traced.out_info)
    if out_shardings is None:
        return _Results(tuple(leaves), tree, (None,) * len(leaves), None)
    entries = boundary.broadcast(out_shardings, traced.out_info, "out_shardings")
    wanted = [boundary.resolve(e, mesh, f"output {n}") for n, e in enumerate(entries)]
    found = tuple(
        of_numbers(boundary.as_hlo(w, leaf.shape, f"output {n}"), leaf)
        for n, (w, leaf) in enumerate(zip(wanted, leaves, strict=True))
    )
    for_jax = [
        w if w is None or boundary.divides(w, leaf.shape) else _stand_in(mesh, wanted, found)
        for w, leaf in zip(wanted, leaves, strict=True)
    ]
    return _Results(tuple(leaves), tree, found, jax.tree.unflatten(tree, for_jax))


def _stand_in(mesh: Any, wanted: Sequence[Any], found: Sequence[HloSharding | None]) -> Any:
    """A replicated NamedSharding: JAX writes the output's annotation, we put the real sharding into it."""
    import jax

    mesh = mesh or boundary.mesh_of(wanted)
    if mesh is None:
        mesh = jax.sharding.AbstractMesh((devices_of(s for s in found if s is not None),), ("devices",))
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())


def _attach(module: Module, lowered: Any, call: Arguments, results: _Results, static: tuple[int, ...]) -> None:
    """Shardings of the boundary, number of partitions, mesh and signature, onto a fresh module."""
    facts = xla_bridge.lowering_facts(lowered)
    module.callbacks = facts.get("callbacks", ())
    # Tokens of ordered effects come before the arguments and results proper.
    extra = len(module.entry.parameters) - len(call.avals)
    for parameter, sharding in zip(module.entry.parameters[extra:], call.shardings, strict=True):
        if sharding is not None:
            module.shardings[parameter.id] = sharding
    for number, sharding in enumerate(results.shardings):
        if sharding is not None:
            _set_output(module, number, len(results.shardings), sharding)
    module.mesh = _mesh_info(call.mesh)
    mesh_size = module.mesh.num_devices if module.mesh is not None else 1
    module.num_partitions = max(mesh_size, facts.get("num_devices", 1), devices_of(module.shardings.values()))
    parameters = tuple(range(extra, extra + len(call.avals)))
    module.signature = FunctionSignature(
        in_tree=call.tree,
        out_tree=results.tree,
        in_avals=call.avals,
        out_avals=results.avals,
        names=tuple(p.op_name for p in module.entry.parameters[extra:]),
        parameters=parameters,
        open_outputs=tuple(s is None for s in results.shardings),
        open_parameters=tuple(p.id not in module.shardings for p in module.entry.parameters),
        static_argnums=static,
        input_memory=(None,) * extra + facts["input_memory"] if "input_memory" in facts else (),
        output_memory=facts.get("output_memory", ()),
        num_positional=len(call.args),
    )


def _set_output(module: Module, number: int, count: int, sharding: HloSharding) -> None:
    root = module.entry.root
    if root.opcode == "tuple" and root.shape.is_tuple:
        old = module.shardings.get(root.id) or HloSharding.tuple([HloSharding.replicate()] * count)
        module.shardings[root.id] = old.with_leaf(number, sharding)
        copy = _copy_of_output(root, number)
        if copy is not None:
            module.shardings[copy.id] = sharding
    else:
        module.shardings[root.id] = sharding


def _copy_of_output(root: Instruction, number: int) -> Instruction | None:
    """MLIR's export makes a copy of each output, returned or unused, and XLA propagates from its annotation."""
    value = root.operands[number]
    if _is_copy(value):
        return value
    places = [n for n, operand in enumerate(root.operands) if operand is value]
    copies = [user for user in value.users if _is_copy(user) and not user.users]
    return copies[places.index(number)] if len(copies) == len(places) else None


def _is_copy(instruction: Instruction) -> bool:
    # What a user reshapes has an op name, and another shape than before.
    is_reshape = instruction.opcode == "reshape" and not instruction.op_name
    return is_reshape and instruction.shape == instruction.operands[0].shape


def _mesh_info(mesh: Any) -> Any:
    if mesh is None:
        return None
    return MeshInfo.from_jax(mesh)
