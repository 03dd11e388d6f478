"""The private jaxlib touch points, all of them, in one place: convert, print, lower, compile, run.

Floor: ground.  Takes text and protos whose shardings were checked already (jaxlib aborts the process on some malformed
ones) and knows nothing of our own classes.  Works with jax 0.10 to 0.12; each touch point has a test of its own.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hlosharding import wire, xla_process
from hlosharding.errors import ExecutionError, LoadError

_PASSES_OFF = "sharding-propagation,spmd-partitioning"
_OWN_FOLDER = str(Path(__file__).parent) + os.sep
_FATAL = (RuntimeError, ValueError, TypeError, NotImplementedError)


def _first_import(*names: str) -> Any:
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise LoadError(f"this jaxlib has none of {', '.join(names)}", remedy="use jax 0.10 to 0.12")


def _hlo() -> Any:
    return _first_import("jaxlib._hlo", "jax._src.lib._hlo")


def _jax() -> Any:
    return _first_import("jaxlib._jax", "jax._src.lib._jax")


def _xla_client() -> Any:
    return _first_import("jax._src.lib.xla_client", "jaxlib.xla_client")


# --------------------------------------------------------------------------------------------------------------------
# Formats: asked here, done in a child process, because jaxlib ends its process on some malformed input


def hlo_text_to_proto(text: str) -> bytes:
    """HLO text, its shardings checked before, as serialized HloModuleProto; LoadError with XLA's message else.

    jaxlib writes each computation in post order; ids keep the order of the text, and sorting by them restores it.
    """
    return _convert("hlo-text-to-proto", text.encode())


def hlo_proto_to_text(proto: bytes, *, metadata: bool = True, layouts: bool = True) -> str:
    """HLO text of a serialized HloModuleProto, constants in full; `metadata` prints names, lines and frame tables."""
    words = ["hlo-proto-to-text", *(["metadata"] if metadata else []), *(["layouts"] if layouts else [])]
    return _convert(" ".join(words), proto).decode()


def hlo_proto_to_stablehlo(proto: bytes) -> str:
    """StableHLO text of a serialized HloModuleProto (shardings as `mhlo.sharding` attributes)."""
    return _convert("hlo-proto-to-stablehlo", proto).decode()


def stablehlo_to_hlo_proto(module: str | bytes) -> bytes:
    """StableHLO text or bytecode, its shardings checked before, as serialized HloModuleProto."""
    return _convert("stablehlo-to-hlo-proto", module.encode() if isinstance(module, str) else module)


def stablehlo_bytecode_to_text(module: bytes) -> str:
    """Text of StableHLO bytecode (plain, or a portable artifact of `jax.export`)."""
    return _convert("stablehlo-bytecode-to-text", module).decode()


def _convert(kind: str, payload: bytes) -> bytes:
    try:
        return xla_process.ask(kind, payload)
    except OSError:  # no child can be started here: then without its protection
        status, answer = _answer(kind, payload)
    if status:
        raise LoadError(answer.decode("utf-8", "replace"))
    return answer


def serve() -> None:
    """The child's loop: conversions from standard input to standard output, until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever jaxlib prints
    while (question := xla_process.read_frame(sys.stdin.buffer)) is not None:
        split, payload = question
        xla_process.write_frame(answers, *_answer(payload[:split].decode(), payload[split:]))


def _answer(question: str, payload: bytes) -> tuple[int, bytes]:
    """0 and the converted bytes, or 1 and what is wrong."""
    kind, *options = question.split()
    what, convert = _CONVERSIONS[kind]
    try:
        return 0, convert(payload, frozenset(options))
    except Exception as error:  # noqa: BLE001  (jaxlib: MLIRError, JaxRuntimeError, ValueError ...)
        return 1, f"{what}: {str(error).strip()[:2000]}".encode()


def _parse_hlo(text: bytes, _: frozenset[str]) -> bytes:
    return _hlo().hlo_module_from_text(text.decode()).as_serialized_hlo_module_proto()


def _print_hlo(proto: bytes, words: frozenset[str]) -> bytes:
    options = _hlo().HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = "metadata" in words
    options.include_layout_in_shapes = "layouts" in words
    return _hlo().HloModule.from_serialized_hlo_module_proto(proto).to_string(options).encode()


def _hlo_to_stablehlo(proto: bytes, _: frozenset[str]) -> bytes:
    return _jax().mlir.xla_computation_to_mlir_module(_hlo().XlaComputation(proto)).encode()


def _stablehlo_to_hlo(module: bytes, _: frozenset[str]) -> bytes:
    computation = _jax().mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)
    return computation.as_serialized_hlo_module_proto()


def _bytecode_to_text(module: bytes, _: frozenset[str]) -> bytes:
    mlir = _first_import("jax._src.interpreters.mlir")
    ir = _first_import("jaxlib.mlir.ir")
    with mlir.make_ir_context() as context:
        # A portable artifact parses as plain bytecode, too, but into the versioned dialect: ask for it first.
        try:
            return str(_jax().mlir.deserialize_portable_artifact(module, context)).encode()
        except _FATAL:
            return str(ir.Module.parse(module)).encode()


_CONVERSIONS: dict[str, tuple[str, Callable[[bytes, frozenset[str]], bytes]]] = {
    "hlo-text-to-proto": ("not HLO text", _parse_hlo),
    "hlo-proto-to-text": ("not an HLO module", _print_hlo),
    "hlo-proto-to-stablehlo": ("this HLO has no StableHLO form", _hlo_to_stablehlo),
    "stablehlo-to-hlo-proto": ("not a StableHLO module", _stablehlo_to_hlo),
    "stablehlo-bytecode-to-text": ("not StableHLO bytecode", _bytecode_to_text),
}


def lowered_to_hlo_proto(lowered: Any) -> bytes:
    """Serialized HloModuleProto of a `jax.stages.Lowered`, before any compiler pass."""
    try:
        computation = lowered.compiler_ir("hlo")
    except _FATAL as error:
        raise LoadError(f"this lowered function has no HLO: {str(error)[:2000]}") from error
    if computation is None:
        raise LoadError("this lowered function has no HLO", remedy="lower it with jax.jit(f).lower(...)")
    return computation.as_serialized_hlo_module_proto()


def compiled_to_hlo_proto(compiled: Any) -> tuple[bytes, str]:
    """Serialized HloModuleProto of a `jax.stages.Compiled`, optimized as it runs, and the header line of its text."""
    try:
        module = compiled.runtime_executable().hlo_modules()[0]
        return module.as_serialized_hlo_module_proto(), module.to_string().partition("\n")[0]
    except _FATAL as error:
        raise LoadError(f"this compiled function shows no HLO: {str(error)[:2000]}") from error


# --------------------------------------------------------------------------------------------------------------------
# Tracing context


@contextmanager
def shardy(enabled: bool) -> Iterator[None]:
    """Lower JAX functions in one of its two sharding dialects: Shardy's (True) or GSPMD's (False)."""
    state = _dialect_flag()
    if state is None:
        raise LoadError("this jax has no flag jax_use_shardy_partitioner", remedy="use jax 0.10 to 0.12")
    with state(enabled):
        yield


def context_mesh() -> Any:
    """The mesh of the enclosing `with mesh:` or `jax.set_mesh`, or None."""
    resources = getattr(_first_import("jax._src.mesh"), "thread_resources", None)
    physical = resources.env.physical_mesh if resources is not None else None
    if physical is not None and not physical.empty:
        return physical
    import jax

    concrete = getattr(_first_import("jax._src.mesh"), "get_concrete_mesh", lambda: None)()
    mesh = concrete if concrete is not None and not concrete.empty else jax.sharding.get_abstract_mesh()
    return None if mesh is None or mesh.empty else mesh


def is_shardy() -> bool:
    """Would JAX lower for Shardy now?"""
    state = _dialect_flag()
    return bool(state.value) if state is not None else True


def has_gspmd_lowering() -> bool:
    """Can this JAX still lower for GSPMD?"""
    state = _dialect_flag()
    if state is None:
        return False
    try:
        with state(False):
            return not state.value
    except _FATAL:
        return False


def _dialect_flag() -> Any:
    return getattr(_first_import("jax._src.config"), "use_shardy_partitioner", None)


@contextmanager
def keeping_hlo_shardings() -> Iterator[None]:
    """While it lasts JAX traces and lowers for a reader of HLO shardings: in GSPMD's dialect where it still has it.

    JAX keeps what it traces and lowers meanwhile apart from all else in its caches.
    """
    with _hlo_shardings_are_read()(True), shardy(False) if has_gspmd_lowering() else nullcontext():
        yield


def keeps_hlo_shardings() -> bool:
    """Does whoever gets what JAX traces now read HLO shardings: our own reader, or XLA's GSPMD?"""
    return bool(_hlo_shardings_are_read().value) or not is_shardy()


@functools.cache
def _hlo_shardings_are_read() -> Any:
    import jax

    return jax.make_user_context(False)


@functools.cache
def hide_own_frames() -> None:
    """Leave this package's files out of the Python stacks that JAX records while it traces."""
    register = getattr(_first_import("jax._src.source_info_util"), "register_exclusion", None)
    if register is not None:
        register(_OWN_FOLDER)


def linear_identity(
    name: str,
    *,
    transpose: Callable[..., Any],
    batch: Callable[..., Any],
    lower: Callable[..., Any],
    results: int = 1,
) -> Any:
    """A new JAX primitive that gives its `results` operands back.

    `transpose(cotangents, **params)` and `lower(context, *values, **params)` return lists; `batch(args, dims,
    **params)` results and their dims, as JAX's batching rules do.  Cotangents that are zero are passed on as such.
    """
    from jax.extend.core import Primitive

    ad, batching = _first_import("jax.interpreters.ad"), _first_import("jax.interpreters.batching")
    zero = _first_import("jax._src.interpreters.ad").Zero
    primitive = Primitive(name)
    primitive.multiple_results = results > 1
    primitive.def_impl(lambda *xs, **_: list(xs) if results > 1 else xs[0])
    primitive.def_abstract_eval(lambda *xs, **_: tuple(xs) if results > 1 else xs[0])

    def transpose_rule(cotangents: Any, *_: Any, **params: Any) -> Any:
        each = list(cotangents) if results > 1 else [cotangents]
        return each if any(type(ct) is zero for ct in each) else transpose(each, **params)

    ad.deflinear2(primitive, transpose_rule)
    batching.primitive_batchers[primitive] = batch
    _first_import("jax.interpreters.mlir").register_lowering(primitive, lower)
    return primitive


def weakly_typed(array: Any) -> Any:
    """While tracing: the same array with JAX's weak type, which yields to any other; no op of the program comes of it.

    Of its public functions only those of Python numbers give such arrays.
    """
    from jax.extend.core.primitives import convert_element_type_p

    return convert_element_type_p.bind(array, new_dtype=array.dtype, weak_type=True, sharding=None)


def sharding_custom_call(value: Any, sharding: str, open_dims: Sequence[int] = (), *, is_group: bool = False) -> Any:
    """While lowering: `value` behind a call to `Sharding` with HLO sharding text, checked before.

    `open_dims` are dims that propagation may split further.  A call that `is_group` is kept although it is unused.
    """
    ir = _first_import("jaxlib.mlir.ir")
    stablehlo = _first_import("jaxlib.mlir.dialects.stablehlo")
    config = f"unspecified_dims=[{','.join(map(str, open_dims))}]" if open_dims else ""
    call = stablehlo.CustomCallOp(
        [value.type],
        [value],
        call_target_name=ir.StringAttr.get("Sharding"),
        has_side_effect=ir.BoolAttr.get(is_group),
        backend_config=ir.StringAttr.get(config),
        api_version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
        called_computations=ir.ArrayAttr.get([]),
    )
    call.attributes["mhlo.sharding"] = ir.StringAttr.get(sharding)
    return call.result


@contextmanager
def custom_partitioning_as_calls(
    found: list[dict[str, Any]], attribute: str, rule_attribute: str
) -> Iterator[dict[str, Any]]:
    """While it lasts, functions under `custom_partitioning` are traced to be lowered as marked calls.

    It gives the options with which `Traced.lower` does so; JAX's own lowering is a call that only XLA's partitioner
    can resolve.  What the user gave with each goes into `found`: `partition`, `infer_sharding_from_operands`,
    `in_tree`, `out_tree`, `static_args`; its place there is the call's frontend attribute `attribute`, its rule (in
    Shardy's form) `rule_attribute`.  Inside a `shard_map` such a function is per device already, and is lowered as
    what it computes.
    """
    module = _first_import("jax._src.custom_partitioning")
    owner, primitive = module.custom_partitioning, module.custom_partitioning_p
    usual_call = owner.__call__

    def call_with_all(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # Each dialect drops what only the other one reads, or refuses it: all travels with the callback that both keep.
        given = self.partition, self.infer_sharding_from_operands, self.propagate_user_sharding
        self.partition = _Callbacks(*given[:2], self.sharding_rule)
        self.infer_sharding_from_operands = self.propagate_user_sharding = None
        try:
            return usual_call(self, *arguments, **keywords)
        finally:
            self.partition, self.infer_sharding_from_operands, self.propagate_user_sharding = given

    def as_call(context: Any, *values: Any, call: Any, **given: Any) -> Any:
        results = _called(context, values, call)
        made = getattr(results[0], "owner", None)
        is_call = made is not None and made.name == "func.call" and list(made.results) == list(results)
        if is_call and not getattr(context.module_context.axis_context, "manual_axes", None):
            marks = {attribute: str(len(found)), "inlineable": "false"}
            callbacks = given["partition"]
            rule = _rule_text(module, callbacks.rule, [v.type for v in values], [r.type for r in results])
            _mark(made, marks if rule is None else {**marks, rule_attribute: rule})
            infer = callbacks.infer_sharding_from_operands
            found.append({**given, "partition": callbacks.partition, "infer_sharding_from_operands": infer})
        return results

    # A rule of this one lowering's own: JAX's cache of lowerings, which knows nothing of `found`, is not asked.
    parameters = _first_import("jax._src.interpreters.mlir").LoweringParameters
    owner.__call__ = call_with_all
    try:
        yield {"_private_parameters": parameters(override_lowering_rules=((primitive, as_call),))}
    finally:
        owner.__call__ = usual_call


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Callbacks:
    """What a user gave with `custom_partitioning`, in the place of his `partition`."""

    partition: Any
    infer_sharding_from_operands: Any
    rule: Any

    def __call__(self, *arguments: Any) -> Any:
        return self.partition(*arguments)


def _called(context: Any, values: Sequence[Any], call: Any) -> list[Any]:
    """A call of a function that holds the traced one, as `jax.jit` inside a function is lowered."""
    import jax
    from jax.interpreters import mlir

    function = _first_import("jax._src.core").jaxpr_as_fun(call)

    def custom_partitioning(*arguments: Any) -> Any:
        return function(*arguments)

    return list(mlir.lower_fun(jax.jit(custom_partitioning), multiple_results=True)(context, *values))


def _rule_text(module: Any, rule: Any, operands: Sequence[Any], results: Sequence[Any]) -> str | None:
    """The rule as Shardy writes it; None where there is none, or where a function of the mesh makes it."""
    if not isinstance(rule, module.SdyShardingRule):
        return None
    return str(module.sdy_sharding_rule_to_mlir(rule, operands, results))


def _mark(operation: Any, attributes: dict[str, str]) -> None:
    ir = _first_import("jaxlib.mlir.ir")
    texts = {name: ir.StringAttr.get(text) for name, text in attributes.items()}
    operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(texts)


def lowering_facts(lowered: Any) -> dict[str, Any]:
    """What JAX keeps beside the HLO of a `Lowered`, as far as this version of JAX tells.

    `num_devices`; `kept`: the flat arguments that became parameters; `open_inputs`, `open_outputs`: per parameter and
    per output, whether JAX lets XLA choose its sharding (the module's `allow_spmd_sharding_propagation_to_*`); `mesh`:
    the first that a NamedSharding of the boundary, a constraint or the context brings; `callbacks`: the Python
    functions that custom calls name by their place in the list; `input_memory`, `output_memory`: per parameter and
    output the memory kind of its sharding, None for the device's own.
    """
    arguments = getattr(getattr(lowered, "_lowering", None), "compile_args", None) or {}
    found = {
        "num_devices": arguments.get("num_devices"),
        "kept": arguments.get("kept_var_idx"),
        "open_inputs": _open(arguments.get("in_shardings")),
        "open_outputs": _open(arguments.get("out_shardings"), partly=True),
        "mesh": _mesh_among(arguments),
        "input_memory": _memory(arguments.get("in_shardings")),
        "output_memory": _memory(arguments.get("out_shardings")),
        "callbacks": tuple(arguments.get("host_callbacks") or ()) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _memory(shardings: Sequence[Any] | None) -> tuple[str | None, ...] | None:
    kinds = tuple(getattr(sharding, "memory_kind", None) for sharding in shardings or ())
    found = tuple(None if kind == "device" else kind for kind in kinds)
    return found if any(found) else None


def _mesh_among(arguments: dict[str, Any]) -> Any:
    for key in ("in_shardings", "out_shardings", "intermediate_shardings"):
        for sharding in arguments.get(key) or ():
            mesh = getattr(sharding, "mesh", None)
            if mesh is not None and mesh.axis_names:
                return mesh
    mesh = arguments.get("context_mesh")
    return mesh if mesh is not None and mesh.axis_names else None


def _open(shardings: Sequence[Any] | None, *, partly: bool = False) -> tuple[bool, ...] | None:
    # As JAX's get_prop_to_input_output: an output with an unconstrained dim is open, too.
    if shardings is None:
        return None
    free = type(_first_import("jax._src.sharding_impls").UNSPECIFIED)
    contains_unconstrained = getattr(_first_import("jax._src.interpreters.mlir"), "contains_unconstrained", None)
    has_open_dim = contains_unconstrained if partly and contains_unconstrained else lambda _: False
    return tuple(isinstance(sharding, free) or bool(has_open_dim(sharding)) for sharding in shardings)


# --------------------------------------------------------------------------------------------------------------------
# Running a module as it stands


def without_shardings(proto: bytes) -> bytes:
    """The same module with every sharding attribute removed."""
    module = wire.HloModuleProto.FromString(proto)
    module.ClearField("spmd_output_sharding")
    module.ClearField("spmd_parameters_shardings")
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("sharding")
    return module.SerializeToString()


@dataclass(frozen=True, slots=True)
class CompiledModule:
    """A compiled HLO module on `num_devices` CPU devices, each of which runs the same local program."""

    executable: Any
    devices: tuple[Any, ...]

    def run(self, arguments: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
        """Outputs [output][device]; `arguments` [parameter][device] are local arrays of the parameters' shapes."""
        for number, copies in enumerate(arguments):
            if len(copies) != len(self.devices):
                raise ExecutionError(
                    f"parameter {number} has {len(copies)} local arrays for {len(self.devices)} devices"
                )
        import jax

        with _wide():
            buffers = [self._put(copies) for copies in arguments]
            try:
                outputs = self.executable.execute_sharded(buffers).disassemble_into_single_device_arrays()
                # The run is asynchronous: what went wrong in it is told here.
                return [[np.asarray(jax.device_get(copy)) for copy in output] for output in outputs]
            except _FATAL as error:
                raise ExecutionError(f"XLA could not run the module: {str(error)[:2000]}") from error

    def _put(self, copies: Sequence[Any]) -> Any:
        # "Replicated" with a different value on each device: the executable only looks at the buffers.
        import jax

        mesh = jax.sharding.Mesh(np.array(self.devices), ("device",))
        replicated = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        arrays = [jax.device_put(copy, device) for copy, device in zip(copies, self.devices, strict=True)]
        return jax.make_array_from_single_device_arrays(arrays[0].shape, replicated, arrays)


def _wide() -> Any:
    import jax

    public = getattr(jax, "enable_x64", None)
    return public(True) if public is not None else _first_import("jax.experimental").enable_x64(True)


def cpu_devices(count: int) -> tuple[Any, ...]:
    """The first `count` CPU devices of this process; ExecutionError where there are fewer."""
    import jax

    try:
        devices = jax.devices("cpu")
    except RuntimeError as error:
        raise ExecutionError("JAX has no CPU backend here", remedy="add cpu to JAX_PLATFORMS") from error
    if len(devices) < count:
        raise ExecutionError(
            f"{count} CPU devices are needed and this process has {len(devices)}",
            remedy=f"set XLA_FLAGS=--xla_force_host_platform_device_count={count} before JAX starts",
        )
    return tuple(devices[:count])


def compile_proto(proto: bytes, num_devices: int = 1, num_replicas: int = 1) -> CompiledModule:
    """Compile a serialized HloModuleProto as it stands for `num_devices` CPU devices; no SPMD pass runs.

    The devices are the partitions of `num_replicas` replicas.  Collectives are the explicit ones of the module.
    Shardings are dropped.  Cached.
    """
    return _compile(without_shardings(proto), num_devices, num_replicas)


@functools.lru_cache(maxsize=512)
def _compile(proto: bytes, num_devices: int, num_replicas: int) -> CompiledModule:
    devices = cpu_devices(num_devices)
    module = hlo_proto_to_stablehlo(proto)
    try:
        executable = devices[0].client.compile_and_load(
            module, _jax().DeviceList(devices), _compile_options(num_replicas, devices)
        )
    except _FATAL as error:
        raise ExecutionError(f"XLA could not compile the module: {str(error)[:2000]}") from error
    return CompiledModule(executable, devices)


def _compile_options(replicas: int, devices: Sequence[Any]) -> Any:
    client = _xla_client()
    options = client.CompileOptions()
    partitions = len(devices) // replicas
    options.num_partitions, options.num_replicas = partitions, replicas
    build = options.executable_build_options
    build.num_partitions, build.num_replicas = partitions, replicas
    # XLA refuses more than one partition without the flag, so it is set and its two passes are disabled.
    build.use_spmd_partitioning = partitions > 1
    build.use_shardy_partitioner = False
    build.debug_options.xla_disable_hlo_passes = _PASSES_OFF
    build.device_assignment = client.DeviceAssignment.create(
        np.array([device.id for device in devices]).reshape(replicas, partitions)
    )
    return options


def run_proto(
    proto: bytes, arguments: Sequence[Sequence[Any]], num_devices: int = 1, num_replicas: int = 1
) -> list[list[np.ndarray]]:
    """Compile and run a module as it stands: outputs [output][device] from `arguments` [parameter][device]."""
    return compile_proto(proto, num_devices, num_replicas).run(arguments)


def is_tracing() -> bool:
    """Is JAX tracing a function around us (`jit`, `grad`, `scan` ...), so that even concrete arrays become traced?"""
    core = _first_import("jax._src.core")
    return not core.trace_state_clean()
