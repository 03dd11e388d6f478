"""The private jaxlib touch points, all of them, in one folder: convert, print, lower, compile, run.

Each has a test of its own, which passes with jax 0.10.2 to 0.12.
"""

from hlosharding.xla_bridge.conversions import (
    compiled_to_hlo_proto,
    hlo_proto_to_local_stablehlo,
    hlo_proto_to_sdy,
    hlo_proto_to_stablehlo,
    hlo_proto_to_text,
    hlo_text_to_proto,
    lowered_to_hlo_proto,
    serve,
    shardy_passes,
    stablehlo_bytecode_to_text,
    stablehlo_to_hlo_proto,
    without_shardings,
)
from hlosharding.xla_bridge.dispatch import (
    NO_STATIC_ARGUMENTS,
    StaticArguments,
    array_of,
    compile_error,
    dispatcher,
    finding_nans,
    forget,
    has_compiler_option,
    indivisible_error,
    is_of_arrays,
    jit,
    kept_inputs,
    names_devices,
    options_of,
    prefix_errors,
    remembered_calls,
    shortcut,
    static_arguments,
    tell_miss,
    usual_miss,
)
from hlosharding.xla_bridge.executables import (
    FlatProgram,
    StoredExecutable,
    compilation_key,
    load_lapack,
    read_executable,
    stored_executable,
)
from hlosharding.xla_bridge.jaxprs import traced_digest
from hlosharding.xla_bridge.running import compile_proto, cpu_devices, run_proto, run_stablehlo
from hlosharding.xla_bridge.topologies import compile_with_gspmd, described_devices, is_described
from hlosharding.xla_bridge.tracing import (
    context_mesh,
    cudnn_elsewhere,
    forget_lowering,
    has_gspmd_lowering,
    is_shardy,
    is_tracing,
    keeping_hlo_shardings,
    keeps_hlo_shardings,
    linear_identity,
    lowering_facts,
    lowering_with_calls,
    outside_traces,
    prepare_tracing,
    sharding_custom_call,
    shardy,
    weakly_typed,
)
