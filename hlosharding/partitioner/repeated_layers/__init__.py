"""Repeated layers are decided once: what a deep program chooses it chooses without its middle layers."""

from hlosharding.partitioner.repeated_layers.folding import Folded, LayersDiffer, folded
from hlosharding.partitioner.repeated_layers.repeats import alike_in_layers

__all__ = ["Folded", "LayersDiffer", "alike_in_layers", "folded"]
