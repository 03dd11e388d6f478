"""Pricers in several processes: plans whose prices are told from each other go to one of them.

Floor: search.  Messages are pickles: tasks on a worker's standard input, answers and at their end None on its standard
output.  A worker starts anew, by its own module: scripts that search need no guard around their main part.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from hlosharding import python_child
from hlosharding.cost import Machine
from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.search.batch_sizes import BatchSizes
from hlosharding.search.plan_prices import group_by_family
from hlosharding.search.plans import SizedPlan
from hlosharding.search.pricer import Answer, Pricer, Task

_SERVE = __name__, "serve"


class PriceWorkers:
    """So many processes that price.  A context: at its end they are gone.

    Raises ScheduleError where a strategy, or a rule of `custom_partitioning`, cannot be handed to other processes.
    """

    def __init__(
        self, count: int, sizes: BatchSizes, plans: Sequence[SizedPlan], machine: Machine, most: int | None
    ) -> None:
        for size in sorted({each.batch_size for each in plans}):
            with suppress(HloShardingError):  # it will be the worker's answer
                sizes.planner(size)  # a worker has no function to trace
        try:
            self._job = pickle.dumps((sizes, machine, most))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ScheduleError(
                f"the search cannot be handed to other processes: {error}",
                remedy="take jobs=1, or a function of a module",
            ) from error
        self._count = count
        self._workers: list[_Worker] = []
        self._listening: list[Thread] = []

    def __enter__(self) -> PriceWorkers:
        return self

    def __exit__(self, *_: object) -> None:
        # In this order: threads that read end when their workers are dead, and a pipe is closed when nobody reads it.
        for worker in self._workers:
            worker.kill()
        for thread in self._listening:
            thread.join()
        for worker in self._workers:
            worker.close()

    def price(self, tasks: Sequence[Task]) -> Iterator[Answer]:
        """As they come.  Raises HloShardingError where a process dies."""
        shares = _share_out(tasks, self._count)
        while len(self._workers) < len(shares):
            self._workers.append(_Worker(self._job))
        answers = SimpleQueue[Answer | HloShardingError | None]()
        # There may be more workers than shares: a searcher may ask again, for fewer plans.
        for worker, share in zip(self._workers, shares, strict=False):
            # A pipe blocks who reads or writes it: a thread for each, and one queue for all answers.
            self._listening.append(Thread(target=worker.ask, args=(share, answers), daemon=True))
            self._listening[-1].start()
        working = len(shares)
        while working:
            found = answers.get()
            if isinstance(found, HloShardingError):
                raise found
            if found is None:
                working -= 1
            else:
                yield found


def _share_out(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """What each of the workers does: families whole, about as much for all."""
    # Prices of a family are told from each other: parted, they would be others than those of one process.
    families = group_by_family(task.plan for task in tasks)
    shares: list[set[SizedPlan]] = [set() for _ in range(min(count, len(families)))]
    # Large ones first: small ones then even out what is left between the shares.
    for members in sorted(families.values(), key=len, reverse=True):
        min(shares, key=len).update(members)
    # As the tasks come, the least bounds first: else a worker would price what its later ones leave out.
    return [[task for task in tasks if task.plan in share] for share in shares]


class _Worker:
    def __init__(self, job: bytes) -> None:
        self._job = job
        # A file, since nobody reads it as long as the worker runs: a pipe would be full at some time, and stop it.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        # A strategy may be a function of a module of the user's.
        self._process = python_child.start(*_SERVE, python_child.own_path(), self._errors)

    def ask(self, tasks: Sequence[Task], answers: SimpleQueue[Answer | HloShardingError | None]) -> None:
        """Put the answers to the queue, and None at their end; an error where the process dies."""
        questions, told = self._process.stdin, self._process.stdout
        assert questions is not None
        assert told is not None
        try:
            # The program goes there once, ahead of the first tasks, as `serve` reads it.
            questions.write(self._job + pickle.dumps(list(tasks)))
            questions.flush()
            self._job = b""
            answer: Answer | None = pickle.load(told)
            while answer is not None:
                answers.put(answer)
                answer = pickle.load(told)
            answers.put(None)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            answers.put(
                HloShardingError(f"a process that prices plans died: {self._last_words()}", remedy="take jobs=1")
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Once it is dead, and nobody listens."""
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                with suppress(OSError):  # what was still to be written
                    pipe.close()

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._process.returncode}"


def serve() -> None:
    """A worker's loop, until there are no more questions."""
    answers: IO[bytes] = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whoever else prints
    questions = sys.stdin.buffer
    job: Any = pickle.load(questions)
    pricer = Pricer(*job)
    while True:
        try:
            tasks: list[Task] = pickle.load(questions)
        except EOFError:
            return
        for answer in chain(pricer.price(tasks), [None]):
            pickle.dump(answer, answers)
            answers.flush()
