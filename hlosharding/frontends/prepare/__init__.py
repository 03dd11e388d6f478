"""What XLA's compile pipeline does to a module before sharding propagation."""

from hlosharding.frontends.prepare.passes import prepare, prepared

__all__ = [
    "prepare",
    "prepared",
]
