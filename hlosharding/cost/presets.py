"""Presets by name, as a command line or `hs.topology` names them.

Floor: cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isfunction, unwrap

from hlosharding.cost import machines
from hlosharding.cost.machine import Machine
from hlosharding.errors import CostError


def machine_presets() -> Mapping[str, Callable[[int], Machine]]:
    """Every preset by name.

    >>> "h100" in machine_presets(), "near_cube" in machine_presets()
    (True, False)
    """
    # `cpu` stands behind a cache, which by itself is no function.
    own = {name: made for name, made in vars(machines).items() if isfunction(unwrap(made)) and not name.startswith("_")}
    return {name: made for name, made in own.items() if made.__module__ == machines.__name__}


def machine_named(name: str, num_devices: int) -> Machine:
    """The preset of that name with `num_devices` devices; CostError where there is none.

    >>> machine_named("h100", 16).num_nodes
    2
    """
    presets = machine_presets()
    if name not in presets:
        raise CostError(f"no machine {name!r}", remedy=f"there are {', '.join(presets)}")
    return presets[name](num_devices)


def preset_of_kind(device_kind: str) -> Callable[[int], Machine] | None:
    """The preset that fits devices of a kind, as JAX names it; None where there is none.

    >>> preset_of_kind("NVIDIA H100 80GB HBM3") is machines.h100, preset_of_kind("cpu")
    (True, None)
    >>> preset_of_kind("NVIDIA A100-SXM4-40GB") is machines.a100_40gb, preset_of_kind("TPU7x") is machines.tpu_v7
    (True, True)
    """
    kind = device_kind.lower()
    return next((preset for word, preset in _OF_KINDS if word in kind), None)


_OF_KINDS: tuple[tuple[str, Callable[[int], Machine]], ...] = (
    ("h100", machines.h100),
    ("h200", machines.h200),
    ("a100-sxm4-40gb", machines.a100_40gb),
    ("a100", machines.a100),
    ("v100", machines.v100),
    ("gb200", machines.gb200_nvl72),
    ("b200", machines.b200),
    ("v5e", machines.tpu_v5e),
    ("v5 lite", machines.tpu_v5e),
    ("v5", machines.tpu_v5p),
    ("v4", machines.tpu_v4p),
    ("v6", machines.tpu_v6e),
    ("tpu7", machines.tpu_v7),
)
"""By a word of the kind; the first that is in it counts."""
