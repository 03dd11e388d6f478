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
