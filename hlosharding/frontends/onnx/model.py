"""An ONNX model to a Module: read, bound to sizes, traced by JAX node by node.

Floor: frontends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hlosharding.frontends.jax import TraceableFunction
from hlosharding.frontends.jax.leaves import is_one_array
from hlosharding.frontends.onnx.boundary import Ports, described
from hlosharding.frontends.onnx.graph import Decoder, Graph
from hlosharding.frontends.onnx.interpreter import Interpreter
from hlosharding.frontends.onnx.marks import TensorMarks, hlo_name, node_scope, set_frames
from hlosharding.frontends.onnx.reading import normal_form, read_model
from hlosharding.frontends.onnx.values import NeedsInput, unwrapped
from hlosharding.frontends.prepare import prepared
from hlosharding.ir import Edit, Module, NameUniquer, rewrite


def from_onnx(
    source: Any, inputs: Mapping[str, Any] | None = None, *, path: Path | None = None, prepare: bool = True
) -> Module:
    """A Module of a model (an `onnx.ModelProto`, or the bytes of one); `path`: where it was read.  Raises LoadError."""
    proto = normal_form(read_model(source), path.parent if path is not None else None)
    decoder = Decoder()
    graph = decoder.graph(proto.graph)
    ports = Ports.of(graph.inputs, inputs or {})
    file = path.name if path is not None else f"{graph.name or 'model'}.onnx"
    while True:
        try:
            return _Program(graph, decoder, ports, file).module(prepare)
        except NeedsInput as error:
            ports = ports.with_value(error)


@dataclass(frozen=True)
class _Program:
    graph: Graph
    decoder: Decoder
    ports: Ports
    file: str

    def module(self, prepare: bool) -> Module:
        import jax

        marks = TensorMarks()
        function = TraceableFunction(
            self._function(marks), mesh=None, in_shardings=None, out_shardings=None, options={}
        )
        arguments = self.ports.traced, [described(w.value) for w in self.decoder.weights]
        with jax.enable_x64(True):
            module = function.trace(arguments, {}).module(prepare=False)
        if prepare:
            module = prepared(Edit(module))
        module.name = hlo_name(self.graph.name or "model")
        module.tensors = marks.take_off(module)
        set_frames(module, self.decoder.nodes, self.file)
        self._name_parameters(module)
        return module

    def _function(self, marks: TensorMarks) -> Any:
        def model(inputs: Any, weights: Any) -> Any:
            traced = dict(zip(self.decoder.weights, weights, strict=True))
            interpreter = Interpreter(traced, node_scope, marks.mark, lambda _node, _name, value: value)
            outputs = interpreter.run(self.graph, self.ports.entries(inputs))
            return tuple(unwrapped(entry) for entry in outputs)

        return model

    def _name_parameters(self, module: Module) -> None:
        """Parameters have the names of inputs and weights; only inputs are the function's arguments."""
        import jax

        paths = [*self.ports.paths, *(w.name for w in self.decoder.weights)]
        taken = NameUniquer(
            i.name for i in module.instructions if i.opcode != "parameter" or not i.computation.is_entry
        )
        for parameter, path in zip(module.entry.parameters, paths, strict=True):
            rewrite.rename(parameter, taken.fresh(hlo_name(path)))
            parameter.proto.metadata.op_name = path
            module.tensors[path] = parameter.name
        module.renumber()
        count = len(self.ports.paths)
        weights = module.entry.parameters[count:]
        module.weights = {p.name: w.value for p, w in zip(weights, self.decoder.weights, strict=True)}
        tree = jax.tree.structure((self.ports.traced, {}), is_leaf=is_one_array)
        signature = module.signature
        module.signature = replace(
            signature,
            in_tree=tree,
            in_avals=signature.in_avals[:count],
            names=tuple(self.ports.paths),
            parameters=signature.parameters[:count],
            num_positional=len(self.ports.traced),
        )
