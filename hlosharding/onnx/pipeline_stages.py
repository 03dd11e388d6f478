"""Pipeline stages of an ONNX model's nodes, and the devices of each.

Floor: onnx.  A file numbers the devices of all stages together; a program's shardings are those of one stage,
whose devices count from 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hlosharding.errors import AnnotationError
from hlosharding.onnx.protos import label_of, nodes_inside

Entries = Sequence[tuple[Any, Any]]
"""Nodes with what they say of one configuration, those of graphs inside a node behind it."""


def stages_of(entries: Entries) -> dict[str, int]:
    """Per node the stage.  Raises AnnotationError."""
    found: dict[str, int] = {}
    said: dict[str, int] = {}
    for node, entry in entries:
        if not entry.HasField("pipeline_stage"):
            continue
        label, stage = label_of(node), int(entry.pipeline_stage)
        if stage < 0:
            raise AnnotationError(f"pipeline stage {stage}", where=label, remedy="stages count from 0")
        if said.setdefault(label, stage) != stage:
            what = f"two nodes of that name are in pipeline stages {said[label]} and {stage}"
            raise AnnotationError(what, where=label, remedy="name one otherwise")
        # Nodes inside come later: what they say themselves overrules the node that holds them.
        found.update({label_of(inner): stage for inner in (node, *nodes_inside(node))})
    return found


class StageDevices:
    """Which devices a stage has, if not all; a node without a stage is on those of the first.

    Raises AnnotationError where two stages share some of them.
    """

    def __init__(self, entries: Entries, stages: Mapping[str, int], count: int) -> None:
        self._stages = stages
        self._own = self._found(entries, count)
        """Per stage the devices; {} where all stages are on all devices."""
        per_stage, rest = divmod(count, len(set(stages.values())) or 1)
        named = any(entry.sharding_spec for _, entry in entries)
        # A file with stages and no sharding at all has devices for each, as `write_onnx_shardings` counts them.
        self.count = len(next(iter(self._own.values()))) if self._own else count if named or rest else per_stage
        """Of one stage."""

    def _found(self, entries: Entries, count: int) -> dict[int, list[int]]:
        named: defaultdict[int, set[int]] = defaultdict(set)
        for node, entry in entries if self._stages else ():
            named[self._stage(node)].update(d for spec in entry.sharding_spec for d in devices_of(spec))
        own = {stage: sorted(devices) for stage, devices in sorted(named.items()) if devices}
        # Where one stage is on all devices, none has any of its own: the numbers of the file are those of the program.
        if any(len(devices) == count for devices in own.values()):
            return {}
        sizes = {len(devices) for devices in own.values()}
        if len(sizes) > 1 or len({d for devices in own.values() for d in devices}) != sum(sizes) * len(_distinct(own)):
            said = ", ".join(f"stage {stage} is on {devices}" for stage, devices in own.items())
            remedy = "give each stage as many devices of its own, or all of them"
            raise AnnotationError(f"stages share devices, or have unlike numbers: {said[:200]}", remedy=remedy)
        return own

    def _stage(self, node: Any) -> int:
        return self._stages.get(label_of(node), 0)

    def count_from_stage(self, node: Any, entry: Any) -> Any:
        """What a node says, with the devices of its stage counted from 0."""
        own = self._own.get(self._stage(node))
        if own is None:
            return entry
        made = type(entry)()
        made.CopyFrom(entry)
        for spec in made.sharding_spec:
            _renumber(spec, {device: number for number, device in enumerate(own)})
        return made


def shift_devices(spec: Any, first: int) -> Any:
    """The same spec on devices from `first` on."""
    _renumber(spec, {device: first + device for device in devices_of(spec)})
    return spec


def devices_of(spec: Any) -> Iterator[int]:
    """Those that a spec lists, itself or in groups."""
    groups = {entry.key: entry.value for entry in spec.index_to_device_group_map}
    for device in spec.device:
        yield from groups.get(device, (device,))


def _renumber(spec: Any, numbers: Mapping[int, int]) -> None:
    # Keys of groups may be any numbers: made negative, none is taken for a device by its new number.
    keys = {group.key: -1 - n for n, group in enumerate(spec.index_to_device_group_map)}
    spec.device[:] = [keys[device] if device in keys else numbers[device] for device in spec.device]
    for group in spec.index_to_device_group_map:
        group.key = keys[group.key]
        # A group that no shard lists may hold devices of other stages, which have no number here.
        group.value[:] = [numbers.get(device, device) for device in group.value]


def _distinct(own: Mapping[int, list[int]]) -> set[tuple[int, ...]]:
    """Stages on the same devices take turns."""
    return set(map(tuple, own.values()))
