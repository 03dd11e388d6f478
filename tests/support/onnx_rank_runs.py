"""Models of ranks, run by ONNX's reference evaluator: each rank a thread, collectives meet at a barrier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import hlosharding as hs

SECONDS = 60
"""How long a rank waits for the others: a collective that some never reach is an error, no test that hangs."""


class Meeting:
    """Where ranks exchange values: each brings one and takes all, by rank."""

    def __init__(self, count: int) -> None:
        self._barrier = Barrier(count)
        self._brought: list[Any] = [None] * count

    def exchange(self, rank: int, what: str, value: np.ndarray) -> list[np.ndarray]:
        """What all ranks brought; all must be in the same operator."""
        self._brought[rank] = (what, value)
        self._barrier.wait(SECONDS)
        brought = list(self._brought)
        self._barrier.wait(SECONDS)
        assert {name for name, _ in brought} == {what}, brought
        return [value for _, value in brought]

    def leave(self) -> None:
        """The others need not wait: this rank failed."""
        self._barrier.abort()


def _operators(rank: int, meeting: Meeting) -> list[type[OpRun]]:
    """ONNX Runtime's collectives, as its kernels compute them with NCCL."""

    class AllReduce(OpRun):
        op_domain = "com.microsoft"

        def _run(self, value: np.ndarray) -> tuple[np.ndarray]:
            assert value.dtype in (np.float16, np.float32, np.float64)
            return (np.sum(meeting.exchange(rank, "AllReduce", value), axis=0, dtype=value.dtype),)

    class AllGather(OpRun):
        op_domain = "com.microsoft"

        def _run(self, value: np.ndarray, axis: int, group_size: int) -> tuple[np.ndarray]:
            found = meeting.exchange(rank, f"AllGather {axis}", _movable(value))
            assert len(found) == group_size
            return (np.concatenate(found, axis),)

    class AllToAll(OpRun):
        op_domain = "com.microsoft"

        def _run(self, value: np.ndarray, group_size: int) -> tuple[np.ndarray]:
            found = meeting.exchange(rank, "AllToAll", _movable(value))
            assert len(found) == group_size
            return (np.concatenate([np.split(each, group_size)[rank] for each in found]),)

    return [AllReduce, AllGather, AllToAll]


def _movable(value: np.ndarray) -> np.ndarray:
    assert value.dtype in (np.float16, np.float32, np.float64, np.int64, np.bool_)
    return value


def run_together(runs: Sequence[Callable[[Any], list[np.ndarray]]], models: Sequence[Any]) -> list[list[np.ndarray]]:
    """Each rank's outputs; `runs` take an evaluator of the rank's model."""
    meeting = Meeting(len(models))

    def one(rank: int) -> list[np.ndarray]:
        try:
            with np.errstate(all="ignore"):
                return runs[rank](ReferenceEvaluator(models[rank], new_ops=_operators(rank, meeting)))
        except BaseException:
            meeting.leave()
            raise

    with ThreadPoolExecutor(len(models)) as pool:
        futures = [pool.submit(one, rank) for rank in range(len(models))]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise min(errors, key=lambda error: type(error).__name__ == "BrokenBarrierError")
        return [future.result() for future in futures]


def run_ranks(ranks: hs.OnnxRanks, arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Global outputs for global inputs."""
    runs = [
        lambda evaluator, rank=rank: evaluator.run(None, ranks.inputs(rank, arrays))
        for rank in range(len(ranks.models))
    ]
    return ranks.join(run_together(runs, ranks.models))
