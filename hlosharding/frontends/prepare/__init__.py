"""What XLA's compile pipeline does to a module before sharding propagation."""

from hlosharding.frontends.prepare.passes import prepare, prepare_edit

__all__ = [
    "prepare",
    "prepare_edit",
]
