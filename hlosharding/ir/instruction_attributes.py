"""The typed view of an instruction's proto: attributes, decoded at first use and remembered.

Floor: ir.  Knows nothing of the graph.  The proto is shared between clones and copies: replace it (`own_proto`) before
changing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from hlosharding import wire
from hlosharding.ir import attributes as attrs
from hlosharding.ir.literal import read_literal

T = TypeVar("T")
Dims = tuple[int, ...]


class decoded(Generic[T]):
    """What a function (or method) says of an instance, as an attribute, remembered there.

    >>> class Answer:
    ...     number = decoded(lambda answer: print("asked") or 42)
    >>> one = Answer()
    >>> one.number, one.number
    asked
    (42, 42)
    """

    def __init__(self, read: Callable[[Any], T]) -> None:
        self.read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> decoded[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> decoded[T] | T:
        if instance is None:
            return self
        # Without a `__set__` here the instance's own entry, once made, is found first, and costs no call.
        answer = self.read(instance)
        setattr(instance, self.name, answer)
        return answer


class InstructionAttributes:
    """What an instruction says beyond opcode, shape, operands and callees."""

    proto: Any
    """The HloInstructionProto."""

    def own_proto(self) -> Any:
        """A proto of this instruction alone, to be changed at once; cached attributes are dropped."""
        proto = wire.HloInstructionProto()
        proto.CopyFrom(self.proto)
        self.proto = proto
        self.forget()
        return proto

    def forget(self) -> None:
        """Drop the attributes that were decoded."""
        for name in [k for k in self.__dict__ if k in _CACHED]:
            del self.__dict__[name]

    def share_decoded(self, like: InstructionAttributes) -> None:
        """Take over what another instruction with the same proto has decoded already."""
        known = like.__dict__
        for name in _OFTEN_DECODED:
            if name in known:
                self.__dict__[name] = known[name]

    def know(self, attributes: dict[str, Any]) -> None:
        """Attributes just written into the proto need not be decoded again."""
        for name, value in attributes.items():
            # Not lists and arrays, which their maker may change: those are read from the proto.
            if name in _CACHED and isinstance(value, _FROZEN):
                self.__dict__[name] = value

    # A slice reads a repeated field at once, an iterator element by element.
    dimensions: decoded[Dims] = decoded(lambda i: tuple(i.proto.dimensions[:]))
    """Of broadcast, reduce, transpose, concatenate, reverse, sort, iota, map, and the collectives."""
    dot_dims = decoded(lambda i: attrs.DotDims.read(i.proto.dot_dimension_numbers))

    @decoded
    def ragged_dims(self) -> tuple[attrs.DotDims, Dims, Dims]:
        """Of ragged-dot: dot dims, ragged dims of the left operand, group dims of the right one."""
        ragged = self.proto.ragged_dot_dimension_numbers
        dims = attrs.DotDims.read(ragged.dot_dimension_numbers)
        return dims, tuple(ragged.lhs_ragged_dimensions), tuple(ragged.rhs_group_dimensions)

    window = decoded(lambda i: tuple(map(attrs.WindowDim.read, i.proto.window.dimensions)))
    conv_dims = decoded(lambda i: attrs.ConvDims.read(i.proto.convolution_dimension_numbers))

    @property
    def feature_group_count(self) -> int:
        return max(1, self.proto.feature_group_count)

    @property
    def batch_group_count(self) -> int:
        return max(1, self.proto.batch_group_count)

    gather_dims = decoded(lambda i: attrs.GatherDims.read(i.proto.gather_dimension_numbers))
    gather_slice_sizes: decoded[Dims] = decoded(lambda i: tuple(i.proto.gather_slice_sizes))
    scatter_dims = decoded(lambda i: attrs.ScatterDims.read(i.proto.scatter_dimension_numbers))
    slice_dims = decoded(lambda i: tuple(map(attrs.SliceDim.read, i.proto.slice_dimensions)))
    padding = decoded(lambda i: tuple(map(attrs.PaddingDim.read, i.proto.padding_config.dimensions)))
    dynamic_slice_sizes: decoded[Dims] = decoded(lambda i: tuple(i.proto.dynamic_slice_sizes))
    replica_groups = decoded(lambda i: attrs.read_replica_groups(i.proto))
    """The ids in a collective's groups; () means one group.  What they name: `group_mode`."""
    source_target_pairs: decoded[tuple[tuple[int, int], ...]] = decoded(
        lambda i: tuple((p.source, p.target) for p in i.proto.source_target_pairs)
    )
    literal = decoded(lambda i: read_literal(i.proto.literal))
    """The value of a constant."""
    frontend_attributes: decoded[dict[str, str]] = decoded(
        lambda i: {entry.key: entry.value for entry in i.proto.frontend_attributes.map}
    )
    parameter_number = decoded(lambda i: int(i.proto.parameter_number))
    tuple_index = decoded(lambda i: int(i.proto.tuple_index))
    comparison_direction = decoded(lambda i: str(i.proto.comparison_direction))
    """EQ, NE, GE, GT, LE or LT."""

    @property
    def iota_dimension(self) -> int:
        return self.dimensions[0] if self.dimensions else 0

    channel_id = decoded(lambda i: int(i.proto.channel_id))
    use_global_device_ids = decoded(lambda i: bool(i.proto.use_global_device_ids))
    """Do the replica groups of a collective name devices, not replicas?"""

    @property
    def custom_call_target(self) -> str:
        return str(self.proto.custom_call_target)

    @property
    def opaque(self) -> str:
        """The backend config (of a custom call: its opaque string)."""
        return bytes(self.proto.backend_config).decode("utf-8", "replace")

    @property
    def fft_type(self) -> str:
        return ("FFT", "IFFT", "RFFT", "IRFFT")[self.proto.fft_type]

    fft_length: decoded[Dims] = decoded(lambda i: tuple(i.proto.fft_length))

    @property
    def op_name(self) -> str:
        """JAX's name-stack path, or for a parameter the argument's path."""
        return str(self.proto.metadata.op_name)


_FROZEN = (tuple, int, str, dict)
_OFTEN_DECODED = ("dimensions", "dot_dims")
_CACHED = frozenset(k for k, v in vars(InstructionAttributes).items() if isinstance(v, decoded))
