"""What the custom calls of our cases compute: computations that take their place before a module runs.

Nobody implements such calls; where they stand, on which tiles and how often is what the cases are about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hlosharding.ir import Module

_REVERSED = "{name} {{\n  a = {shape} parameter(0)\n  ROOT y = {shape} reverse(a), dimensions={{{dims}}}\n}}\n"
_PAIR = """{name}_plus {{
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] add(x, y)
}}

{name} {{
  a = f32[3,5] parameter(0)
  b = f32[3,5] parameter(1)
  product = f32[3,5] multiply(a, b)
  zero = f32[] constant(0)
  total = f32[] reduce(product, zero), dimensions={{0,1}}, to_apply={name}_plus
  line = f32[1] reshape(total)
  ROOT y = (f32[3,5], f32[1]) tuple(product, line)
}}
"""
# Target -> (text of a computation, what else it needs to know).
MEANINGS = {
    "our_own_call": (_REVERSED, "0,1"),
    "our_own_pair": (_PAIR, ""),
    "mirrored_batched_call": (_REVERSED, "1,2"),
}

_CALL = re.compile(rf'= (\S.*?) custom-call\(([^)]*)\), custom_call_target="({"|".join(MEANINGS)})"')


@dataclass
class _Replaced:
    """The computations that the calls of one module became."""

    computations: list[str] = field(default_factory=list)

    def __call__(self, found: re.Match[str]) -> str:
        shape, operands, target = found.groups()
        text, dims = MEANINGS[target]
        name = f"{target}_{len(self.computations)}"
        self.computations.append(text.format(name=name, shape=shape, dims=dims))
        return f"= {shape} call({operands}), to_apply={name}"


def with_calls_written_out(text: str) -> str:
    """HLO text in which every call of `MEANINGS` is one of a computation.

    >>> print(with_calls_written_out('HloModule m\\n\\nENTRY e {\\n  ROOT y = f32[2] add(x, x)\\n}'))
    HloModule m
    <BLANKLINE>
    ENTRY e {
      ROOT y = f32[2] add(x, x)
    }
    """
    replaced = _Replaced()
    text = _CALL.sub(replaced, text)
    head, rest = text.split("\n", 1)
    return "\n".join([head, *(["", *replaced.computations] if replaced.computations else []), rest])


def calls_any(module: Module) -> bool:
    """Does the module call what nobody implements?"""
    return any(i.opcode == "custom-call" and i.custom_call_target in MEANINGS for i in module.instructions)
