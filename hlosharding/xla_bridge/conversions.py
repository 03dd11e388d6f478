"""Between HLO text, HLO protos, StableHLO and what JAX lowered or compiled.

Floor: ground.  Formats are asked for here and converted in a child process, because jaxlib ends its process on some
malformed input.  Takes text and protos whose shardings were checked already.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

from hlosharding import wire, xla_process
from hlosharding.errors import LoadError
from hlosharding.xla_bridge.fatal_ops import may_reduce_several, without_fatal_ops
from hlosharding.xla_bridge.private import FATAL, bytecode_of, first_import, hlo, jaxlib
from hlosharding.xla_bridge.shardy_ops import (
    may_have_reshards,
    run_passes,
    state_devices,
    with_constraints_only,
    with_sdy_attributes,
)


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


def hlo_proto_to_sdy(proto: bytes, num_partitions: int = 1) -> str:
    """StableHLO text of an HloModuleProto with Shardy's marks, which become its attributes, ops and meshes."""
    return _convert(f"hlo-proto-to-sdy {num_partitions}", proto).decode()


def hlo_proto_to_local_stablehlo(proto: bytes, num_partitions: int) -> str:
    """StableHLO text of what each of so many devices runs: no shardings, and no attributes of XLA's but the counts."""
    return _convert(f"hlo-proto-to-local-stablehlo {num_partitions}", without_shardings(proto)).decode()


def stablehlo_to_hlo_proto(module: str | bytes) -> bytes:
    """StableHLO text or bytecode, its shardings checked before, as serialized HloModuleProto."""
    return _convert("stablehlo-to-hlo-proto", module.encode() if isinstance(module, str) else module)


def stablehlo_bytecode_to_text(module: bytes) -> str:
    """Text of StableHLO bytecode (plain, or a portable artifact of `jax.export`), without its large constants."""
    return _convert("stablehlo-bytecode-to-text", module).decode()


def shardy_passes(text: str, pipeline: str) -> str:
    """A StableHLO text behind passes of Shardy's, as `builtin.module` holds them: "sdy-propagation-pipeline"."""
    return _convert(f"shardy-passes {pipeline}", text.encode()).decode()


def without_shardings(proto: bytes) -> bytes:
    """The same module with every sharding attribute removed."""
    module = wire.HloModuleProto.FromString(proto)
    module.ClearField("spmd_output_sharding")
    module.ClearField("spmd_parameters_shardings")
    for computation in module.computations:
        for instruction in computation.instructions:
            instruction.ClearField("sharding")
    return module.SerializeToString()


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
    xla_process.bound_memory()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever jaxlib prints
    while (question := xla_process.read_question(sys.stdin.buffer)) is not None:
        kind, number, payload = question
        status, answer = _answer(kind, payload)
        xla_process.write_frame(answers, xla_process.PipeFrame(status, number, answer))


def _answer(question: str, payload: bytes) -> tuple[int, bytes]:
    """0 and the converted bytes, or 1 and what is wrong."""
    kind, *options = question.split()
    what, convert = _CONVERSIONS[kind]
    try:
        return 0, convert(payload, frozenset(options))
    except Exception as error:  # noqa: BLE001  (jaxlib: MLIRError, JaxRuntimeError, ValueError ...)
        return 1, f"{what}: {str(error).strip()[:2000]}".encode()


def _parse_hlo(text: bytes, _: frozenset[str]) -> bytes:
    try:
        return hlo().hlo_module_from_text(text.decode()).as_serialized_hlo_module_proto()
    except FATAL as error:
        # Of a negative size XLA's parser says neither that nor where it stands.
        found = _NEGATIVE_SIZE.search(text) if "was parsing" not in str(error) else None
        if found is None:
            raise
        line, before = text.count(b"\n", 0, found.start()) + 1, text.rfind(b"\n", 0, found.start())
        raise ValueError(
            f"line {line}, column {found.start() - before}: {found[0].decode()} has a negative size"
        ) from error


_NEGATIVE_SIZE = re.compile(rb"\b[a-z]\w*\[[\d,]*+-\d++[-\d,]*+\]")


def _print_hlo(proto: bytes, words: frozenset[str]) -> bytes:
    options = hlo().HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = "metadata" in words
    options.include_layout_in_shapes = "layouts" in words
    return hlo().HloModule.from_serialized_hlo_module_proto(proto).to_string(options).encode()


def _hlo_to_stablehlo(proto: bytes, _: frozenset[str]) -> bytes:
    return jaxlib().mlir.xla_computation_to_mlir_module(hlo().XlaComputation(proto)).encode()


def _hlo_to_sdy(proto: bytes, words: frozenset[str]) -> bytes:
    return str(_changed(_hlo_to_stablehlo(proto, words), with_sdy_attributes, int(*words))).encode()


def _hlo_to_local_stablehlo(proto: bytes, words: frozenset[str]) -> bytes:
    return str(_changed(_hlo_to_stablehlo(proto, words), state_devices, int(*words))).encode()


def _behind_passes(text: bytes, words: frozenset[str]) -> bytes:
    return str(_changed(text, run_passes, *words)).encode()


def _stablehlo_to_hlo(module: bytes, _: frozenset[str]) -> bytes:
    if may_have_reshards(module):
        module = bytecode_of(_changed(module, with_constraints_only))
    if may_reduce_several(module, is_text=not module.startswith(_BYTECODE)):
        parsed = _parsed(module)
        living = without_fatal_ops(parsed)
        module = module if living is parsed else bytecode_of(living)
    # jaxlib reads portable artifacts, too, where all their ops are today's.
    try:
        return _computation(module)
    except FATAL:
        if not module.startswith(_BYTECODE):
            raise
        return _computation(bytecode_of(_parsed(module)))


def _computation(module: bytes) -> bytes:
    found = jaxlib().mlir.mlir_module_to_xla_computation(module, use_tuple_args=False, return_tuple=False)
    return found.as_serialized_hlo_module_proto()


def _bytecode_to_text(module: bytes, _: frozenset[str]) -> bytes:
    # Two digits a byte: the text of a large constant is longer than all that is asked of it.
    limits = {"large_elements_limit": _ELEMENTS_SHOWN, "large_resource_limit": _ELEMENTS_SHOWN}
    return _parsed(module).operation.get_asm(**limits).encode()


def _changed(module: bytes, change: Callable[..., None], *arguments: Any) -> Any:
    """Text or bytecode as an MLIR module, behind a change."""
    parsed = _parsed(module)
    with parsed.context:
        change(parsed, *arguments)
    return parsed


def _parsed(module: bytes) -> Any:
    """Text or bytecode as an MLIR module."""
    mlir = first_import("jax._src.interpreters.mlir")
    ir = first_import("jaxlib.mlir.ir")
    with mlir.make_ir_context() as context:
        if not module.startswith(_BYTECODE):
            return ir.Module.parse(module)
        # A portable artifact parses as plain bytecode, too, but into the versioned dialect: ask for it first.
        try:
            return jaxlib().mlir.deserialize_portable_artifact(module, context)
        except FATAL:
            return ir.Module.parse(module)


_BYTECODE, _ELEMENTS_SHOWN = b"ML\xefR", 16
_CONVERSIONS: dict[str, tuple[str, Callable[[bytes, frozenset[str]], bytes]]] = {
    "hlo-text-to-proto": ("not HLO text", _parse_hlo),
    "hlo-proto-to-text": ("not an HLO module", _print_hlo),
    "hlo-proto-to-stablehlo": ("this HLO has no StableHLO form", _hlo_to_stablehlo),
    "hlo-proto-to-local-stablehlo": ("this HLO has no StableHLO form", _hlo_to_local_stablehlo),
    "hlo-proto-to-sdy": ("this module cannot be written for Shardy", _hlo_to_sdy),
    "shardy-passes": ("Shardy does not take this", _behind_passes),
    "stablehlo-to-hlo-proto": ("not a StableHLO module", _stablehlo_to_hlo),
    "stablehlo-bytecode-to-text": ("not StableHLO bytecode", _bytecode_to_text),
}


def lowered_to_hlo_proto(lowered: Any) -> bytes:
    """Serialized HloModuleProto of a `jax.stages.Lowered`, before any compiler pass."""
    try:
        module = lowered.compiler_ir("stablehlo")
        if module is not None:
            return _computation(bytecode_of(without_fatal_ops(module)))
    # First, for it is a ValueError, one of those.
    except LoadError:
        raise
    except FATAL as error:
        raise LoadError(f"this lowered function has no HLO: {str(error)[:2000]}") from error
    raise LoadError("this lowered function has no HLO", remedy="lower it with jax.jit(f).lower(...)")


def compiled_to_hlo_proto(compiled: Any) -> tuple[bytes, str]:
    """Serialized HloModuleProto of a `jax.stages.Compiled`, optimized as it runs, and the header line of its text."""
    try:
        module = compiled.runtime_executable().hlo_modules()[0]
        return module.as_serialized_hlo_module_proto(), module.to_string().partition("\n")[0]
    except FATAL as error:
        raise LoadError(f"this compiled function shows no HLO: {str(error)[:2000]}") from error
