"""Repeated layers are decided once: a deep program is partitioned without its middle layers, and these are copied."""

from hlosharding.partitioner.repeated_layers.folding import Folded, LayersDiffer, folded
from hlosharding.partitioner.repeated_layers.unfolding import unfold
from hlosharding.partitioner.repeated_layers.written import Written

__all__ = ["Folded", "LayersDiffer", "Written", "folded", "unfold"]
