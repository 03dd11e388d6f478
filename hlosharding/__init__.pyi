# isort: skip_file
"""Every public name, and the room it lives in: the lowest floor first.  `__init__.py` reads this file, too."""

from hlosharding.errors import (
    AnnotationError as AnnotationError,
    CostError as CostError,
    ExecutionError as ExecutionError,
    HloShardingError as HloShardingError,
    LoadError as LoadError,
    ModuleError as ModuleError,
    PartitionError as PartitionError,
    PlanError as PlanError,
    PropagationError as PropagationError,
    RuleError as RuleError,
    RuleReplacedWarning as RuleReplacedWarning,
    ScheduleError as ScheduleError,
    ShardingError as ShardingError,
    ShardingParseError as ShardingParseError,
    TraceError as TraceError,
)
from hlosharding.sharding import (
    Cluster as Cluster,
    HloSharding as HloSharding,
    TileAssignment as TileAssignment,
    convert as convert,
    same_sharding as same_sharding,
)
from hlosharding.notations import AxisSharding as AxisSharding
from hlosharding.ir import Module as Module, register_library as register_library, verify as verify
from hlosharding.rules import (
    CallCost as CallCost,
    register_interface as register_interface,
    register_rule as register_rule,
    unregister_rule as unregister_rule,
)
from hlosharding.frontends import (
    annotate as annotate,
    load as load,
    logical_to_mesh_sharding as logical_to_mesh_sharding,
    no_communication as no_communication,
    shard_alike as shard_alike,
    to_sdy_text as to_sdy_text,
    trace as trace,
    with_sharding as with_sharding,
)
from hlosharding.onnx import (
    OnnxShardings as OnnxShardings,
    read_onnx_shardings as read_onnx_shardings,
    write_onnx_shardings as write_onnx_shardings,
)
from hlosharding.onnx_ranks import OnnxRanks as OnnxRanks, write_onnx_ranks as write_onnx_ranks
from hlosharding.spmd import (
    Collective as Collective,
    collectives as collectives,
    verify_partitioned as verify_partitioned,
)
from hlosharding.propagation import (
    Explanation as Explanation,
    LostOffer as LostOffer,
    Propagation as Propagation,
    propagate as propagate,
)
from hlosharding.mesh_propagation import (
    AxisAnnotation as AxisAnnotation,
    AxisPropagation as AxisPropagation,
    propagate_axes as propagate_axes,
)
from hlosharding.cost import (
    Chip as Chip,
    CostReport as CostReport,
    Machine as Machine,
    Simulation as Simulation,
    Topology as Topology,
    calibrate as calibrate,
    cost as cost,
    machines as machines,
    topology as topology,
)
from hlosharding.reshard import ReshardPlan as ReshardPlan, plan_reshard as plan_reshard
from hlosharding.transfer import TransferPlan as TransferPlan, plan_transfer as plan_transfer
from hlosharding.schedule import (
    Schedule as Schedule,
    ScheduleSimulation as ScheduleSimulation,
    parse_schedule as parse_schedule,
    pipelined as pipelined,
    simulate as simulate,
)
from hlosharding.search import (
    Climb as Climb,
    Grid as Grid,
    InterOp as InterOp,
    Optimum as Optimum,
    Plan as Plan,
    Ranking as Ranking,
    SearchResult as SearchResult,
    SizedPlan as SizedPlan,
    Suggestion as Suggestion,
    apply_plan as apply_plan,
    find_optimum as find_optimum,
    fsdp as fsdp,
    megatron as megatron,
    rank as rank,
    schedule_of as schedule_of,
    search as search,
    suggest as suggest,
)
from hlosharding.plans import (
    Difference as Difference,
    ExportedPlan as ExportedPlan,
    PlanFile as PlanFile,
    SourceChange as SourceChange,
    change_source as change_source,
    check_plan as check_plan,
    diff as diff,
    export_plan as export_plan,
    replicated_by_accident as replicated_by_accident,
)
from hlosharding.report import (
    Report as Report,
    collectives_view as collectives_view,
    draw as draw,
    draw_svg as draw_svg,
    pareto_svg as pareto_svg,
    program_svg as program_svg,
    report as report,
    show as show,
    to_html as to_html,
    to_record as to_record,
)
from hlosharding.compiler import (
    CollectiveExplanation as CollectiveExplanation,
    Explanations as Explanations,
    Partitioned as Partitioned,
    ShardedArray as ShardedArray,
    device_put as device_put,
    explain as explain,
    jit as jit,
    partition as partition,
)

__version__: str
__all__: list[str]
