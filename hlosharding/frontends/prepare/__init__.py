"""What XLA's compile pipeline does to a module before sharding propagation."""

from hlosharding.frontends.prepare.passes import prepare

__all__ = [
    "prepare",
]
