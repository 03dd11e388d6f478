"""`hs.write_onnx_ranks`: a model and a plan to one ONNX model for each rank.

Floor: onnx_ranks.  What a node is written as is known to `onnx`, how arrays are cut to the executor.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hlosharding.compiler import Partitioned, partition
from hlosharding.errors import ExecutionError, PlanError
from hlosharding.executor import BoundaryArray, assemble, split
from hlosharding.frontends import load
from hlosharding.ir import Instruction, Module
from hlosharding.onnx_ranks.program import write_program
from hlosharding.plans import PlanFile
from hlosharding.search import apply_plan
from hlosharding.whole_files import writing

_COLLECTIVES = {"onnxruntime"}
"""Whose collectives can be written."""


@dataclass(frozen=True)
class OnnxRanks:
    """A program as one ONNX model for each rank, and how its arrays are cut.

    Each model says in `metadata_props`, as JSON under `hlosharding.inputs` and `hlosharding.outputs`, the global shape
    and the sharding of each array; `hlosharding.rank` is its rank.  `write_onnx_ranks` has an example.
    """

    models: tuple[Any, ...]
    """Per rank an `onnx.ModelProto`; its inputs, outputs and weights are the rank's own parts."""
    cut_inputs: Mapping[str, BoundaryArray]
    """Per input its global shape and its sharding."""
    cut_outputs: Mapping[str, BoundaryArray]

    def inputs(self, rank: int, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """What one rank is given of global arrays, padded with zeros where they do not divide evenly.

        Raises ExecutionError where an input is missing, or has another shape.
        """
        return {name: self._part(rank, name, cut, arrays) for name, cut in self.cut_inputs.items()}

    def _part(self, rank: int, name: str, cut: BoundaryArray, arrays: Mapping[str, Any]) -> np.ndarray:
        if name not in arrays or np.shape(arrays[name]) != cut.shape.dims:
            found = f"has shape {list(np.shape(arrays[name]))}" if name in arrays else "is missing"
            raise ExecutionError(f"input {name!r} {found}, the program takes {cut.shape}")
        return split(np.asarray(arrays[name], cut.shape.dtype), cut.sharding, len(self.models))[rank]

    def join(self, outputs: Sequence[Sequence[Any]]) -> list[np.ndarray]:
        """Global arrays from those of all ranks: per rank its outputs in the model's order.

        Raises ExecutionError where there are others than the models give.
        """
        if [len(each) for each in outputs] != [len(self.cut_outputs)] * len(self.models):
            raise ExecutionError(f"{len(self.models)} ranks with {len(self.cut_outputs)} outputs each are to be joined")
        cuts = self.cut_outputs.values()
        return [
            assemble(list(parts), cut.sharding, cut.shape.dims)
            for parts, cut in zip(zip(*outputs, strict=True), cuts, strict=True)
        ]

    def write(self, folder: str | PathLike[str]) -> None:
        """`rank0.onnx`, `rank1.onnx` ... in a new folder, weights beside them in `rank0.weights` ...: all or nothing.

        Raises HloShardingError where that cannot be, as where the folder is there and holds something.
        """
        import onnx

        place = Path(folder)
        draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}.part")
        with writing(place):
            draft.mkdir(parents=True)
            try:
                for rank, model in enumerate(self.models):
                    # `save_model` moves the bytes of weights out of the model that it is given.
                    copy = type(model)()
                    copy.CopyFrom(model)
                    path, weights = str(draft / f"rank{rank}.onnx"), f"rank{rank}.weights"
                    onnx.save_model(copy, path, save_as_external_data=True, location=weights)
                # A folder that holds something is not replaced: the system refuses it.
                draft.replace(place)
            finally:
                shutil.rmtree(draft, ignore_errors=True)


def write_onnx_ranks(
    model: Any,
    plan: PlanFile | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    collectives: str = "onnxruntime",
) -> OnnxRanks:
    """The program of each device as an ONNX model, with its collectives and its part of the weights.

    `model`: an ONNX model (a path, bytes, an `onnx.ModelProto`), a Module, or what `hs.partition` made of one, which
    is taken as it is.  `plan`: its mesh and annotations; by default those that the model has.  `inputs`: as for
    `hs.load`, where dims are open.  `collectives`: "onnxruntime", the operators AllReduce, AllGather and
    AllToAll of its domain.  Raises PlanError for others, LoadError, AnnotationError, PartitionError, and ModuleError
    for an op that has no form in ONNX, with its place.

    >>> import hlosharding as hs
    >>> from onnx import TensorProto, helper, numpy_helper
    >>> ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8])] for name in "xy"]
    >>> weight = numpy_helper.from_array(np.ones((8, 8), np.float32), "w")
    >>> graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *ports, [weight])
    >>> plan = hs.PlanFile.parse('[mesh]\\nmodel = 2\\n[annotations]\\nw = "P(\\'model\\', None)"')
    >>> ranks = hs.write_onnx_ranks(helper.make_model(graph), plan)
    >>> [node.op_type for node in ranks.models[0].graph.node]
    ['MatMul', 'AllReduce', 'Identity']
    """
    if collectives not in _COLLECTIVES:
        remedy = "take 'onnxruntime': no other runtime says how its collectives are written in a file"
        raise PlanError(f"collectives of {collectives!r} cannot be written", remedy=remedy)
    if isinstance(model, Partitioned):
        return _ranks(model)
    module = model if isinstance(model, Module) else load(model, inputs=inputs)
    return _ranks(partition(module if plan is None else apply_plan(plan, module)))


def _ranks(program: Partitioned) -> OnnxRanks:
    inputs, outputs = program.program.boundary
    source, count = program.whole_program, max(1, program.num_partitions)
    assert source is not None, "a program without one has no boundary"
    names = _input_names(source.entry.parameters)
    cut = dict(zip(names, inputs, strict=True))
    made = dict(zip(_output_names(source.entry.root, names), outputs, strict=True))
    parameters = zip(names, source.entry.parameters, strict=True)
    whole = {name: source.weights[p.name] for name, p in parameters if p.name in source.weights}
    parts = {name: split(value, cut[name].sharding, count) for name, value in whole.items()}
    given = {name: cut[name] for name in names if name not in parts}
    said = {"hlosharding.inputs": _said(given), "hlosharding.outputs": _said(made), "hlosharding.ranks": str(count)}
    models = [
        write_program(
            program.module,
            rank,
            inputs=names,
            outputs=list(made),
            weights={name: part[rank] for name, part in parts.items()},
            metadata={"hlosharding.rank": str(rank), **said},
        )
        for rank in range(count)
    ]
    return OnnxRanks(tuple(models), given, made)


def _said(arrays: Mapping[str, BoundaryArray]) -> str:
    return json.dumps({n: {"shape": a.shape.dims, "sharding": str(a.sharding)} for n, a in arrays.items()})


def _input_names(parameters: Sequence[Instruction]) -> list[str]:
    """What the user calls the arguments, where that tells them apart."""
    paths = [parameter.path for parameter in parameters]
    return paths if len(set(paths)) == len(paths) else [parameter.name for parameter in parameters]


def _output_names(root: Instruction, taken: Sequence[str]) -> list[str]:
    """What the program calls its results; where two are one value, or an input, with a number."""
    values = root.operands if root.opcode == "tuple" else (root,)
    names: list[str] = []
    for number, _ in enumerate(root.shape.leaves):
        name = values[number].name if number < len(values) else root.name
        names.append(name if name not in (*names, *taken) else f"{name}_output_{number}")
    return names
