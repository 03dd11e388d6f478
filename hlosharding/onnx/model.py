"""An ONNX model to a Module: read, bound to sizes, traced by JAX node by node.

Floor: onnx.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hlosharding.errors import LoadError
from hlosharding.frontends import TraceableFunction, prepare_edit, with_sharding
from hlosharding.ir import Edit, Module, NameUniquer, rewrite
from hlosharding.onnx.boundary import Ports, describe_array, sizes_that_differ
from hlosharding.onnx.budget import one_budget
from hlosharding.onnx.device_annotations import AppliedShardings, shardings_of
from hlosharding.onnx.functions import with_functions_inlined
from hlosharding.onnx.graph import Decoder, Node, OnnxGraph
from hlosharding.onnx.interpreter import Interpreter
from hlosharding.onnx.marks import TensorMarks, hlo_name, node_scope, set_frames
from hlosharding.onnx.node_errors import DOUBT
from hlosharding.onnx.protos import all_nodes, read_model
from hlosharding.onnx.reading import normal_form
from hlosharding.onnx.values import NeedsInput, unwrap_entry


def from_onnx(
    source: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    path: Path | None = None,
    prepare: bool = True,
    configuration: str | None = None,
) -> Module:
    """A Module of a model (an `onnx.ModelProto`, or the bytes of one).

    `path`: where it was read; `configuration`: by which of its own device annotations values are sharded.  Raises
    LoadError, or AnnotationError.
    """
    with one_budget():
        return _loaded(source, inputs or {}, path, prepare, configuration)


def _loaded(
    source: Any, inputs: Mapping[str, Any], path: Path | None, prepare: bool, configuration: str | None
) -> Module:
    model = with_functions_inlined(read_model(source))
    found = shardings_of(model, configuration)
    tensors = frozenset(name for node in all_nodes(model) for name in node.output)
    converted = normal_form(model, path)
    decoder = Decoder()
    graph = decoder.graph(converted.graph)
    ports = Ports.of(graph.inputs, inputs)
    file = path.name if path is not None else f"{graph.name or 'model'}.onnx"
    program = _BoundModel(graph, decoder, ports, file, tensors, AppliedShardings(found, converted))
    # It ends: each round binds one more input by value, and `with_value` raises where that cannot be or was not enough.
    while True:
        try:
            module = program.module(prepare)
        except NeedsInput as error:
            program = replace(program, ports=program.ports.with_value(error))
        except LoadError as error:
            differ = sizes_that_differ(graph.inputs, ports.bound)
            if error.remedy != DOUBT or not differ:
                raise
            raise LoadError(error.what, where=error.where, remedy=f"give one size: {differ}") from error
        else:
            if found is not None:
                module.num_partitions = max(module.num_partitions, found.devices_per_stage)
                module.stages = found.stages
            return module


@dataclass(frozen=True)
class _BoundModel:
    """A model bound to sizes."""

    graph: OnnxGraph
    decoder: Decoder
    ports: Ports
    file: str
    tensors: frozenset[str]
    """Those that nodes of the file give; converted ones may give others."""
    annotated: AppliedShardings

    def module(self, prepare: bool) -> Module:
        """Raises NeedsInput where an input that is given by shape must be known by value."""
        import jax

        marks = TensorMarks()
        function = TraceableFunction(
            self._function(marks), mesh=None, in_shardings=None, out_shardings=None, options={}
        )
        arguments = self.ports.traced, [describe_array(weight.value) for weight in self.decoder.weights]
        # Without it JAX makes 32 bits of ONNX's indices and doubles, and types are not those that ONNX infers.
        with jax.enable_x64(True):
            module = function.trace(arguments, {}).module(prepare=False)
        if prepare:
            module = prepare_edit(Edit(module))
        module.name = hlo_name(self.graph.name or "model")
        paths = [*self.ports.paths, *(weight.name for weight in self.decoder.weights)]
        _name_parameters(module, paths)
        module.tensors = {name: inst for name, inst in marks.take_off(module).items() if name in self.tensors}
        set_frames(module, self.decoder.nodes, self.file)
        self._set_arguments(module)
        return module

    def _function(self, marks: TensorMarks) -> Any:
        def model(inputs: Any, weights: Any) -> Any:
            traced = dict(zip(self.decoder.weights, weights, strict=True))
            interpreter = Interpreter(traced, node_scope, marks.mark, self._laid_out)
            outputs = interpreter.run(self.graph, self.ports.entries(inputs))
            return tuple(unwrap_entry(entry) for entry in outputs)

        return model

    def _laid_out(self, node: Node, tensor: str, array: Any) -> Any:
        sharding = self.annotated.of(node.outputs, tensor)
        return array if sharding is None else with_sharding(array, sharding)

    def _set_arguments(self, module: Module) -> None:
        """Inputs are the function's arguments; weights come with the module."""
        import jax

        count = len(self.ports.paths)
        weights = zip(module.entry.parameters[count:], self.decoder.weights, strict=True)
        module.weights = {parameter.name: weight.value for parameter, weight in weights}
        signature: Any = module.signature
        module.signature = replace(
            signature,
            in_tree=jax.tree.structure((self.ports.traced, {})),
            in_avals=signature.in_avals[:count],
            names=tuple(self.ports.paths),
            parameters=signature.parameters[:count],
        )


def _name_parameters(module: Module, paths: list[str]) -> None:
    """Parameters have the names of inputs and weights."""
    parameters = module.entry.parameters
    taken = NameUniquer(i.name for i in module.instructions if i.opcode != "parameter" or not i.computation.is_entry)
    for parameter, path in zip(parameters, paths, strict=True):
        rewrite.rename(parameter, taken.fresh(hlo_name(path)))
        rewrite.set_metadata(parameter, op_name=path)
