"""Shardings from text: XLA's three forms, and everything around them checked.

Floor: sharding.  Stricter than XLA's own parser, which pads short device lists, cuts long ones and ends the process on
others.
"""

from __future__ import annotations

import math
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.metadata import ShardGroup, read_metadata
from hlosharding.sharding.named_text import parse_named
from hlosharding.sharding.scanner import Scanner
from hlosharding.sharding.subgroups import SUBGROUP_TYPES, SubgroupType
from hlosharding.sharding.tile_assignment import Dims, TileAssignment, count_devices
from hlosharding.sharding.value import S

_WHOLE = ("replicated", "manual", "unknown", "unreduced")


def parse_sharding(cls: type[S], text: str) -> S:
    """A leaf or a tuple; raises ShardingParseError with the position of the first thing that cannot stand.

    >>> from hlosharding.sharding import HloSharding
    >>> str(parse_sharding(HloSharding, '{{replicated}, {devices=[2]<=[2] metadata={op_name="a"}}}'))
    '{{replicated}, {devices=[2]<=[2]}}'
    """
    if not isinstance(text, str):
        raise ShardingError(f"a sharding is parsed from text, got {type(text).__name__}")
    scan = Scanner(text)
    result = parse_next(cls, scan)
    if scan.peek():
        scan.fail("text after the end of the sharding")
    return result


def parse_next(cls: type[S], scan: Scanner) -> S:
    """The sharding that starts at the scanner's position; leaves the scanner behind it."""
    scan.expect("{")
    if scan.accept("}"):
        return cls.tuple(())
    if not scan.looking_at("{"):
        return _leaf(cls, scan)
    leaves: list[S] = []
    while True:
        start = scan.skip()
        scan.expect("{", "the comma" if leaves else "")
        if scan.looking_at("{") or scan.looking_at("}"):
            scan.fail("a tuple where a leaf belongs", at=start, remedy="list the leaves flat")
        leaves.append(_leaf(cls, scan))
        if not scan.accept(","):
            scan.expect("}", "the last leaf")
            return cls.tuple(leaves)


def _leaf(cls: type[S], scan: Scanner) -> S:
    """What stands behind the opening brace of a leaf, and its closing brace."""
    start = scan.skip()
    if scan.looking_at("mesh") or scan.looking_at("maximal_mesh"):
        return parse_named(cls, scan)
    parts: dict[str, Any] = {}
    while not scan.accept("}"):
        at = scan.skip()
        if scan.looking_at(","):
            scan.fail("a comma inside a sharding", remedy="words are separated by spaces")
        word = scan.word()
        if not word:
            scan.fail("expected '}'" if scan.peek() else "the sharding never ends")
        _read_part(scan, word, at, parts)
    return _build(cls, scan, start, parts)


def _read_part(scan: Scanner, word: str, at: int, parts: dict[str, Any]) -> None:
    key, value = word, None
    if word in _WHOLE or word == "maximal":
        key, value = "kind", word
    elif word == "device":
        scan.equals(word)
        value = scan.device()
    elif word == "devices":
        value = _tiles(scan, at)
    elif word == "last_tile_dim_replicate":
        key, value = "types", ("replicated",)
    elif word == "last_tile_dims":
        key, value = "types", _types(scan)
    elif word in ("shard_as", "shard_like"):
        key, value = "group", ShardGroup("as" if word == "shard_as" else "like", scan.integer("a group number"))
    elif word == "metadata":
        value = read_metadata(scan)
    else:
        scan.fail(f"unknown word {word!r}", at=at, remedy="see the forms in hlosharding/sharding/README.md")
    if key in parts:
        scan.fail(f"a second {word!r}", at=at)
    parts[key] = value


def _tiles(scan: Scanner, at: int) -> TileAssignment:
    scan.equals("devices")
    start = scan.skip()
    dims = scan.integers("[", "]", "devices=")
    if min(dims) < 1:
        scan.fail(f"tile counts must be at least 1, got {list(dims)}", at=start)
    with scan.failing(start):
        wanted = count_devices(dims)
    if scan.accept("<="):
        return _iota(scan, dims)
    listed = scan.skip()
    devices = scan.open_integers()
    if len(devices) != wanted:
        size = "short" if len(devices) < wanted else "long"
        scan.fail(f"device list too {size}: {list(dims)} needs {wanted} devices, got {len(devices)}", at=listed)
    if min(devices) < 0:
        scan.fail(f"device {min(devices)} is negative", at=listed)
    if len(set(devices)) < wanted:
        scan.fail(f"device {_doubled(devices)} is listed twice", at=listed)
    if wanted == 1:
        scan.fail("a tiling over one device", at=at, remedy=f"write {{maximal device={devices[0]}}} or {{replicated}}")
    with scan.failing(start):
        return TileAssignment.from_flat(dims, devices)


def _doubled(devices: Dims) -> int:
    seen: set[int] = set()
    return next(d for d in devices if d in seen or seen.add(d))


def _iota(scan: Scanner, dims: Dims) -> TileAssignment:
    start = scan.skip()
    reshape = scan.integers("[", "]", "<=")
    perm: Dims | None = None
    if scan.accept("T"):
        perm_at = scan.skip()
        perm = scan.integers("(", ")", "T")
        if sorted(perm) != list(range(len(reshape))):
            scan.fail(f"T{perm} is no permutation of the {len(reshape)} dims of {list(reshape)}", at=perm_at)
    elif len(reshape) > 1:
        scan.fail(f"an iota of {len(reshape)} dims needs a transpose", remedy="add T(...), or write one dim")
    if min(reshape) < 1:
        scan.fail(f"iota dims must be at least 1, got {list(reshape)}", at=start)
    with scan.failing(start):
        devices = count_devices(reshape)
    if devices != math.prod(dims):
        scan.fail(f"{list(dims)} has {math.prod(dims)} tiles, the iota {list(reshape)} {devices} devices", at=start)
    # Of one device, too: XLA's parser refuses only its list form.
    with scan.failing(start):
        return TileAssignment.from_iota(dims, reshape, perm)


def _types(scan: Scanner) -> tuple[SubgroupType, ...]:
    scan.equals("last_tile_dims")
    scan.expect("{", "last_tile_dims=")
    types: list[SubgroupType] = []
    while not scan.accept("}"):
        if types:
            scan.expect(",", repr(types[-1]))
        at = scan.skip()
        word = scan.word()
        if word not in SUBGROUP_TYPES:
            scan.fail(f"{word!r} is no subgroup type", at=at, remedy=f"use one of {', '.join(SUBGROUP_TYPES)}")
        types.append(word)
    return tuple(types)


def _build(cls: type[S], scan: Scanner, start: int, parts: dict[str, Any]) -> S:
    """One leaf of the parts found, which must go together."""
    kind, tiles, types = parts.get("kind"), parts.get("devices"), parts.get("types", ())
    if (kind is None) == (tiles is None):
        scan.fail("a sharding needs one of devices=..., replicated, manual, unknown, unreduced, maximal", at=start)
    if types and tiles is None:
        scan.fail(f"last tile dims without devices=... in a {kind} sharding", at=start)
    if (kind == "maximal") != ("device" in parts):
        scan.fail("'maximal' and 'device=N' go together", at=start)
    if tiles is not None and len(types) > len(tiles.dims):
        scan.fail(f"{len(types)} last tile dims, but {tiles} has {len(tiles.dims)} dims", at=start)
    leaf = _value(cls, parts)
    return leaf.with_shard_group(parts["group"]) if "group" in parts else leaf


def _value(cls: type[S], parts: dict[str, Any]) -> S:
    kind, types, metadata = parts.get("kind"), parts.get("types", ()), parts.get("metadata", ())
    if kind == "maximal":
        return cls.maximal(parts["device"], metadata)
    if kind is not None:
        return cls.from_parts(kind, metadata=metadata)
    if not types:
        return cls.tile(parts["devices"], metadata)
    if types == ("replicated",):
        return cls.partial_tile(parts["devices"], metadata)
    return cls.subgroup(parts["devices"], types, metadata)
