"""A program: the graph, read from HLO's own proto and written back.

Floor: ir.  The proto each instruction keeps is canonical; graph and side table are written over it, so fields we do not
know survive.
"""

from __future__ import annotations

from typing import Any

from hlosharding import xla_bridge
from hlosharding.ir.graph import ModuleGraph
from hlosharding.ir.serialization import proto_of, read_module


class Module(ModuleGraph):
    """An HLO module.

    >>> import hlosharding as hs
    >>> module = hs.load("HloModule m\\nENTRY e {\\n  ROOT x = f32[4] parameter(0), sharding={devices=[2]<=[2]}\\n}")
    >>> x = module.by_name("x")
    >>> str(x.shape), str(module.sharding(x)), module.entry.root is x
    ('f32[4]', '{devices=[2]<=[2]}', True)
    """

    @staticmethod
    def from_proto(data: Any) -> Module:
        """Read a HloModuleProto, serialized or as a message, which is the module's own from then on.

        Raises ModuleError on bytes that are none.
        """
        return read_module(Module, data)

    def to_hlo_proto(self) -> bytes:
        """The serialized HloModuleProto, shardings included."""
        return proto_of(self).SerializeToString()

    def to_hlo_text(self, *, metadata: bool = False) -> str:
        """HLO text as XLA prints it; `metadata` adds op names and frame tables."""
        text = xla_bridge.hlo_proto_to_text(self.to_hlo_proto(), metadata=metadata)
        head, newline, rest = text.partition("\n")
        if self.num_partitions > 1 and "num_partitions=" not in head:
            head += f", num_partitions={self.num_partitions}"
        if self.num_replicas > 1 and "replica_count=" not in head:
            head += f", replica_count={self.num_replicas}"
        return head + newline + rest

    def to_stablehlo_text(self) -> str:
        """StableHLO text; collectives of a partitioned module stay explicit."""
        return xla_bridge.hlo_proto_to_stablehlo(self.to_hlo_proto())
