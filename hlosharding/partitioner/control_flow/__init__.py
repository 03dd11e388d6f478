"""Loops, branches, calls and scans: what crosses the boundary of a computation, and how."""

from hlosharding.partitioner.control_flow.call_boundary import enter_parameter, forms_of

__all__ = [
    "enter_parameter",
    "forms_of",
]
