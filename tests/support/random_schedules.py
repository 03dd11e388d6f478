"""Random schedules for hypothesis: every op there is, ops of users, stage programs; functions, and calls of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count, permutations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule import Known, Op, StageProgram, UserOp, ValueType
from hlosharding.schedule.interpreter import infer_op, interpret
from hlosharding.schedule.local_ops import Add, Concat, Split
from hlosharding.schedule.op import Value, type_of
from hlosharding.schedule.sources import Constant, Number
from hlosharding.schedule.steps import Apply, Call, Free, Function, Functions, Parameter, Step
from hlosharding.schedule.transfers import Send, SubmeshAllGather, SubmeshAllReduce, SubmeshReduce, SubmeshReduceScatter
from hlosharding.schedule.value_type import parse_type
from hlosharding.sharding import HloSharding
from tests.support import mlp_ops

Values = Mapping[str, Value]
HALVES = "{devices=[2,1]<=[2]}"
PARAMETERS = ("f32[4,4] on {0}", "f32[8,4] on {0}", "f32[8,4] on {1}", "s32[4] on {0}", "f32[4,4] on {2,3}",
              f"f32[8,4] on {{2,3}} as {HALVES}", "f32[8,4] on {4,5}",
              *(f"f32[4,4] on {{{n}}}, {share} {n}/2 of micro" for share in ("piece", "sum") for n in range(2)),
              *(f"f32[8,4] on {{{2 * n + 2},{2 * n + 3}}}, sum {n}/2 of micro" for n in range(2)))  # fmt: skip
"""Pieces and terms, too, so that what joins them has something to join."""
SUBMESHES = ((0,), (1,), (2, 3), (4, 5))
MOST_VALUES = 10
"""That an op may choose its operands from: those made last."""


@cache
def ops() -> Mapping[str, Sequence[tuple[Op, int]]]:
    """By name, each with the number of its operands."""
    found: dict[str, list[tuple[Op, int]]] = defaultdict(list)
    for op, operands in (*_built_in(), *_of_users(), *_programs()):
        found[op.name].append((op, operands))
    return found


def _built_in() -> Iterator[tuple[Op, int]]:
    for to in SUBMESHES:
        yield Send(to), 1
        yield SubmeshReduce(to), 2
        yield from ((Number(piece, 2, "micro", to), 0) for piece in range(2))
        yield from ((Constant.of(value, to), 0) for value in (np.int32(2), np.array([3, 1, 0, 5], np.int32)))
    yield from ((Send(to, HloSharding.parse(HALVES)), 1) for to in SUBMESHES[2:])
    yield from ((Split(0, 2, "micro"), 1), (Split(1, 2, "data"), 1), (Add(), 2), (Concat(0), 2), (Concat(1), 2))
    yield from ((SubmeshAllReduce(), 2), (SubmeshReduceScatter(0, "owner"), 2), (SubmeshAllGather(0), 2))


def _of_users() -> Iterator[tuple[Op, int]]:
    """As users write them: `types` hands on what it is given."""
    scalar = Shape.array("s32", ())
    yield UserOp("seven", lambda: ValueType(scalar, (0,)), lambda: np.int32(7)), 0
    yield UserOp("double", lambda x: x, lambda x: 2 * x), 1
    yield UserOp("rank", lambda x: Known(np.array(x.shape.rank), ValueType(scalar, x.devices)), np.ndim), 1
    yield UserOp("summed", lambda x: [x, x], lambda x: [x + 1, x * 3], sums=(1,)), 1
    yield UserOp("shifted", lambda x, _: x, lambda x, y: x + y.sum()), 2
    yield UserOp("times", _times, lambda x, n: np.tile(x, (max(n, 1), 1)), static=(1,)), 2
    yield UserOp("update", lambda w, _: w, lambda w, x: w - x.sum(), donates=(0,)), 2


def _times(x: ValueType, n: Known) -> ValueType:
    """As often as the elements of the second say, which must be a scalar."""
    if x.shape.rank != 2 or n.type.shape != Shape.array("s32", ()):
        raise ScheduleError("no matrix and number")
    return ValueType(x.shape.with_dims((max(int(n.array), 1) * x.shape.dims[0], x.shape.dims[1])), x.devices)


def _programs() -> Iterator[tuple[Op, int]]:
    ops_of_rows = mlp_ops.ops(rows=4, width=4)
    yield from ((ops_of_rows["dense"], 2), (ops_of_rows["dense_grad"], 3), (ops_of_rows["update"], 2))
    w, x = (jax.ShapeDtypeStruct((rows, 4), jnp.float32) for rows in (4, 8))
    yield StageProgram.of("dense_on_two", lambda w, x: jnp.tanh(x @ w), w, x, in_shardings=(None, HALVES)), 2


@st.composite
def schedules(draw: st.DrawFn) -> Functions:
    """Functions of a schedule that the interpreter accepts; the results of @main are all that is there at its end."""
    parameters = draw(st.lists(st.sampled_from(PARAMETERS), min_size=2, max_size=6, unique=True))
    types = {f"p{n}": parse_type(text) for n, text in enumerate(parameters)}
    main = _Draft(draw, types, {}, count())
    for _ in range(draw(st.integers(1, 10))):
        main.extend()
    entry = Function("main", tuple(map(Parameter, types, types.values())), tuple(main.steps), tuple(main.alive))
    return {name: function for name, (function, _) in main.functions.items()} | {"main": entry}


class _Draft:
    """Steps of one function, each of which fits what is there; `functions`: with the names that each overwrites."""

    def __init__(
        self, draw: st.DrawFn, values: Values, functions: dict[str, tuple[Function, set[str]]], numbers: count[int]
    ) -> None:
        self.draw, self.functions, self.numbers = draw, functions, numbers
        self.alive, self.given = dict(values), set(values)
        self.steps: list[Step] = []
        self.overwritten: set[str] = set()

    def extend(self, *, calls: bool = True) -> None:
        """A step more, or none where nothing of the kind that was drawn fits."""
        kinds = ["apply"] * 7 + ["free"] + ["define", "call"] * calls
        getattr(self, f"_{self.draw(st.sampled_from(kinds))}")()

    def _apply(self) -> None:
        names = list(self.alive)[-MOST_VALUES:]
        fitting = {
            name: found
            for name, some in ops().items()
            if (found := [(op, each) for op, n in some for each in permutations(names, n) if self._fits(op, each)])
        }
        op, operands = self.draw(st.sampled_from(fitting[self.draw(st.sampled_from(sorted(fitting)))]))
        made = infer_op(op, [self.alive[name] for name in operands])
        results = {f"v{next(self.numbers)}": value for value in made}
        self._add(Apply(op, operands, tuple(results)), results, {operands[n] for n in op.donates})

    def _fits(self, op: Op, operands: Sequence[str]) -> bool:
        try:
            op.infer([self.alive[name] for name in operands])
        except HloShardingError:
            return False
        return True

    def _free(self) -> None:
        made = sorted(self.alive.keys() - self.given)
        if made:
            name = self.draw(st.sampled_from(made))
            self.steps.append(Free((name,)))
            del self.alive[name]

    def _define(self) -> None:
        """A new function, and its first call: its body reads the caller's values by their names."""
        body = _Draft(self.draw, self.alive, self.functions, self.numbers)
        for _ in range(self.draw(st.integers(1, 4))):
            body.extend(calls=False)
        read = dict.fromkeys(name for step in body.steps if isinstance(step, Apply) for name in step.operands)
        taken, results = tuple(name for name in read if name in self.alive), tuple(body.alive.keys() - body.given)
        if taken and results:
            name = f"f{len(self.functions)}"
            function = Function(name, tuple(map(Parameter, taken)), tuple(body.steps), tuple(sorted(results)))
            self.functions[name] = function, body.overwritten
            self._run(name, taken)

    def _call(self) -> None:
        """A function again, on values of which nobody knows whether they fit."""
        if self.functions:
            name = self.draw(st.sampled_from(sorted(self.functions)))
            parameters = self.functions[name][0].parameters
            if len(parameters) <= len(self.alive):
                self._run(name, tuple(self.draw(st.permutations(list(self.alive)))[: len(parameters)]))

    def _run(self, name: str, operands: tuple[str, ...]) -> None:
        function, overwritten = self.functions[name]
        results = tuple(f"v{next(self.numbers)}" for _ in function.results)
        step = Call(name, operands, results)
        given = tuple(Parameter(each, type_of(self.alive[each])) for each in operands)
        main = Function("main", given, (step,), results)
        try:
            made = interpret({name: function, "main": main}, [self.alive[each] for each in operands])
        except HloShardingError:
            return
        gone = {each for each, parameter in zip(operands, function.parameters, strict=True)
                if parameter.name in overwritten}  # fmt: skip
        self._add(step, dict(zip(results, made, strict=True)), gone)

    def _add(self, step: Step, results: Values, gone: set[str]) -> None:
        self.steps.append(step)
        self.overwritten |= gone
        self.alive = {name: value for name, value in self.alive.items() if name not in gone} | dict(results)
