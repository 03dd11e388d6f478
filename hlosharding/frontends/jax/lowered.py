"""A `jax.stages.Lowered` or `Compiled`, as users hold it, to a Module.

Floor: frontends.  Shardy's dialect (JAX's default) and GSPMD's give the same module.
"""

from __future__ import annotations

from typing import Any

from hlosharding import xla_bridge
from hlosharding.errors import LoadError
from hlosharding.frontends.hlo import devices_of, from_hlo_proto, partitions_in
from hlosharding.frontends.jax.signature import FunctionSignature, refuse_references
from hlosharding.frontends.shardy import without_shardy_marks
from hlosharding.ir import Module
from hlosharding.sharding import MeshInfo


def from_lowered(lowered: Any) -> Module:
    """A module of a lowered function, with its signature; not prepared yet."""
    lowered = getattr(lowered, "lowered", lowered)  # Flax wraps JAX's
    facts = xla_bridge.lowering_facts(lowered)
    refuse_references(facts.get("open_outputs", ()), lowered.out_tree.num_leaves, LoadError)
    module = without_shardy_marks(from_hlo_proto(xla_bridge.lowered_to_hlo_proto(lowered)))
    module.callbacks, module.custom_calls = facts.get("callbacks", ()), None
    if module.mesh is None and "mesh" in facts:
        module.mesh = MeshInfo.from_jax(facts["mesh"])
    mesh_size = module.mesh.num_devices if module.mesh is not None else 1
    module.num_partitions = max(facts.get("num_devices", 1), mesh_size, devices_of(module.shardings.values()))
    module.open_outputs, module.open_parameters = facts.get("open_outputs", False), facts.get("open_inputs", False)
    module.signature = _signature(lowered, module, facts)
    return module


def from_compiled(compiled: Any) -> Module:
    """The optimized module of a `jax.stages.Compiled`, as XLA made it: to be read and priced."""
    proto, header = xla_bridge.compiled_to_hlo_proto(compiled)
    module = from_hlo_proto(proto)
    module.custom_calls = None
    module.num_partitions = max(module.num_partitions, partitions_in(header) or 1)
    return module


def _signature(lowered: Any, module: Module, facts: dict[str, Any]) -> FunctionSignature | None:
    import jax

    infos, in_tree = jax.tree.flatten(lowered.args_info)
    outputs, out_tree = jax.tree.flatten(lowered.out_info)
    kept = sorted(facts.get("kept", range(len(infos))))
    parameters = module.entry.parameters
    extra = len(parameters) - len(kept)
    if extra < 0:
        return None
    numbers = {argument: number + extra for number, argument in enumerate(kept)}
    paths = jax.tree_util.tree_flatten_with_path(lowered.args_info)[0]
    names = [
        parameters[numbers[n]].op_name if n in numbers else jax.tree_util.keystr(path)
        for n, (path, _) in enumerate(paths)
    ]
    return FunctionSignature(
        in_tree=in_tree,
        out_tree=out_tree,
        in_avals=tuple(jax.ShapeDtypeStruct(i.shape, i.dtype) for i in infos),
        out_avals=tuple(jax.ShapeDtypeStruct(o.shape, o.dtype) for o in outputs),
        names=tuple(names),
        parameters=tuple(numbers.get(n) for n in range(len(infos))),
        output_shardings=facts.get("output_shardings", ()),
    )
