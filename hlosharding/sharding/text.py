"""A sharding as XLA prints it.

Floor: sharding.  Text out; the parser is its mirror.
"""

from __future__ import annotations

from hlosharding.sharding.value import ShardingValue


def print_sharding(sharding: ShardingValue, *, metadata: bool = False) -> str:
    """XLA's text; leaves of a tuple are numbered every fifth."""
    if sharding.kind == "tuple":
        leaves = [print_sharding(e, metadata=metadata) for e in sharding.tuple_elements]
        marked = [f"/*index={i}*/{leaf}" if i and i % 5 == 0 else leaf for i, leaf in enumerate(leaves)]
        return "{" + ", ".join(marked) + "}"
    if sharding.named_form is not None:
        body, separator = sharding.named_form.to_string(), ","
    else:
        body, separator = _device_form(sharding), ""
    if sharding.shard_group is not None:
        body += f" {sharding.shard_group}"
    if metadata and sharding.metadata:
        body += f"{separator} metadata={{{_metadata(sharding)}}}"
    return "{" + body + "}"


def _device_form(sharding: ShardingValue) -> str:
    if sharding.kind == "maximal":
        return f"maximal device={sharding.tiles.first}"
    if sharding.kind != "tiled":
        return sharding.kind
    text = f"devices={sharding.tiles}"
    if sharding.replicate_on_last_tile_dim:
        return text + " last_tile_dim_replicate"
    if sharding.subgroup_types:
        return text + f" last_tile_dims={{{', '.join(sharding.subgroup_types)}}}"
    return text


def _metadata(sharding: ShardingValue) -> str:
    if len(sharding.metadata) == 1 and sharding.named_form is None:
        return str(sharding.metadata[0])
    return ", ".join(f"{{{m}}}" for m in sharding.metadata)
