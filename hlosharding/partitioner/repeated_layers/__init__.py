"""Repeated layers are decided once: what a deep program chooses it chooses without its middle layers."""

from hlosharding.partitioner.repeated_layers.folding import Folded, LayersDiffer, folded

__all__ = ["Folded", "LayersDiffer", "folded"]
