"""A machine in a few letters, `h100:16` or `ours.toml`: as a command line and a plan file say it.

Floor: cost.
"""

from __future__ import annotations

from hlosharding.cost.machine import Machine
from hlosharding.cost.machine_file import read_machine
from hlosharding.cost.presets import machine_named, machine_presets
from hlosharding.errors import CostError


def parse_machine(text: str) -> tuple[str, int | None]:
    """A machine as a command line or a plan file says it: a preset and how many devices (None: as many as are needed),
    or the name of a TOML file.  Raises CostError.

    >>> parse_machine("h100:16"), parse_machine("h100"), parse_machine("ours.toml")
    (('h100', 16), ('h100', None), ('ours.toml', None))
    """
    if text.endswith(".toml"):
        return text, None
    name, colon, count = text.partition(":")
    # A stranger's text: Python refuses to read more than 4,300 digits, and nine are more than any machine needs.
    if colon and not (len(count) < 10 and count.isdecimal() and int(count)):
        raise CostError(f"{text!r} is no machine", remedy="write a preset and a number of devices, as h100:16")
    if name not in machine_presets():
        raise CostError(f"no machine {name!r}", remedy=f"there are {', '.join(machine_presets())}")
    return name, int(count) if colon else None


def machine_for(said: tuple[str, int | None], count: int) -> Machine:
    """The machine that `parse_machine` read, for a program on `count` devices.  Raises CostError for one with fewer.

    >>> machine_for(("h100", None), 16).num_devices
    16
    """
    name, devices = said
    if name.endswith(".toml"):
        return read_machine(name)
    if devices is not None and devices < count:
        raise CostError(
            f"machine {name}:{devices} has {devices} devices, {count} are needed",
            remedy=f"write {name}:{count}, or {name} alone",
        )
    return machine_named(name, devices or count)


def preset_text(machine: Machine) -> str | None:
    """A machine as `parse_machine` reads it; None for one that is no preset.

    >>> from hlosharding.cost import machines
    >>> preset_text(machines.h100(16))
    'h100:16'
    """
    name = machine.name.partition("(")[0]
    made = machine_presets().get(name)
    return f"{name}:{machine.num_devices}" if made is not None and made(machine.num_devices) == machine else None
