"""Who takes part in a collective: compared with live XLA, which runs one collective on four CPU devices.

What is expected is read off the run.  Device d holds 1 << d, so a result names the devices that it came from.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from hlosharding import load, xla_bridge
from hlosharding.errors import ExecutionError, HloShardingError, ModuleError
from hlosharding.frontends.hlo import from_hlo_text
from hlosharding.ir import Module, group_mode, verify
from hlosharding.spmd import Devices, collectives, device_groups, devices_of, left_out, permute_pairs

LAYOUTS = {"four partitions": Devices(4), "two of two": Devices(2, replicas=2), "four replicas": Devices(1, replicas=4)}
GROUPS = ("{}", "{{0}}", "{{0},{1}}", "{{1,0}}", "{{2,3},{1,0}}", "{{0,1,2,3}}", "{{0},{1},{2},{3}}")
ADD = "add { a = s32[] parameter(0)  b = s32[] parameter(1)  ROOT c = s32[] add(a, b) }\n"
EXCHANGE = "all-to-all(x), dimensions={0}, channel_id=1"
OPS = {
    "all-reduce": "s32[8] all-reduce(x), to_apply=add",
    "all-gather": "s32[{more}] all-gather(x), dimensions={{0}}",
    "reduce-scatter": "s32[{less}] reduce-scatter(x), dimensions={{0}}, to_apply=add",
    "all-to-all": "s32[8] all-to-all(x), dimensions={{0}}",
}
FLAGS = {
    "no channel": "",
    "channel": ", channel_id=1",
    "global ids": ", channel_id=1, use_global_device_ids=true",
    "global ids without a channel": ", use_global_device_ids=true",
}


def text(op: str) -> str:
    return f"HloModule m\n{ADD}ENTRY main {{ x = s32[8] parameter(0)\n ROOT r = {op} }}"


def program(op: str) -> Module:
    return load(text(op), format="hlo")


def run(module: Module, devices: Devices) -> list[np.ndarray]:
    """What each device has after the collective; ExecutionError where XLA refuses it."""
    values = [np.full(8, 1 << device, np.int32) for device in range(devices.count)]
    return xla_bridge.run_proto(module.to_hlo_proto(), [values], devices.count, devices.replicas)[0]


def origins(value: np.ndarray) -> tuple[int, ...]:
    """Devices that a result came from, in its order (a sum: ascending)."""
    bits = [[d for d in range(8) if int(number) >> d & 1] for number in dict.fromkeys(value.tolist())]
    return tuple(device for row in bits for device in row)


def seen_in_a_run(kind: str, ids: str, devices: Devices) -> tuple[Module, list[tuple[int, ...]]] | None:
    """The module that XLA runs, and for each device those that it hears from; None where XLA refuses.

    The shape of a result depends on the size of the group: XLA takes the one that fits.
    """
    for size in (1, 2, 4):
        with suppress(HloShardingError):
            module = program(OPS[kind].format(more=8 * size, less=8 // size) + ids)
            return module, [origins(value) for value in run(module, devices)]
    return None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("kind", OPS)
def test_groups_as_live_xla_forms_them(kind: str, flags: str, layout: str) -> None:
    devices, runs = LAYOUTS[layout], 0
    if kind == "all-to-all" and "global" in flags:
        pytest.skip("an all-to-all has no such flag")
    for groups in GROUPS:
        seen = seen_in_a_run(kind, f", replica_groups={groups}{FLAGS[flags]}", devices)
        if seen is None:
            continue
        module, heard = seen
        module.num_partitions, module.num_replicas = devices
        verify(module)  # its shape follows from the size of the group
        found = device_groups(module.by_name("r"), devices)
        is_ordered = kind in ("all-gather", "all-to-all")
        for device, members in enumerate(heard):
            [group] = [group for group in found if device in group]
            assert (group if is_ordered else tuple(sorted(group))) == members, (groups, group)
        runs += 1
    assert runs >= 2 or flags == "global ids without a channel"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channel", ["", ", channel_id=1"])
@pytest.mark.parametrize("pairs", ["{{0,0}}", "{{0,1}}", "{{1,0},{0,1}}", "{{0,1},{1,3}}", "{{3,0},{1,2}}", "{}"])
def test_permutes_as_live_xla_runs_them(pairs: str, channel: str, layout: str) -> None:
    devices = LAYOUTS[layout]
    module = program(f"s32[8] collective-permute(x), source_target_pairs={pairs}{channel}")
    inst = module.by_name("r")
    ids, limit = {n for pair in inst.source_target_pairs for n in pair}, devices[0 if channel else 1]
    if limit == 1 and {0, *ids} != {0} and 0 in {t for _, t in inst.source_target_pairs}:
        pytest.skip("XLA waits for ever for one that does not run")
    try:
        values = run(module, devices)
    except ExecutionError:
        with pytest.raises(ModuleError, match=r"collective-permute has (device|replica|partition) \d among its"):
            permute_pairs(inst, devices)
        return
    found = {(source, target) for target, value in enumerate(values) for source in origins(value)}
    assert set(permute_pairs(inst, devices)) == found


def test_modes_in_xlas_words() -> None:
    def mode(op: str) -> str:
        return group_mode(program(op).by_name("r"))

    assert mode("s32[8] all-reduce(x), to_apply=add") == "cross-replica"
    assert mode("s32[8] all-reduce(x), to_apply=add, channel_id=1") == "cross-replica-and-partition"
    assert mode("s32[8] all-reduce-start(x), to_apply=add, channel_id=1") == "cross-replica-and-partition"
    ids = "channel_id=1, use_global_device_ids=true, replica_groups={{0}}"
    assert mode(f"s32[8] all-reduce(x), to_apply=add, {ids}") == "flattened-id"
    assert mode(f"(s32[8], s32[8]) all-gather-start(x), dimensions={{0}}, {ids}") == "flattened-id"
    assert mode("s32[8] collective-broadcast(x), channel_id=1, replica_groups={{0}}") == "cross-partition"
    assert mode("s32[8] collective-permute(x), source_target_pairs={}") == "cross-replica"


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("all-reduce(x), to_apply=add, replica_groups={{0,1}}", r"replica 1 in .*; the program is for 1; at .*global"),
        (f"{EXCHANGE}, replica_groups={{{{0,1,1,2}}}}", "device 1 twice in its replica groups"),
        (f"{EXCHANGE}, replica_groups={{{{0,1,2,9}}}}", "device 9 in its replica groups; the program is for 4"),
    ],
)  # fmt: skip
def test_ids_that_cannot_be(op: str, words: str) -> None:
    inst = from_hlo_text(text(f"s32[8] {op}")).by_name("r")  # `load` refuses some of them
    for ask in (device_groups, left_out):
        with pytest.raises(ModuleError, match=words):
            ask(inst, Devices(4))


def test_a_device_that_nobody_names_is_alone() -> None:
    inst = program("s32[8] all-to-all(x), dimensions={0}, channel_id=1, replica_groups={{2,0}}").by_name("r")
    assert device_groups(inst, Devices(4)) == ((2, 0), (1,), (3,))
    assert left_out(inst, Devices(4)) == (1, 3)


@pytest.mark.parametrize(
    ("header", "op", "devices"),
    [
        (", num_partitions=8", "all-reduce(x), to_apply=add", Devices(8)),
        (", replica_count=2, num_partitions=4", "all-reduce(x), to_apply=add", Devices(4, replicas=2)),
        (", replica_count=4", "all-reduce(x), to_apply=add", Devices(1, replicas=4)),
        ("", "all-reduce(x), to_apply=add", Devices(1)),
        ("", "all-reduce(x), to_apply=add, replica_groups={{0,1,2}}", Devices(1, replicas=3)),
        ("", "all-to-all(x), dimensions={0}, channel_id=1, replica_groups={{0,1},{2,3}}", Devices(4)),
        ("", "all-reduce-start(x), to_apply=add, channel_id=1, use_global_device_ids=true, replica_groups=[2,4]<=[8]",
         Devices(8)),
        ("", "collective-permute(x), channel_id=1, source_target_pairs={{0,5}}", Devices(6)),
    ],
)  # fmt: skip
def test_who_runs_a_program(header: str, op: str, devices: Devices) -> None:
    text = program(f"s32[8] {op}").to_hlo_text().replace("HloModule m", f"HloModule m{header}", 1)
    module = load(text, format="hlo")
    assert devices_of(module) == devices
    assert devices_of(load(module.to_hlo_text(), format="hlo")) == devices


@pytest.mark.parametrize(
    ("partitions", "op", "nbytes"),
    [
        # One replica: every partition is alone, and nothing moves.
        (4, "all-reduce(x), to_apply=add", 0.0),
        (4, "collective-permute(x), source_target_pairs={{0,0}}", 0.0),
        # Replica 0 with all its partitions.
        (4, "all-reduce(x), to_apply=add, channel_id=1, replica_groups={{0}}", 2 * 3 / 4 * 32),
        (4, "all-reduce-start(x), to_apply=add, channel_id=1", 2 * 3 / 4 * 32),
        # Each partition among its two replicas, or each replica among its four partitions.
        ("4, replica_count=2", "all-reduce(x), to_apply=add, replica_groups={{0,1}}", 2 * 1 / 2 * 32),
        ("4, replica_count=2", "collective-permute(x), source_target_pairs={{0,1}}", 32 / 2),
        ("4, replica_count=2", "collective-permute(x), channel_id=1, source_target_pairs={{0,1}}", 32 / 4),
    ],
)  # fmt: skip
def test_bytes_follow_from_who_takes_part(partitions: object, op: str, nbytes: float) -> None:
    header = f"HloModule m, num_partitions={partitions}"
    text = program(f"s32[8] {op}").to_hlo_text().replace("HloModule m", header, 1)
    [found] = collectives(load(text, format="hlo"))
    assert found.bytes_per_device == pytest.approx(nbytes)
    assert found.received.mean() == pytest.approx(nbytes)
