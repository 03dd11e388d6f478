"""Several processes run one program: what each of them brings must be the same array.

Floor: executor.  Knows arrays and devices; nothing of layouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding.errors import ExecutionError


def is_shared(devices: Sequence[Any]) -> bool:
    """Has each of several processes some of the devices?  Else not all of them need call what runs there."""
    import jax

    owners = {device.process_index for device in devices}
    return len(owners) > 1 and len(owners) == jax.process_count()


def is_own(array: Any) -> bool:
    """Is it a process's own array, of which the others have another: numpy's, or of JAX on no particular device?

    Single numbers are left to their givers, as by `jax.jit`.
    """
    import jax

    if isinstance(array, jax.Array):
        return array.ndim > 0 and not array.committed
    return isinstance(array, np.ndarray) and array.ndim > 0


def check_same(arrays: dict[str, Any]) -> None:
    """ExecutionError for the first of the named arrays, each process's own, that is not the same in all processes.

    Every process calls it, with arrays of as many names.
    """
    from jax.experimental import multihost_utils

    digests = np.stack([_digest(array) for array in arrays.values()])
    of_all = np.asarray(multihost_utils.process_allgather(digests))
    for name, by_process in zip(arrays, of_all.swapaxes(0, 1), strict=True):
        others = [n for n, digest in enumerate(by_process) if (digest != by_process[0]).any()]
        if others:
            raise ExecutionError(
                f"{name} is not the same in all processes: process {others[0]} gives another array than process 0",
                remedy="give each process the whole array, or make one of the parts that each has, with"
                " jax.make_array_from_process_local_data",
            )


def _digest(array: Any) -> np.ndarray:
    """128 bits of the type, the shape and the bytes."""
    host = np.ascontiguousarray(array)
    found = hashlib.blake2b(f"{host.dtype} {np.shape(array)}".encode(), digest_size=16)
    # As bytes: arrays of ml_dtypes' types export no buffer.
    found.update(host.reshape(-1).view(np.uint8).data)
    return np.frombuffer(found.digest(), np.uint32)
