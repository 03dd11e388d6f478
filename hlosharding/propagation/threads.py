"""Which computations a run visits: those of the execution threads asked for.  All others keep what they have.

Floor: propagation.  XLA's HloModule::computations(execution_threads); a thread's computations are called from others by
async ops only.
"""

from __future__ import annotations

from collections.abc import Collection

from hlosharding.errors import PropagationError
from hlosharding.ir import Computation
from hlosharding.propagation.graph import PropagationGraph
from hlosharding.sharding import HloSharding

_MAIN = "main"
_ASYNC = frozenset({"async-start", "async-update", "async-done"})


def thread_of(computation: Computation) -> str:
    """The name of the thread that runs a computation."""
    return computation.proto.execution_thread or _MAIN


def hide(graph: PropagationGraph, threads: Collection[str]) -> dict[int, HloSharding]:
    """Take the computations of all other threads out of the graph; returns their shardings, for `bring_back`.

    No names: all threads.  Raises PropagationError for a name that no computation has.
    """
    known = {thread_of(c) for c in graph.computations}
    unknown = sorted(set(threads) - known)
    if unknown:
        remedy = f"the module has {', '.join(sorted(known))}"
        raise PropagationError(f"no computation runs on execution thread {unknown[0]!r}", remedy=remedy)
    hidden: dict[int, HloSharding] = {}
    for number, computation in enumerate(graph.computations):
        if not threads or thread_of(computation) in threads:
            continue
        for i in graph.order[number]:
            sharding = graph.sharding[i]
            if sharding is not None:
                hidden[i], graph.sharding[i] = sharding, None
        graph.order[number] = []
        graph.left_out.add(number)
    for i, opcode in enumerate(graph.opcode):
        if threads and opcode in _ASYNC and graph.instructions[i].proto.async_execution_thread not in threads:
            graph.foreign_async.add(i)
    return hidden


def bring_back(graph: PropagationGraph, hidden: dict[int, HloSharding]) -> None:
    """Give what was left out the shardings that it had."""
    for i, sharding in hidden.items():
        graph.sharding[i] = sharding
    copy = graph.root_copy
    # A loop that is the root of a hidden entry had no sharding when the copy behind it was made.
    if copy is not None and graph.operands[copy][0] in hidden:
        graph.sharding[copy] = hidden[graph.operands[copy][0]]
