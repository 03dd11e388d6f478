"""Remember what the algebra answered, on the sharding that was asked about.

Floor: sharding.  A plain `lru_cache` would be wrong: shardings are equal by meaning, yet the answer's spelling follows
the question's.  So answers lie in the first sharding's own `memo`, keyed by the function, the other sharding's `uid`
and the other arguments; they die with it.  Axis names are put back here: no function of the algebra need know of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hlosharding.sharding.hlo_sharding import HloSharding
from hlosharding.sharding.naming import with_mesh

P = ParamSpec("P")
R = TypeVar("R")

_MISSING = object()


def memoised(function: Callable[P, R]) -> Callable[P, R]:
    """Memoise a pure function of one or two parameters annotated `HloSharding`, by spelling; sequences may be lists.

    >>> @memoised
    ... def tiles(sharding: HloSharding, dims: tuple[int, ...]) -> int:
    ...     print("asked")
    ...     return sharding.num_tiles
    >>> tiles(HloSharding.iota_tile((2,)), (0,)), tiles(HloSharding.iota_tile((2,)), [0])
    asked
    (2, 2)
    """
    signature = inspect.signature(function)
    # An annotation is text where a module postpones its evaluation, and a class elsewhere.
    kinds = [str(p.annotation).rsplit(".")[-1].rstrip("'>") for p in signature.parameters.values()]
    look_up = _looking_up(function, *(i for i, kind in enumerate(kinds) if kind == "HloSharding"))

    @wraps(function)
    def remembering(*args: Any, **named: Any) -> Any:
        if named:
            bound = signature.bind(*args, **named)
            bound.apply_defaults()
            args = bound.args
        try:
            return look_up(args)
        except TypeError:
            # To look for lists before would cost all calls without.
            if not any(isinstance(a, list) for a in args):
                raise  # the function's own
            return look_up(tuple(tuple(a) if isinstance(a, list) else a for a in args))

    return remembering


def _looking_up(function: Callable[..., Any], at: int, other: int | None = None) -> Callable[[Any], Any]:
    # It runs millions of times: no loop over the arguments, no call of a sharding's own hash.
    def look_up(args: Any) -> Any:
        if other is None:
            key = function, args[:at], args[at + 1 :]
        else:
            key = function, args[other].uid, args[:at], args[at + 1 : other], args[other + 1 :]
        memo = args[at].memo
        found = memo.get(key, _MISSING)
        if found is _MISSING:
            found = memo[key] = _keep_names(function(*args), args)
        return found

    return look_up


def _keep_names(result: Any, args: Any) -> Any:
    """Where all shardings asked about were named over one mesh, so is the answer, if axes can say it."""
    if not isinstance(result, HloSharding | tuple) or not result:
        return result
    given = [leaf.named_form for arg in args if type(arg) is HloSharding for leaf in arg.leaves]
    first = given[0] if given else None
    if first is None or any(form is None or form.mesh != first.mesh for form in given):
        return result
    if isinstance(result, tuple):
        return tuple(_keep_names(part, args) for part in result)
    return result if result.named_form is not None else with_mesh(result, first.mesh)
