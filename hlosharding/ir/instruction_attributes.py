"""The typed view of an instruction's proto: attributes, decoded at first use and remembered.

Floor: ir.  Knows nothing of the graph.  The proto is shared between clones and copies: replace it (`own_proto`) before
changing it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import numpy as np

from hlosharding import wire
from hlosharding.ir import attributes as attrs
from hlosharding.ir.literal import read_literal

T = TypeVar("T")


class decoded(Generic[T]):
    """A method's answer as an attribute, remembered on the instance under the method's name.

    >>> class Answer:
    ...     @decoded
    ...     def number(self) -> int:
    ...         print("asked")
    ...         return 42
    >>> one = Answer()
    >>> one.number, one.number
    asked
    (42, 42)
    """

    def __init__(self, method: Callable[[Any], T]) -> None:
        self.method, self.name = method, method.__name__
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> decoded[T]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> decoded[T] | T:
        if instance is None:
            return self
        answer = self.method(instance)
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
            if name in _CACHED and isinstance(value, _FROZEN):
                self.__dict__[name] = value

    @decoded
    def dimensions(self) -> tuple[int, ...]:
        """Of broadcast, reduce, transpose, concatenate, reverse, sort, iota, map, and the collectives."""
        # A slice reads a repeated field at once, an iterator element by element.
        return tuple(self.proto.dimensions[:])

    @decoded
    def dot_dims(self) -> attrs.DotDims:
        return attrs.DotDims.read(self.proto.dot_dimension_numbers)

    @decoded
    def ragged_dims(self) -> tuple[attrs.DotDims, tuple[int, ...], tuple[int, ...]]:
        """Of ragged-dot: dot dims, ragged dims of the left operand, group dims of the right one."""
        ragged = self.proto.ragged_dot_dimension_numbers
        dims = attrs.DotDims.read(ragged.dot_dimension_numbers)
        return dims, tuple(ragged.lhs_ragged_dimensions), tuple(ragged.rhs_group_dimensions)

    @decoded
    def window(self) -> tuple[attrs.WindowDim, ...]:
        return tuple(attrs.WindowDim.read(d) for d in self.proto.window.dimensions)

    @decoded
    def conv_dims(self) -> attrs.ConvDims:
        return attrs.ConvDims.read(self.proto.convolution_dimension_numbers)

    @property
    def feature_group_count(self) -> int:
        return max(1, self.proto.feature_group_count)

    @property
    def batch_group_count(self) -> int:
        return max(1, self.proto.batch_group_count)

    @decoded
    def gather_dims(self) -> attrs.GatherDims:
        return attrs.GatherDims.read(self.proto.gather_dimension_numbers)

    @decoded
    def gather_slice_sizes(self) -> tuple[int, ...]:
        return tuple(self.proto.gather_slice_sizes)

    @decoded
    def scatter_dims(self) -> attrs.ScatterDims:
        return attrs.ScatterDims.read(self.proto.scatter_dimension_numbers)

    @decoded
    def slice_dims(self) -> tuple[attrs.SliceDim, ...]:
        return tuple(attrs.SliceDim.read(d) for d in self.proto.slice_dimensions)

    @decoded
    def padding(self) -> tuple[attrs.PaddingDim, ...]:
        return tuple(attrs.PaddingDim.read(d) for d in self.proto.padding_config.dimensions)

    @decoded
    def dynamic_slice_sizes(self) -> tuple[int, ...]:
        return tuple(self.proto.dynamic_slice_sizes)

    @decoded
    def replica_groups(self) -> attrs.Groups:
        """The ids in a collective's groups; () means one group.  What they name: `group_mode`."""
        return attrs.read_replica_groups(self.proto)

    @decoded
    def source_target_pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((p.source, p.target) for p in self.proto.source_target_pairs)

    @decoded
    def literal(self) -> np.ndarray:
        """The value of a constant."""
        return read_literal(self.proto.literal)

    @decoded
    def frontend_attributes(self) -> dict[str, str]:
        return {entry.key: entry.value for entry in self.proto.frontend_attributes.map}

    @decoded
    def parameter_number(self) -> int:
        return int(self.proto.parameter_number)

    @decoded
    def tuple_index(self) -> int:
        return int(self.proto.tuple_index)

    @decoded
    def comparison_direction(self) -> str:
        """EQ, NE, GE, GT, LE or LT."""
        return str(self.proto.comparison_direction)

    @property
    def iota_dimension(self) -> int:
        return self.dimensions[0] if self.dimensions else 0

    @decoded
    def channel_id(self) -> int:
        return int(self.proto.channel_id)

    @decoded
    def use_global_device_ids(self) -> bool:
        """Do the replica groups of a collective name devices, not replicas?"""
        return bool(self.proto.use_global_device_ids)

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

    @decoded
    def fft_length(self) -> tuple[int, ...]:
        return tuple(self.proto.fft_length)

    @property
    def op_name(self) -> str:
        """JAX's name-stack path, or for a parameter the argument's path."""
        return str(self.proto.metadata.op_name)


_FROZEN = (tuple, int, str, dict)
_OFTEN_DECODED = ("dimensions", "dot_dims")
_CACHED = frozenset(k for k, v in vars(InstructionAttributes).items() if isinstance(v, decoded))
