"""Which device holds which tile: an array of device ids, kept as the compiler spells it.

Floor: sharding.  Numbers only; knows no kinds of sharding, no shapes, no axis names.

Two spellings: *iota* (an iota of `reshape_dims`, transposed by `transpose_perm`, reshaped to `dims`) and *explicit*
(every device listed).  Values are interned by spelling; `==` and `hash` go by meaning: both spellings of one array are
equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import count
from threading import RLock
from typing import ClassVar, NamedTuple, NoReturn
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from hlosharding.errors import ShardingError

# ---- how many devices a sharding, a mesh or a program may name: more are refused before anything is listed for each


MOST_DEVICES = 1 << 20
"""More than there are in any machine; what is kept for each of so many still takes megabytes, not gigabytes."""


def count_devices(sizes: Iterable[int]) -> int:
    """How many devices axes or tiles of these sizes are over.  Raises ShardingError for more than can be listed.

    >>> count_devices((2, 4))
    8
    >>> count_devices((1 << 30, 1 << 30))
    Traceback (most recent call last):
    ...
    hlosharding.errors.ShardingError: 1073741824 devices are more than the 1048576 that can be listed
    """
    count = 1
    for size in sizes:  # step by step: the product of a stranger's numbers may be too long to be shown
        count *= size
        check_devices(count)
    return count


def check_devices(count: int) -> None:
    """Raise ShardingError for more devices than can be listed."""
    if count > MOST_DEVICES:
        raise ShardingError(f"{count} devices are more than the {MOST_DEVICES} that can be listed")


Dims = tuple[int, ...]
_uids = count()
_MOST_TILE_DIMS = 64
"""As many as numpy's arrays have."""
MOST_DIMS = _MOST_TILE_DIMS - 1
"""Of an array that is laid out: one more counts the devices that hold the same tile."""

INTERNING = RLock()
"""Held while a value is entered into an intern table: two of one spelling would break equality."""


class IotaTile(NamedTuple):
    """`arange(n).reshape(reshape_dims).transpose(transpose_perm).reshape(dims)`, in canonical form."""

    dims: Dims
    reshape_dims: Dims
    transpose_perm: Dims

    def __str__(self) -> str:
        text = f"[{_join(self.dims)}]<=[{_join(self.reshape_dims)}]"
        return text + f"T({_join(self.transpose_perm)})" if len(self.reshape_dims) > 1 else text


class TileAssignment:
    """An array of device ids, one per tile; immutable, interned by spelling, equal by meaning.

    >>> TileAssignment.from_iota((4, 2), (2, 4), (1, 0))
    TileAssignment('[4,2]<=[2,4]T(1,0)')
    >>> TileAssignment.from_array([[0, 1], [2, 3]]) == TileAssignment.from_iota((2, 2))
    True
    """

    dims: Dims
    iota: IotaTile | None
    num_elements: int
    uid: int
    _interned: ClassVar[WeakValueDictionary[tuple[Dims, ...], TileAssignment]] = WeakValueDictionary()

    @classmethod
    def from_iota(
        cls, dims: Sequence[int], reshape_dims: Sequence[int] | None = None, transpose_perm: Sequence[int] | None = None
    ) -> TileAssignment:
        """The iota spelling; `reshape_dims` default to one dim, `transpose_perm` to no transpose.

        >>> TileAssignment.from_iota((8,), (2, 2, 2), (2, 0, 1))
        TileAssignment('[8]<=[4,2]T(1,0)')
        """
        dims = tuple(map(int, dims))
        given = tuple(map(int, reshape_dims)) if reshape_dims is not None else (math.prod(dims),)
        perm = tuple(map(int, transpose_perm)) if transpose_perm is not None else tuple(range(len(given)))
        if any(d < 1 for d in (*dims, *given)) or not dims:
            raise ShardingError(f"tile counts must be at least 1, got {list(dims)} over {list(given)}")
        if sorted(perm) != list(range(len(given))):
            raise ShardingError(f"{perm} is no permutation of the {len(given)} reshape dims")
        if math.prod(dims) != math.prod(given):
            raise ShardingError(f"{list(dims)} holds {math.prod(dims)} tiles, {list(given)} {math.prod(given)} devices")
        return cls._spelled(dims, *_canonical_iota(given, perm))

    @classmethod
    def from_flat(cls, dims: Sequence[int], devices: Sequence[int]) -> TileAssignment:
        """The explicit spelling, from tile counts and devices in row-major order.

        >>> str(TileAssignment.from_flat((2, 2), (0, 2, 1, 3)))
        '[2,2]0,2,1,3'
        """
        dims, flat = tuple(map(int, dims)), tuple(map(int, devices))
        if math.prod(dims) != len(flat) or not dims or not flat:
            raise ShardingError(f"{list(dims)} needs {math.prod(dims)} devices, got {len(flat)}")
        return cls._spelled(dims, flat)

    @classmethod
    def from_array(cls, array: npt.ArrayLike) -> TileAssignment:
        """The explicit spelling, from a nested list or array of device ids."""
        values = np.asarray(array)
        if values.dtype.kind not in "iu":
            raise ShardingError(f"device ids must be integers, got an array of {values.dtype}")
        return cls.from_flat(values.shape, values.ravel().tolist())

    @classmethod
    def of(cls, tiles: TileAssignment | npt.ArrayLike) -> TileAssignment:
        """`tiles` itself, or the explicit spelling of an array."""
        return tiles if isinstance(tiles, TileAssignment) else cls.from_array(tiles)

    @classmethod
    def _spelled(cls, *spelling: Dims) -> TileAssignment:
        """The one of this spelling: tile counts, and behind them either the rest of an iota or all devices."""
        found = cls._interned.get(spelling)
        if found is not None:
            return found
        with INTERNING:
            # Looked for once more: another thread may have entered it since.
            return cls._interned.get(spelling) or cls._new(*spelling)

    @classmethod
    def _new(cls, dims: Dims, *rest: Dims) -> TileAssignment:
        if len(dims) > _MOST_TILE_DIMS:
            raise ShardingError(f"tiles along {len(dims)} dims, {_MOST_TILE_DIMS} are the most")
        self = object.__new__(cls)
        spelled = {"iota": IotaTile(dims, *rest)} if len(rest) == 2 else {"iota": None, "flat": rest[0]}
        vars(self).update(spelled, dims=dims, num_elements=math.prod(dims), uid=next(_uids))
        cls._interned[(dims, *rest)] = self
        return self

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"TileAssignment is immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        if self.iota is not None:
            return TileAssignment.from_iota, tuple(self.iota)
        return TileAssignment.from_flat, (self.dims, self.flat)

    @cached_property
    def flat(self) -> Dims:
        """Device ids in row-major order."""
        return tuple(self.array.ravel().tolist())

    @cached_property
    def array(self) -> npt.NDArray[np.int64]:
        """Device ids as a read-only array of shape `dims`."""
        found = _numbered(self.iota) if self.iota is not None else np.array(self.flat, np.int64)
        found = found.reshape(self.dims)
        found.setflags(write=False)
        return found

    @property
    def first(self) -> int:
        """The device of tile 0."""
        return 0 if self.iota is not None else self.flat[0]

    @cached_property
    def meaning(self) -> TileAssignment:
        """The one representative of all spellings of this array: iota where one exists."""
        found = find_iota(self.array) if self.iota is None else None
        return self if found is None else TileAssignment._spelled(self.dims, *found)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, TileAssignment):
            return NotImplemented
        return self.dims == other.dims and self.meaning is other.meaning

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        same = self.meaning
        return hash(tuple(same.iota) if same.iota is not None else (same.dims, same.flat))

    def reshape(self, dims: Sequence[int]) -> TileAssignment:
        """The same devices in the same order, under other tile counts; an iota stays an iota.

        >>> TileAssignment.from_iota((4, 2), (2, 4), (1, 0)).reshape((2, 4))
        TileAssignment('[2,4]<=[2,4]T(1,0)')
        """
        dims = tuple(dims)
        if dims == self.dims:
            return self
        if math.prod(dims) != self.num_elements:
            raise ShardingError(f"{self} cannot be reshaped to {list(dims)}: {math.prod(dims)} tiles")
        if self.iota is not None:
            return TileAssignment._spelled(dims, self.iota.reshape_dims, self.iota.transpose_perm)
        return TileAssignment.from_flat(dims, self.flat)

    def transpose(self, perm: Sequence[int]) -> TileAssignment:
        """Dims permuted; an iota stays an iota where XLA's IotaTileAssignment::Transpose finds one.

        >>> TileAssignment.from_iota((2, 4)).transpose((1, 0))
        TileAssignment('[4,2]<=[2,4]T(1,0)')
        """
        perm = tuple(perm)
        if sorted(perm) != list(range(len(self.dims))):
            raise ShardingError(f"{perm} is no permutation of the dims of {self}")
        if _keeps_order(self.dims, perm) and all(self.dims[p] == d for p, d in zip(perm, self.dims, strict=True)):
            return self
        new_dims = tuple(self.dims[p] for p in perm)
        moved = _transpose_iota(self.iota, perm) if self.iota is not None else None
        if moved is not None:
            return TileAssignment._spelled(new_dims, *_canonical_iota(*moved))
        return TileAssignment.from_array(self.array.transpose(perm))

    def __str__(self) -> str:
        return str(self.iota) if self.iota is not None else f"[{_join(self.dims)}]{_join(self.flat)}"

    def __repr__(self) -> str:
        return f"TileAssignment({str(self)!r})"


def _numbered(iota: IotaTile) -> npt.NDArray[np.int64]:
    """The device ids in row-major order.  Raises ShardingError for more than can be listed: arithmetic takes any."""
    check_devices(math.prod(iota.dims))
    grid = np.arange(math.prod(iota.dims), dtype=np.int64).reshape(iota.reshape_dims)
    return grid.transpose(iota.transpose_perm).ravel()


def _join(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def _canonical_iota(dims: Sequence[int], perm: Sequence[int]) -> tuple[Dims, Dims]:
    """XLA's CanonicalizeIotaDims: drop dims of size 1, fuse dims that stay neighbours in order."""
    number = {dim: i for i, dim in enumerate(d for d in range(len(dims)) if dims[d] != 1)}
    order = [number[p] for p in perm if p in number]
    if not order:
        return (1,), (0,)
    sizes = [dims[d] for d in number]
    runs: list[list[int]] = []
    for dim in order:
        if runs and runs[-1][-1] + 1 == dim:
            runs[-1].append(dim)
        else:
            runs.append([dim])
    by_place = sorted(runs)
    place = {run[0]: i for i, run in enumerate(by_place)}
    return tuple(math.prod(sizes[d] for d in run) for run in by_place), tuple(place[run[0]] for run in runs)


def find_iota(array: npt.NDArray[np.int64]) -> tuple[Dims, Dims] | None:
    """Reshape dims and permutation of the iota that lists these numbers in row-major order; None if none does.

    >>> find_iota(np.array([[0, 2, 4], [1, 3, 5]]))
    ((3, 2), (1, 0))
    """
    found = _digits(array.ravel())
    if found is None:
        return None
    listed = np.arange(array.size).reshape(found[0]).transpose(found[1])
    return found if np.array_equal(listed.ravel(), array.ravel()) else None


def _digits(rest: npt.NDArray[np.int64]) -> tuple[Dims, Dims] | None:
    """Reshape dims and permutation, if these numbers are an iota at all (the caller compares)."""
    if rest[0] != 0:
        return None
    digits: list[tuple[int, int]] = []
    while len(rest) > 1:
        stride = int(rest[1])
        # One comparison of arrays instead of a loop over devices, of which there may be 100,000.
        steady = rest == stride * np.arange(len(rest))
        size = len(rest) if steady.all() else int(steady.argmin())
        if size < 2 or len(rest) % size:
            return None
        digits.append((stride, size))
        rest = rest[::size]
    digits.reverse()
    by_stride = sorted(digits, reverse=True)
    expected = 1
    for stride, size in reversed(by_stride):
        if stride != expected:
            return None
        expected *= size
    sizes = tuple(size for _, size in by_stride) or (1,)
    return sizes, tuple(by_stride.index(digit) for digit in digits) or (0,)


def _keeps_order(dims: Dims, perm: Dims) -> bool:
    """True if dims larger than 1 stay in order: the flat array does not change."""
    moved = [p for p in perm if dims[p] != 1]
    return moved == sorted(moved)


def _transpose_iota(iota: IotaTile, perm: Dims) -> tuple[Sequence[int], Sequence[int]] | None:
    """Reshape dims and permutation after the transpose, following XLA's IotaTileAssignment::Transpose."""
    dims, reshape_dims, transpose_perm = iota
    if _keeps_order(dims, perm):
        return reshape_dims, transpose_perm
    # Devices in plain order: the digits are the tile dims themselves.
    if len(reshape_dims) == 1:
        return dims, perm
    large = [d for d in dims if d != 1]
    place = {dim: i for i, dim in enumerate(d for d in range(len(dims)) if dims[d] != 1)}
    if [reshape_dims[p] for p in transpose_perm] == large:
        return reshape_dims, [transpose_perm[place[p]] for p in perm if p in place]
    return _split_digits(large, [place[p] for p in perm if p in place], reshape_dims, transpose_perm)


def _split_digits(
    large: list[int], order: list[int], reshape_dims: Dims, transpose_perm: Dims
) -> tuple[list[int], list[int]] | None:
    """Cut the iota's dims so that each tile dim is made of whole ones, then put the tile dims in `order`.

    XLA cuts into primes and gives up where those straddle a tile dim; the live compiler cuts as needed, and so do we.
    """
    rest = [(p, reshape_dims[p]) for p in reversed(transpose_perm)]
    parts: list[list[int]] = [[] for _ in reshape_dims]
    groups: list[list[tuple[int, int]]] = []
    for target in large:
        group: list[tuple[int, int]] = []
        while target > 1:
            dim, size = rest.pop()
            taken = size if target % size == 0 else target
            # The digit straddles the edge between two tile dims: no iota can say that.
            if size % taken:
                return None
            if taken < size:
                rest.append((dim, size // taken))
            group.append((dim, len(parts[dim])))
            parts[dim].append(taken)
            target //= taken
        groups.append(group)
    first = [sum(map(len, parts[:dim])) for dim in range(len(parts))]
    return [n for part in parts for n in part], [first[dim] + i for at in order for dim, i in groups[at]]


def ceil_div(size: int, parts: int) -> int:
    """The size of the largest of `parts` pieces.

    >>> ceil_div(10, 4)
    3
    """
    return -(-size // parts)


def prime_factors(number: int) -> list[int]:
    """Prime factors in ascending order.

    >>> prime_factors(60)
    [2, 2, 3, 5]
    """
    factors: list[int] = []
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return [*factors, number] if number > 1 else factors


def distinct(tiles: TileAssignment) -> TileAssignment:
    """The assignment itself, if every device occurs once and none is negative; raises ShardingError else.

    >>> distinct(TileAssignment.from_flat((2,), (1, 0)))
    TileAssignment('[2]1,0')
    """
    if tiles.iota is None:
        devices = np.asarray(tiles.flat)
        if devices.min() < 0:
            raise ShardingError(f"device {devices.min()} is negative in {tiles}")
        values, times = np.unique(devices, return_counts=True)
        if times.max() > 1:
            raise ShardingError(f"device {values[times.argmax()]} occurs {times.max()} times in {tiles}")
    return tiles
