"""ONNX's own multi-device annotations: read, checked, and written back into a model.

Floor: onnx.  `onnx.checker` accepts devices, axes and configurations that are not there; this file does not.  An
annotation belongs to a use: an input, or an output, of one node.  Every reader of one file may ignore them; ours
executes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, NamedTuple

from hlosharding.errors import AnnotationError, LoadError, ShardingError
from hlosharding.onnx.pipeline_stages import StageDevices, devices_of, shift_devices, stages_of
from hlosharding.onnx.protos import all_nodes, label_of, read_model
from hlosharding.sharding import HloSharding, MeshInfo, convert
from hlosharding.whole_files import read_whole

_FIRST_VERSION = 11
"""Of ONNX's format: the first with annotations."""


class OnnxUse(NamedTuple):
    """How one node wants one tensor to lie."""

    node: str
    """Its name, or operator and first output."""
    tensor: str
    is_output: bool
    sharding: HloSharding
    at: str
    """The node's first output: unlike names of nodes, those of tensors are unique."""


@dataclass(frozen=True)
class OnnxShardings:
    """One configuration of a model, and the uses of tensors that are annotated for it.

    >>> str(OnnxShardings("tp2", 2, (), (), {}, 2))
    'configuration tp2 of 2 devices: 0 uses'
    """

    configuration: str
    num_devices: int
    devices: tuple[str, ...]
    """Names of the devices in order; () where the model gives none."""
    uses: tuple[OnnxUse, ...]
    stages: Mapping[str, int]
    """Per node the stage of a pipeline in which the model would have it, and with it what graphs inside it hold."""
    devices_per_stage: int
    """For how many the shardings are, counted from 0: for all, unless stages have devices of their own."""

    def __str__(self) -> str:
        lines = [f"configuration {self.configuration} of {self.num_devices} devices: {len(self.uses)} uses"]
        lines += [f"  {u.node} {'gives' if u.is_output else 'reads'} {u.tensor} as {u.sharding}" for u in self.uses]
        return "\n".join(lines)


def read_onnx_shardings(source: Any, configuration: str | None = None) -> OnnxShardings | None:
    """The device annotations of a model: a path, the bytes of an `onnx.ModelProto`, or one.

    `configuration`: which of those that the model offers; needed where there are several.  None where there is none.
    Raises LoadError, or AnnotationError for an annotation that contradicts itself, its node or its configuration.

    >>> from onnx import helper, TensorProto
    >>> node = helper.make_node("Relu", ["x"], ["y"])
    >>> spec = node.device_configurations.add(configuration_id="two").sharding_spec.add(tensor_name="y", device=[0, 1])
    >>> _ = spec.sharded_dim.add(axis=0).simple_sharding.add(num_shards=2)
    >>> ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 2])] for name in "xy"]
    >>> model = helper.make_model(helper.make_graph([node], "g", *ports), ir_version=11)
    >>> _ = model.configuration.add(name="two", num_devices=2)
    >>> print(read_onnx_shardings(model))
    configuration two of 2 devices: 1 uses
      Relu(y) gives y as {devices=[2,1]<=[2]}
    """
    return shardings_of(read_model(read_whole(source) if isinstance(source, str | PathLike) else source), configuration)


def shardings_of(model: Any, configuration: str | None) -> OnnxShardings | None:
    """The same of an `onnx.ModelProto` in our hands."""
    chosen = _chosen(model, configuration)
    if chosen is None:
        return None
    ranks, count = dict(_ranks(model)), int(chosen.num_devices)
    entries = [(node, entry) for node in all_nodes(model) for entry in _of(node, chosen.name, model)]
    for node, entry in entries:
        # Before stages count their devices from 0: one that is not there would become one of a stage.
        _check_tensors(node, entry, count)
    stages = stages_of(entries)
    own = StageDevices(entries, stages, count)
    uses = [use for node, entry in entries for use in _uses(node, own.count_from_stage(node, entry), ranks, own.count)]
    return OnnxShardings(chosen.name, count, tuple(chosen.device), tuple(uses), stages, own.count)


def _chosen(model: Any, wanted: str | None) -> Any:
    offered = {c.name: c for c in model.configuration}
    annotated = any(node.device_configurations for node in all_nodes(model))
    if (offered or annotated) and model.ir_version < _FIRST_VERSION:
        raise AnnotationError(
            f"the model has device annotations and says IR version {model.ir_version}",
            remedy=f"annotations came with IR version {_FIRST_VERSION}: set ir_version",
        )
    if len(offered) < len(model.configuration):
        name = next(n for n, count in Counter(c.name for c in model.configuration).items() if count > 1)
        raise AnnotationError(f"the model has two configurations {name!r}", remedy="name each otherwise")
    for one in offered.values():
        if one.num_devices < 1 or len(one.device) not in (0, one.num_devices):
            raise AnnotationError(f"configuration {one.name!r} names {len(one.device)} of {one.num_devices} devices")
    if wanted is not None and wanted not in offered:
        raise AnnotationError(f"no configuration {wanted!r}", remedy=f"the model has {_listed(offered)}")
    if wanted is None and len(offered) > 1:
        raise AnnotationError(f"the model has {_listed(offered)}", remedy="choose one: configuration=...")
    return offered[wanted] if wanted is not None else next(iter(offered.values()), None)


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    return f"configurations {', '.join(found)}" if found else "no configurations"


def _ranks(model: Any) -> Iterator[tuple[str, int]]:
    """Of every tensor whose rank the model tells, or ONNX infers."""
    from onnx import shape_inference

    try:
        graph = shape_inference.infer_shapes(model).graph
    except Exception:  # noqa: BLE001  (bare C++ exceptions; the importer says what is wrong with such a model)
        graph = model.graph
    for tensor in graph.initializer:
        yield tensor.name, len(tensor.dims)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.HasField("tensor_type") and value.type.tensor_type.HasField("shape"):
            yield value.name, len(value.type.tensor_type.shape.dim)


def _of(node: Any, configuration: str, model: Any) -> list[Any]:
    known = {c.name for c in model.configuration}
    names = [entry.configuration_id for entry in node.device_configurations]
    for name in names:
        if name not in known:
            raise AnnotationError(
                f"configuration {name!r} is not there", where=label_of(node), remedy=f"the model has {_listed(known)}"
            )
    if names.count(configuration) > 1:
        raise AnnotationError(f"two annotations for configuration {configuration!r}", where=label_of(node))
    return [entry for entry in node.device_configurations if entry.configuration_id == configuration]


def _check_tensors(node: Any, entry: Any, devices: int) -> None:
    """Raises AnnotationError for tensors that the node has not, and for devices that the configuration has not."""
    seen: set[str] = set()
    for spec in entry.sharding_spec:
        name = spec.tensor_name
        where = f"{label_of(node)}, tensor {name!r}"
        if name not in (*node.input, *node.output) or not name:
            raise AnnotationError("the node neither reads nor gives it", where=where)
        if name in seen:
            raise AnnotationError("is annotated twice", where=where)
        seen.add(name)
        outside = [d for d in devices_of(spec) if not 0 <= d < devices]
        if outside:
            raise AnnotationError(f"device {outside[0]} is none of the {devices}", where=where)


def _uses(node: Any, entry: Any, ranks: Mapping[str, int], devices: int) -> Iterator[OnnxUse]:
    mesh = MeshInfo(("devices",), (devices,))
    for spec in entry.sharding_spec:
        name = spec.tensor_name
        try:
            sharding = convert(spec, to="hlo", mesh=mesh, ndim=ranks.get(name)).without_names()
        except ShardingError as error:
            where = f"{label_of(node)}, tensor {name!r}"
            raise AnnotationError(error.what, where=where, remedy=error.remedy) from error
        yield OnnxUse(label_of(node), name, name in node.output, sharding, next(filter(None, node.output), ""))


def write_onnx_shardings(
    model: Any, shardings: Any, *, configuration: str = "hlosharding", num_devices: int | None = None,
    devices: Iterable[str] = (), stages: Mapping[str, int] | None = None,
) -> Any:  # fmt: skip
    """A copy of an `onnx.ModelProto` whose nodes are annotated, so that whoever reads it lays tensors out alike.

    `shardings`: a `Propagation` of the loaded model, or {tensor: HloSharding, or text}.  Outputs of nodes say how
    their tensors lie; inputs and weights of the graph, which have no node, are annotated where they are read.
    `devices`: names of the devices; `stages`: per node the stage of a pipeline, as `Schedule.stages`.  Shardings, and
    `num_devices`, are of one stage then: of n devices each, stage s has those from s*n on.  Annotations of another
    configuration stay.  Raises AnnotationError for a tensor or a node that is not there, and for what ONNX cannot say
    (manual, unreduced).

    >>> from onnx import helper, TensorProto
    >>> ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 2])] for name in "xy"]
    >>> model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", *ports))
    >>> print(read_onnx_shardings(write_onnx_shardings(model, {"x": "{devices=[2,1]<=[2]}"})))
    configuration hlosharding of 2 devices: 1 uses
      Relu(y) reads x as {devices=[2,1]<=[2]}
    """
    out = read_model(model)
    wanted = dict(_wanted(shardings))
    made = {name for node in all_nodes(out) for name in node.output}
    read = {name for node in all_nodes(out) for name in node.input}
    missing = sorted(set(wanted) - made - read)
    if missing:
        raise AnnotationError(f"no node reads or gives a tensor {missing[0]!r}")
    said = stages or {}
    unknown = sorted(set(said) - {label_of(node) for node in all_nodes(out)})
    if unknown:
        remedy = "inline the model's functions first: onnx.inliner" if out.functions else "name nodes of the model"
        raise AnnotationError(f"no node {unknown[0]!r}, which is to be in a stage", remedy=remedy)
    count = num_devices or max((s.num_devices or 1 for s in wanted.values()), default=1)
    mesh = MeshInfo(("devices",), (count,))
    _forget(out, configuration)
    for node in all_nodes(out):
        # Once each, though a node may read a tensor twice: who reads the file refuses two annotations of one.
        named = [
            n for n in dict.fromkeys((*node.input, *node.output)) if n in wanted and (n in node.output or n not in made)
        ]
        if not named and label_of(node) not in said:
            continue
        entry = node.device_configurations.add(configuration_id=configuration)
        if label_of(node) in said:
            entry.pipeline_stage = said[label_of(node)]
        for name in named:
            entry.sharding_spec.append(shift_devices(_spec(name, wanted[name], mesh), count * entry.pipeline_stage))
    total = count * (1 + max(said.values(), default=0))
    out.configuration.add(name=configuration, num_devices=total, device=list(devices))
    out.ir_version = max(out.ir_version, _FIRST_VERSION)
    return out


def _wanted(shardings: Any) -> Iterator[tuple[str, HloSharding]]:
    if isinstance(shardings, Mapping):
        yield from ((n, HloSharding.parse(s) if isinstance(s, str) else s) for n, s in shardings.items())
        return
    for tensor, instruction in shardings.module.tensors.items():
        sharding = shardings.shardings.get(instruction)
        if sharding is not None and not sharding.is_tuple():
            yield tensor, sharding


def _forget(model: Any, configuration: str) -> None:
    kept = [c for c in model.configuration if c.name != configuration]
    del model.configuration[:]
    model.configuration.extend(kept)
    for node in all_nodes(model):
        others = [e for e in node.device_configurations if e.configuration_id != configuration]
        del node.device_configurations[:]
        node.device_configurations.extend(others)


def _spec(name: str, sharding: HloSharding, mesh: MeshInfo) -> Any:
    try:
        spec = convert(sharding, to="onnx", mesh=mesh)
    except ShardingError as error:
        raise AnnotationError(error.what, where=f"tensor {name!r}", remedy=error.remedy) from error
    spec.tensor_name = name
    return spec


class AppliedShardings:
    """The annotated uses of a model, as its converted graph meets them.

    Raises LoadError for one that it never meets.
    """

    def __init__(self, found: OnnxShardings | None, converted: Any) -> None:
        uses = found.uses if found is not None else ()
        # Nodes go by what they give: the version converter keeps names of tensors, and those of nodes it does not.
        self._by_use = {(use.tensor if use.is_output else use.at, use.tensor): use.sharding for use in uses}
        there = {(o, t) for n in all_nodes(converted) for o in n.output for t in (*n.input, *n.output)}
        lost = next((use for use in self._by_use if use not in there), None)
        if lost is not None:
            raise LoadError(
                f"the node that gives {lost[0]!r} has become several, and its annotation of {lost[1]!r} fits none",
                remedy="export the model for a newer opset",
            )

    def of(self, outputs: Iterable[str], tensor: str) -> HloSharding | None:
        """How the node with these outputs wants the tensor to lie; None: as it comes."""
        if not self._by_use:
            return None
        return next((self._by_use[o, tensor] for o in outputs if (o, tensor) in self._by_use), None)
