"""Shardy's ops in MLIR modules: those that jaxlib exports to no HLO on the way in, its attributes on the way out.

Floor: ground.  Runs in the child process of conversions.  On whole arrays a reshard and every collective of Shardy's
leave the value as it is, and say how it lies behind them: a constraint says the same.
"""

from __future__ import annotations

import re
from typing import Any

from hlosharding.xla_bridge.private import first_import, ops_of

_SHARDING_OF = {
    "sdy.reshard": "sharding",
    "sdy.all_gather": "out_sharding",
    "sdy.all_reduce": "out_sharding",
    "sdy.all_slice": "out_sharding",
    "sdy.all_to_all": "out_sharding",
    "sdy.collective_permute": "out_sharding",
    "sdy.reduce_scatter": "out_sharding",
    "sdy.replicated_to_unreduced": "out_sharding",
    "sdy.sharded_to_unreduced": "out_sharding",
}
"""The attribute that says how the result lies."""
_NAMED = "sdy.named_computation"
_WORDS = re.compile(rb"\b(?:%s)\b" % "|".join(n[4:] for n in (*_SHARDING_OF, _NAMED)).encode())


def may_have_reshards(module: bytes) -> bool:
    """Does text or bytecode name one of these ops?  In bytecode an op's dialect stands apart from its name."""
    return b"sdy" in module and _WORDS.search(module) is not None


def with_constraints_only(module: Any) -> None:
    """Change an MLIR module so that `sdy.sharding_constraint` stands for these ops; named computations are inlined."""
    ir = first_import("jaxlib.mlir.ir")
    ops = [op for op in ops_of(module) if op.name in _SHARDING_OF or op.name == _NAMED]
    for op in ops:
        if op.name == _NAMED:
            _inline(op, ir)
        else:
            made = _constraint(op.operands[0], op.attributes[_SHARDING_OF[op.name]], ir.InsertionPoint(op), op.location)
            _replace(op, [made])


def _constraint(value: Any, sharding: Any, place: Any, location: Any) -> Any:
    sdy = first_import("jaxlib.mlir.dialects.sdy")
    return sdy.ShardingConstraintOp(value, sharding, loc=location, ip=place).result


def _replace(op: Any, values: list[Any]) -> None:
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()


def _inline(op: Any, ir: Any) -> None:
    """The body where the op stands, its arguments and results held to the shardings that the op says."""
    sdy = first_import("jaxlib.mlir.dialects.sdy")
    body, place = op.regions[0].blocks[0], ir.InsertionPoint(op)

    def held(values: Any, said: str) -> list[Any]:
        if said not in op.attributes:
            return list(values)
        shardings = sdy.TensorShardingPerValueAttr(op.attributes[said]).shardings
        pairs = zip(values, (ir.Attribute(s) for s in shardings), strict=True)
        return [_constraint(value, sharding, place, op.location) for value, sharding in pairs]

    for argument, value in zip(body.arguments, held(op.operands, "in_shardings"), strict=True):
        argument.replace_all_uses_with(value)
    *inner, end = list(body.operations)
    for each in inner:
        each.move_before(op)
    _replace(op, held(end.operands, "out_shardings"))


_MARK, _ATTRIBUTE, _FRONTEND = "xla.sdy.sharding", "sdy.sharding", "mhlo.frontend_attributes"
_XLA_MESH = "stablehlo.mesh"
"""XLA's own copy of a mesh."""
_NAMING_PASSES = "xla-sdy-round-trip-import-shardy-attrs,sdy-lift-inlined-meshes"
"""Marks of results become attributes of functions, and meshes that stand in shardings get a name."""


def with_sdy_attributes(module: Any, num_partitions: int) -> None:
    """Change an MLIR module so that frontend attributes of Shardy's are its own attributes, constraints and meshes."""
    ir = first_import("jaxlib.mlir.ir")
    for op in ops_of(module):
        if op.name == "func.func":
            _mark_arguments(op, ir)
        elif _FRONTEND in op.attributes and _target(op) != "xla.sdy.FuncResultSharding":
            _mark_results(op, ir)
    run_passes(module, _NAMING_PASSES)
    for op in module.body.operations:
        if op.operation.name == "sdy.mesh" and _XLA_MESH in op.attributes:
            del op.attributes[_XLA_MESH]
    state_devices(module, num_partitions)


def state_devices(module: Any, num_partitions: int) -> None:
    """Let the module say for how many devices it is, as JAX does, and nothing else of XLA's; unused functions go."""
    ir = first_import("jaxlib.mlir.ir")
    run_passes(module, "symbol-dce")
    attributes = module.operation.attributes
    names = [getattr(each, "name", each) for each in attributes]  # names in jaxlib 0.10, named attributes in later ones
    for name in (name for name in names if name.startswith("mhlo.")):
        del attributes[name]
    number = ir.IntegerType.get_signless(32, module.context)
    attributes["mhlo.num_partitions"] = ir.IntegerAttr.get(number, num_partitions)
    attributes["mhlo.num_replicas"] = ir.IntegerAttr.get(number, 1)


def run_passes(module: Any, names: str) -> None:
    """Run MLIR's passes of these names over a module."""
    first_import("jaxlib.mlir.passmanager").PassManager.parse(f"builtin.module({names})").run(module.operation)


def _target(op: Any) -> str:
    return op.attributes["call_target_name"].value if op.name == "stablehlo.custom_call" else ""


def _mark_arguments(op: Any, ir: Any) -> None:
    if "arg_attrs" in op.attributes:
        marked = [ir.DictAttr.get(_marked(dict(_entries(each)), ir)) for each in op.attributes["arg_attrs"]]
        op.attributes["arg_attrs"] = ir.ArrayAttr.get(marked)


def _mark_results(op: Any, ir: Any) -> None:
    said = _marked({_FRONTEND: op.attributes[_FRONTEND]}, ir)
    del op.attributes[_FRONTEND]
    for name, value in said.items():
        op.attributes[name] = value
    if _target(op) == "Sharding" and _ATTRIBUTE in said:
        sdy = first_import("jaxlib.mlir.dialects.sdy")
        (sharding,) = sdy.TensorShardingPerValueAttr(said[_ATTRIBUTE]).shardings
        made = _constraint(op.operands[0], ir.Attribute(sharding), ir.InsertionPoint(op), op.location)
        _replace(op, [made])


def _marked(attributes: dict[str, Any], ir: Any) -> dict[str, Any]:
    """With Shardy's attribute in place of its mark among the frontend attributes."""
    entries = dict(_entries(attributes.pop(_FRONTEND, None) or ir.DictAttr.get({})))
    mark = entries.pop(_MARK, None)
    if mark is not None:
        attributes[_ATTRIBUTE] = ir.Attribute.parse(ir.StringAttr(mark).value)
    if entries:
        attributes[_FRONTEND] = ir.DictAttr.get(entries)
    return attributes


def _entries(attributes: Any) -> Any:
    return ((each.name, each.attr) for each in attributes)
