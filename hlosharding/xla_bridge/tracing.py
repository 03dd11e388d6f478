"""What JAX does while it traces and lowers: dialects, the mesh around it, marks of ours, and what it keeps beside HLO.

Floor: ground.
"""

from __future__ import annotations

import copy
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.once import once
from hlosharding.xla_bridge.private import FATAL, first_import

_OWN_FOLDER = str(Path(__file__).parents[1]) + os.sep
OWN_PRIMITIVES: list[Any] = []
"""Those that `linear_identity` made: their lowerings are part of this package."""


def is_tracing() -> bool:
    """Is JAX tracing a function around us (`jit`, `grad`, `scan` ...), so that even concrete arrays become traced?"""
    core = first_import("jax._src.core")
    return not core.trace_state_clean()


def outside_traces() -> AbstractContextManager[Any]:
    """What runs in it computes, also while JAX traces a function around us."""
    core = first_import("jax._src.core")
    return core.eval_context()


@contextmanager
def shardy(enabled: bool) -> Iterator[None]:
    """Lower JAX functions in one of its two sharding dialects: Shardy's (True) or GSPMD's (False)."""
    state = _dialect_flag()
    if state is None:
        raise LoadError("this jax has no flag jax_use_shardy_partitioner", remedy="use jax 0.10.2 to 0.12")
    with state(enabled):
        yield


def context_mesh() -> Any:
    """The mesh of the enclosing `with mesh:` or `jax.set_mesh`, or None."""
    resources = getattr(first_import("jax._src.mesh"), "thread_resources", None)
    physical = resources.env.physical_mesh if resources is not None else None
    if physical is not None and not physical.empty:
        return physical
    import jax

    concrete = getattr(first_import("jax._src.mesh"), "get_concrete_mesh", lambda: None)()
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
    except FATAL:
        return False


def _dialect_flag() -> Any:
    return getattr(first_import("jax._src.config"), "use_shardy_partitioner", None)


@contextmanager
def keeping_hlo_shardings() -> Iterator[None]:
    """While it lasts JAX traces and lowers for a reader of HLO shardings: in GSPMD's dialect where it still has it.

    JAX keeps what it traces and lowers meanwhile apart from all else in its caches.
    """
    _keep_partitioning_callbacks()
    with _hlo_shardings_are_read()(True), shardy(False) if has_gspmd_lowering() else nullcontext():
        yield


@contextmanager
def cudnn_elsewhere() -> Iterator[None]:
    """While it lasts JAX traces calls to cuDNN where there is none, as it does where there is one.

    JAX asks for the version of the cuDNN that is loaded, and raises where none is.
    """
    calls = first_import("jax._src.cudnn.fused_attention_stablehlo")
    if getattr(calls, "cuda_versions", _CUDNN) is not None:
        yield
        return
    calls.cuda_versions = _CUDNN
    try:
        yield
    finally:
        calls.cuda_versions = None


_CUDNN = SimpleNamespace(cudnn_get_version=lambda: 91_000)
"""The first version that has all that JAX asks for."""


def keeps_hlo_shardings() -> bool:
    """Does whoever gets what JAX traces now read HLO shardings: our own reader, or XLA's GSPMD?"""
    return bool(_hlo_shardings_are_read().value) or not is_shardy()


@once
def _hlo_shardings_are_read() -> Any:
    import jax

    return jax.make_user_context(False)


@once
def prepare_tracing() -> None:
    """Before the first call: leave this package's files out of the Python stacks that JAX records while it traces.

    And tell JAX of our context: whatever it compiled before it hears of one it compiles anew.
    """
    _ = _hlo_shardings_are_read()
    register = getattr(first_import("jax._src.source_info_util"), "register_exclusion", None)
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

    ad, batching = first_import("jax.interpreters.ad"), first_import("jax.interpreters.batching")
    zero = first_import("jax._src.interpreters.ad").Zero
    primitive = Primitive(name)
    primitive.multiple_results = results > 1
    primitive.def_impl(lambda *xs, **_: list(xs) if results > 1 else xs[0])
    primitive.def_abstract_eval(lambda *xs, **_: tuple(xs) if results > 1 else xs[0])

    def transpose_rule(cotangents: Any, *_: Any, **params: Any) -> Any:
        each = list(cotangents) if results > 1 else [cotangents]
        return each if any(type(ct) is zero for ct in each) else transpose(each, **params)

    ad.deflinear2(primitive, transpose_rule)
    batching.primitive_batchers[primitive] = batch
    first_import("jax.interpreters.mlir").register_lowering(primitive, lower)
    OWN_PRIMITIVES.append(primitive)
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
    ir = first_import("jaxlib.mlir.ir")
    stablehlo = first_import("jaxlib.mlir.dialects.stablehlo")
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


def lowering_with_calls(found: list[dict[str, Any]], attribute: str, rule_attribute: str) -> dict[str, Any]:
    """Options of `Traced.lower`, with which functions under `custom_partitioning` are lowered as marked calls.

    JAX's own lowering is a call that only XLA's partitioner can resolve.  What the user gave with each goes into
    `found`: `partition`, `infer_sharding_from_operands`, `in_tree`, `out_tree`, `static_args`; its place there is the
    call's frontend attribute `attribute`, its rule (in Shardy's form) `rule_attribute`.  Inside a `shard_map` such a
    function is per device already, and is lowered as what it computes.  Traced it was inside `keeping_hlo_shardings`.
    """
    module = first_import("jax._src.custom_partitioning")

    def as_call(context: Any, *values: Any, call: Any, **given: Any) -> Any:
        results = _called(context, values, call)
        made = getattr(results[0], "owner", None)
        is_call = made is not None and made.name == "func.call" and list(made.results) == list(results)
        if is_call and not getattr(context.module_context.axis_context, "manual_axes", None):
            # Inlined, it would be no call any more when it is propagated and partitioned.
            marks = {attribute: str(len(found)), "inlineable": "false"}
            callbacks = given["partition"]
            rule = _rule_text(module, callbacks.rule, [v.type for v in values], [r.type for r in results])
            _mark(made, marks if rule is None else {**marks, rule_attribute: rule})
            infer = callbacks.infer_sharding_from_operands
            found.append({**given, "partition": callbacks.partition, "infer_sharding_from_operands": infer})
        return results

    # A rule of this one lowering's own: JAX's cache of lowerings, which knows nothing of `found`, is not asked.
    parameters = first_import("jax._src.interpreters.mlir").LoweringParameters
    rules = ((module.custom_partitioning_p, as_call), *_kernels_for_one_device())
    return {"_private_parameters": parameters(override_lowering_rules=rules)}


def _kernels_for_one_device() -> list[tuple[Any, Any]]:
    """Pallas kernels are lowered as for one device: for several JAX refuses those of TPUs, since XLA cannot split them.

    Inside a `shard_map` they are for one already.
    """
    # Who has kernels has imported it.
    if "jax._src.pallas.pallas_call" not in sys.modules:
        return []
    kernels = first_import("jax._src.pallas.pallas_call")
    alone = first_import("jax._src.sharding_impls").ShardingContext(num_devices=1)

    def lowered(context: Any, *values: Any, **given: Any) -> Any:
        module = context.module_context
        if not getattr(module.axis_context, "manual_axes", None):
            context = context.replace(module_context=module.replace(axis_context=alone))
        return kernels._pallas_call_lowering(context, *values, **given)

    return [(kernels.pallas_call_p, lowered)]


@once
def _keep_partitioning_callbacks() -> None:
    """From now on functions under `custom_partitioning` are traced with all that their users gave, if we read it.

    Each dialect drops what only the other one reads, or refuses it: all travels with the callback that both keep.
    """
    owner = first_import("jax._src.custom_partitioning").custom_partitioning
    usual_call = owner.__call__

    @functools.wraps(usual_call)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not _hlo_shardings_are_read().value:
            return usual_call(self, *arguments, **keywords)
        with_all = copy.copy(self)
        with_all.partition = _Callbacks(self.partition, self.infer_sharding_from_operands, self.sharding_rule)
        with_all.infer_sharding_from_operands = with_all.propagate_user_sharding = None
        return usual_call(with_all, *arguments, **keywords)

    owner.__call__ = call


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

    function = first_import("jax._src.core").jaxpr_as_fun(call)

    def custom_partitioning(*arguments: Any) -> Any:
        return function(*arguments)

    return list(mlir.lower_fun(jax.jit(custom_partitioning), multiple_results=True)(context, *values))


def _rule_text(module: Any, rule: Any, operands: Sequence[Any], results: Sequence[Any]) -> str | None:
    """The rule as Shardy writes it; None where there is none, or where a function of the mesh makes it."""
    if not isinstance(rule, module.SdyShardingRule):
        return None
    return str(module.sdy_sharding_rule_to_mlir(rule, operands, results))


def _mark(operation: Any, attributes: dict[str, str]) -> None:
    ir = first_import("jaxlib.mlir.ir")
    texts = {name: ir.StringAttr.get(text) for name, text in attributes.items()}
    operation.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(texts)


def without_dead_code(traced: Any) -> Any:
    """A `jax.stages.Traced` without what no result needs; it takes all arguments as before.

    As JAX lowers it, where it does not keep arguments that nothing reads: then it leaves all else in, too.
    """
    partial_eval = first_import("jax._src.interpreters.partial_eval")
    jaxpr, consts = traced.jaxpr.jaxpr, traced.jaxpr.consts
    keeps = [False] * len(jaxpr.constvars) + [True] * len(jaxpr.invars)
    live, is_read, _ = partial_eval.dce_jaxpr_consts(jaxpr, [True] * len(jaxpr.outvars), keeps)
    found = copy.copy(traced)
    closed = type(traced.jaxpr)(live, [value for value, read in zip(consts, is_read, strict=True) if read])
    found._params, found._lojax = traced._params | {"jaxpr": closed}, None
    return found


def forget_lowering(traced: Any) -> None:
    """Let a `jax.stages.Traced` that was lowered with all its arguments go, and the arrays in it, when nobody has it.

    From 0.11 on JAX keeps such a jaxpr by itself: in a weak cache, as the value of the entry that it is the key of.
    """
    cache: Any = getattr(first_import("jax._src.interpreters.pxla"), "_dce_jaxpr", None)
    if hasattr(cache, "evict_weakref"):
        cache.evict_weakref(traced.jaxpr)


def lowering_facts(lowered: Any) -> dict[str, Any]:
    """What JAX keeps beside the HLO of a `Lowered`, as far as this version of JAX tells.

    `num_devices`; `devices`: those that arguments are committed to; `kept`: the flat arguments that became parameters;
    `open_inputs`, `open_outputs`: per parameter and per output, whether JAX lets XLA choose its sharding
    (the module's `allow_spmd_sharding_propagation_to_*`); `mesh`: the first that a NamedSharding of the boundary, a
    constraint or the context brings; `callbacks`: the Python functions that custom calls name by their place in the
    list; `input_memory`, `output_memory`: per parameter and output the kind of memory it lies in, None for the device's
    own; `output_shardings`: per output JAX's sharding, None where it is open.
    """
    lowering = getattr(lowered, "_lowering", None)
    arguments = getattr(lowering, "compile_args", None) or {}
    found = {
        "num_devices": arguments.get("num_devices"),
        "devices": tuple(getattr(lowering, "_device_list", None) or ()) if arguments.get("committed") else None,
        "kept": arguments.get("kept_var_idx"),
        "open_inputs": _open(arguments.get("in_shardings")),
        "open_outputs": _open(arguments.get("out_shardings"), partly=True),
        "mesh": _mesh_among(arguments),
        "input_memory": _memory(arguments.get("in_shardings"), arguments.get("global_in_avals")),
        "output_memory": _memory(arguments.get("out_shardings"), arguments.get("global_out_avals")),
        "output_shardings": _given(arguments.get("out_shardings")),
        "callbacks": tuple(arguments.get("host_callbacks") or ()) or None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _memory(shardings: Sequence[Any] | None, avals: Sequence[Any] | None) -> tuple[str | None, ...] | None:
    shardings = shardings or ()
    pairs = zip(shardings, avals or (None,) * len(shardings), strict=True)
    found = tuple(_memory_kind(sharding, aval) for sharding, aval in pairs)
    return found if any(found) else None


def _memory_kind(sharding: Any, aval: Any) -> str | None:
    """As JAX's lowering: what the sharding says, and of an open one what the function itself put there."""
    import jax

    if isinstance(sharding, type(first_import("jax._src.sharding_impls").UNSPECIFIED)):
        return "pinned_host" if getattr(aval, "memory_space", None) == jax.memory.Space.Host else None
    kind = getattr(sharding, "memory_kind", None)
    return None if kind == "device" else kind


def _given(shardings: Sequence[Any] | None) -> tuple[Any, ...] | None:
    import jax

    if shardings is None:
        return None
    return tuple(s if isinstance(s, jax.sharding.NamedSharding) else None for s in shardings)


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
    free = type(first_import("jax._src.sharding_impls").UNSPECIFIED)
    contains_unconstrained = getattr(first_import("jax._src.interpreters.mlir"), "contains_unconstrained", None)
    has_open_dim = contains_unconstrained if partly and contains_unconstrained else lambda _: False
    return tuple(isinstance(sharding, free) or bool(has_open_dim(sharding)) for sharding in shardings)
