"""hlosharding: a sharding compiler frontend.  `import hlosharding as hs`; every public name is an attribute of it.

Roof.  Knows only in which room each name lives: rooms, and the libraries they need, are imported when a name is first
used, so that importing this package pulls in neither JAX nor ONNX.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from hlosharding.errors import (
    AnnotationError,
    CostError,
    ExecutionError,
    HloShardingError,
    LoadError,
    ModuleError,
    PartitionError,
    PlanError,
    PropagationError,
    RuleError,
    RuleReplacedWarning,
    ScheduleError,
    ShardingError,
    ShardingParseError,
    TraceError,
)

if TYPE_CHECKING:
    from hlosharding.compiler import (
        CollectiveExplanation,
        Explanations,
        Partitioned,
        ShardedArray,
        device_put,
        explain,
        jit,
        partition,
    )
    from hlosharding.cost import Chip, CostReport, Machine, Simulation, Topology, calibrate, cost, machines, topology
    from hlosharding.frontends import (
        annotate,
        load,
        logical_to_mesh_sharding,
        no_communication,
        shard_alike,
        to_sdy_text,
        trace,
        with_sharding,
    )
    from hlosharding.ir import Module, register_library, verify
    from hlosharding.mesh_propagation import AxisAnnotation, AxisPropagation, propagate_axes
    from hlosharding.notations import AxisSharding
    from hlosharding.onnx import OnnxShardings, read_onnx_shardings, write_onnx_shardings
    from hlosharding.onnx_ranks import OnnxRanks, write_onnx_ranks
    from hlosharding.plans import (
        Difference,
        ExportedPlan,
        PlanFile,
        SourceChange,
        change_source,
        check_plan,
        diff,
        export_plan,
        replicated_by_accident,
    )
    from hlosharding.propagation import Explanation, LostOffer, Propagation, propagate
    from hlosharding.report import (
        Report,
        collectives_view,
        draw,
        draw_svg,
        pareto_svg,
        program_svg,
        report,
        show,
        to_html,
        to_record,
    )
    from hlosharding.reshard import ReshardPlan, plan_reshard
    from hlosharding.rules import CallCost, register_interface, register_rule, unregister_rule
    from hlosharding.schedule import Schedule, ScheduleSimulation, parse_schedule, pipelined, simulate
    from hlosharding.search import (
        Climb,
        Grid,
        InterOp,
        Optimum,
        Plan,
        Ranking,
        SearchResult,
        SizedPlan,
        Suggestion,
        apply_plan,
        find_optimum,
        fsdp,
        megatron,
        rank,
        schedule_of,
        search,
        suggest,
    )
    from hlosharding.sharding import Cluster, HloSharding, TileAssignment, convert, same_sharding
    from hlosharding.spmd import Collective, collectives, verify_partitioned
    from hlosharding.transfer import TransferPlan, plan_transfer

__version__ = "0.1.0"

_NAMES = {
    "sharding": "Cluster HloSharding TileAssignment convert same_sharding",
    "notations": "AxisSharding",
    "ir": "Module register_library verify",
    "rules": "CallCost register_interface register_rule unregister_rule",
    "frontends": "annotate load logical_to_mesh_sharding no_communication shard_alike to_sdy_text trace with_sharding",
    "onnx": "OnnxShardings read_onnx_shardings write_onnx_shardings",
    "onnx_ranks": "OnnxRanks write_onnx_ranks",
    "spmd": "Collective collectives verify_partitioned",
    "propagation": "Explanation LostOffer Propagation propagate",
    "mesh_propagation": "AxisAnnotation AxisPropagation propagate_axes",
    "cost": "Chip CostReport Machine Simulation Topology calibrate cost machines topology",
    "reshard": "ReshardPlan plan_reshard",
    "transfer": "TransferPlan plan_transfer",
    "schedule": "Schedule ScheduleSimulation parse_schedule pipelined simulate",
    "search": "Climb Grid InterOp Optimum Plan Ranking SearchResult SizedPlan Suggestion apply_plan find_optimum fsdp"
    " megatron rank schedule_of search suggest",
    "plans": "Difference ExportedPlan PlanFile SourceChange change_source check_plan diff export_plan"
    " replicated_by_accident",
    "report": "Report collectives_view draw draw_svg pareto_svg program_svg report show to_html to_record",
    "compiler": "CollectiveExplanation Explanations Partitioned ShardedArray device_put explain jit partition",
}
_ROOMS = {f"hlosharding.{room}": names.split() for room, names in _NAMES.items()}
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "AnnotationError",
    "AxisAnnotation",
    "AxisPropagation",
    "AxisSharding",
    "CallCost",
    "Chip",
    "Climb",
    "Cluster",
    "Collective",
    "CollectiveExplanation",
    "CostError",
    "CostReport",
    "Difference",
    "ExecutionError",
    "Explanation",
    "Explanations",
    "ExportedPlan",
    "Grid",
    "HloSharding",
    "HloShardingError",
    "InterOp",
    "LoadError",
    "LostOffer",
    "Machine",
    "Module",
    "ModuleError",
    "OnnxRanks",
    "OnnxShardings",
    "Optimum",
    "PartitionError",
    "Partitioned",
    "Plan",
    "PlanError",
    "PlanFile",
    "Propagation",
    "PropagationError",
    "Ranking",
    "Report",
    "ReshardPlan",
    "RuleError",
    "RuleReplacedWarning",
    "Schedule",
    "ScheduleError",
    "ScheduleSimulation",
    "SearchResult",
    "ShardedArray",
    "ShardingError",
    "ShardingParseError",
    "Simulation",
    "SizedPlan",
    "SourceChange",
    "Suggestion",
    "TileAssignment",
    "Topology",
    "TraceError",
    "TransferPlan",
    "annotate",
    "apply_plan",
    "calibrate",
    "change_source",
    "check_plan",
    "collectives",
    "collectives_view",
    "convert",
    "cost",
    "device_put",
    "diff",
    "draw",
    "draw_svg",
    "explain",
    "export_plan",
    "find_optimum",
    "fsdp",
    "jit",
    "load",
    "logical_to_mesh_sharding",
    "machines",
    "megatron",
    "no_communication",
    "pareto_svg",
    "parse_schedule",
    "partition",
    "pipelined",
    "plan_reshard",
    "plan_transfer",
    "program_svg",
    "propagate",
    "propagate_axes",
    "rank",
    "read_onnx_shardings",
    "register_interface",
    "register_library",
    "register_rule",
    "replicated_by_accident",
    "report",
    "same_sharding",
    "schedule_of",
    "search",
    "shard_alike",
    "show",
    "simulate",
    "suggest",
    "to_html",
    "to_record",
    "to_sdy_text",
    "topology",
    "trace",
    "unregister_rule",
    "verify",
    "verify_partitioned",
    "with_sharding",
    "write_onnx_ranks",
    "write_onnx_shardings",
]


class _Roof(ModuleType):
    """The package as users see it: `hs.cost` stays the function, also once the room `hlosharding.cost` is imported.

    Python binds an imported submodule on its package; for the few rooms that share their name with a public function
    that binding is dropped.  `from hlosharding.cost import ...` is not affected.
    """

    def __getattr__(self, name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module 'hlosharding' has no attribute {name!r}")
        value = getattr(importlib.import_module(_HOME[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        is_own_room = isinstance(value, ModuleType) and value.__name__ == f"hlosharding.{name}"
        if not (is_own_room and name in _HOME):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Roof
