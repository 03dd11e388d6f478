"""Modules with one thing wrong: a valid one with one attribute, operand or shape of one instruction changed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from hlosharding import wire
from hlosharding.ir import Module

_NUMBERS = (-1, 0, 1, 2, 3, 7, 1 << 40, -(1 << 40))
# Who is meant, not what it says; sharding has tests of its own.
_IDENTITY = frozenset({
    "id", "name", "opcode", "metadata", "sharding", "layout", "called_computation_ids", "operand_ids", "literal",
    "control_predecessor_ids", "frontend_attributes", "backend_config", "precision_config", "custom_call_target",
})  # fmt: skip


def mutated(module: Module, random: Random) -> tuple[bytes, str]:
    """The module as bytes with one change, and what was changed."""
    proto = wire.HloModuleProto.FromString(module.to_hlo_proto())
    entry = next(c for c in proto.computations if c.id == proto.entry_computation_id)
    others = [c for c in proto.computations if c is not entry and c.instructions]
    computation = random.choice(others) if others and random.random() < 0.2 else entry
    inst = random.choice(computation.instructions)
    if random.random() < 0.7:
        inst = next((i for i in entry.instructions if i.name == "op"), inst)
    changes = list(_changes(inst, random)) + list(_graph_changes(inst, computation, proto, random))
    text, change = random.choice(changes)
    change()
    return proto.SerializeToString(), f"%{inst.name} ({inst.opcode}): {text}"


def _graph_changes(inst: Any, computation: Any, proto: Any, random: Random) -> Iterator[tuple[str, Any]]:
    before = []
    for other in computation.instructions:
        if other.id == inst.id:
            break
        before.append(other.id)
    if inst.operand_ids:
        place = random.randrange(len(inst.operand_ids))
        yield f"operand {place} gone", lambda: inst.operand_ids.__delitem__(place)
        yield f"operand {place} twice", lambda: inst.operand_ids.insert(place, inst.operand_ids[place])
        if before:
            yield f"operand {place} is another", lambda: inst.operand_ids.__setitem__(place, random.choice(before))
    if before:
        yield "an operand more", lambda: inst.operand_ids.append(random.choice(before))
    if inst.called_computation_ids:
        place = random.randrange(len(inst.called_computation_ids))
        yield "calls nothing", lambda: inst.called_computation_ids.pop(place)
        others = [c.id for c in proto.computations if c.id < inst.id >> 32]
        if others:
            other = random.choice(others)
            yield f"calls {other}", lambda: inst.called_computation_ids.__setitem__(place, other)


def _changes(message: Any, random: Random, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every field that is set, each with one way to change it."""
    for field, value in message.ListFields():
        if field.name in _IDENTITY:
            continue
        where = f"{path}{field.name}"
        if field.type == field.TYPE_MESSAGE:
            if path == "" and field.name != "shape":
                yield f"{where} cleared", lambda name=field.name: message.ClearField(name)
            if field.is_repeated:
                place = random.randrange(len(value))
                yield f"{where}[{place}] gone", lambda value=value, place=place: value.pop(place)
                yield f"{where}[{place}] again", lambda value=value, place=place: value.add().CopyFrom(value[place])
                yield from _changes(value[place], random, f"{where}[{place}].")
            else:
                yield from _changes(value, random, f"{where}.")
        elif field.type in (field.TYPE_INT32, field.TYPE_INT64):
            yield from _number_changes(message, field, value, where, random)
    unset = [f for f in message.DESCRIPTOR.fields if f.name in _OFTEN_UNSET and f.name not in _names(message)]
    for field in unset:
        number = random.choice(_NUMBERS)
        if field.is_repeated:
            yield f"{path}{field.name} = [{number}]", lambda f=field, n=number: getattr(message, f.name).append(n)
        else:
            yield f"{path}{field.name} = {number}", lambda f=field, n=number: setattr(message, f.name, n)


_OFTEN_UNSET = frozenset({
    "dimensions", "index_vector_dim", "padding_low", "padding_high", "size", "stride", "edge_padding_low",
    "edge_padding_high", "interior_padding", "start", "limit", "tuple_index", "parameter_number", "feature_index",
    "collapsed_slice_dims", "operand_batching_dims", "inserted_window_dims", "input_batching_dims", "k", "num_carries",
    "lhs_batch_dimensions", "rhs_batch_dimensions", "input_batch_dimension", "delta",
})  # fmt: skip


def _names(message: Any) -> frozenset[str]:
    return frozenset(f.name for f, _ in message.ListFields())


def _number_changes(message: Any, field: Any, value: Any, where: str, random: Random) -> Iterator[tuple[str, Any]]:
    number = random.choice(_NUMBERS if field.type == field.TYPE_INT64 else _NUMBERS[:6])
    if not field.is_repeated:
        yield f"{where} = {number}", lambda: setattr(message, field.name, number)
        return
    place = random.randrange(len(value))
    yield f"{where}[{place}] = {number}", lambda: value.__setitem__(place, number)
    yield f"{where}[{place}] gone", lambda: value.pop(place)
    yield f"{where} + [{number}]", lambda: value.append(number)
    yield f"{where} + [{value[place]}]", lambda: value.append(value[place])
