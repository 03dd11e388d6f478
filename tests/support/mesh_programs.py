"""Small programs for the mesh dialect's propagation, first of all the RFC's own."""

from __future__ import annotations

from hlosharding.frontends import load
from hlosharding.ir import Module
from hlosharding.mesh_propagation import AxisAnnotation, AxisPropagation

ZEROS = "{" + ", ".join(["{" + ", ".join(["{" + ", ".join(["0"] * 32) + "}"] * 4) + "}"] * 2) + "}"
MLP = f"""
  %arg0 = f32[2,4,8] parameter(0)
  %arg1 = f32[8,32] parameter(1)
  %arg2 = f32[32,8] parameter(2)
  %hidden = f32[2,4,32] dot(%arg0, %arg1), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
  %zero = f32[2,4,32] constant({ZEROS})
  %active = f32[2,4,32] maximum(%hidden, %zero)
  ROOT %out = f32[2,4,8] dot(%active, %arg2), lhs_contracting_dims={{2}}, rhs_contracting_dims={{0}}
"""


def program(body: str, regions: str = "") -> Module:
    """A module whose entry computation has these lines."""
    return load(f"HloModule test\n{regions}\nENTRY %main {{\n{body}\n}}\n", format="hlo")


def for_users(value: str, sharding: str, *users: str, required: bool = True) -> AxisAnnotation:
    """`as_result = false`."""
    return AxisAnnotation(value, sharding, required, annotate_for_users=True, users=users)


def as_results(found: AxisPropagation) -> dict[str, str]:
    """How each value is made."""
    return {a.value: str(a.sharding) for a in found.annotations if not a.annotate_for_users}


def as_operands(found: AxisPropagation) -> dict[tuple[str, str], str]:
    """How each user sees each value."""
    return {(a.value, a.users[0]): str(a.sharding) for a in found.annotations if a.annotate_for_users}
