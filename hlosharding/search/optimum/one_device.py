"""The program as one device runs all of it: its kernels are those of any part, but for what collectives come between.

Floor: search.  As written a program has tuples on the way, constants twice, and loops that carry what they could make,
at which kernels seem to end; the partitioner leaves none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from hlosharding.compiler import partition
from hlosharding.ir import Instruction, Module, rewrite
from hlosharding.schedule import without_layout_calls

_NAME = "hlosharding_of"
"""The attribute by which an op tells which one of the program it is."""


def run_on_one_device(module: Module) -> tuple[Module, Mapping[str, Sequence[Instruction]]]:
    """The program of one device, and its ops by the name of that of the module which they are: several of what is
    called from several places, none of what is left out, or made anew.

    >>> import hlosharding as hs
    >>> module = hs.load('''HloModule m
    ... f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
    ... ENTRY e { x = f32[4] parameter(0)  y = f32[4] call(x), to_apply=f  ROOT z = f32[4] call(y), to_apply=f }''')
    >>> _, ops = run_on_one_device(module)
    >>> len(ops["n"])
    2
    """
    marked = without_layout_calls(module.clone())
    marked.shardings, marked.mesh, marked.num_partitions = {}, None, 1
    for inst in marked.instructions:
        rewrite.set_attributes(inst, frontend_attributes={**inst.frontend_attributes, _NAME: inst.name})
    local = partition(marked, num_partitions=1).module
    ops = defaultdict[str, list[Instruction]](list)
    for inst in local.instructions:
        ops[inst.frontend_attributes.get(_NAME, "")].append(inst)
    return local, ops
