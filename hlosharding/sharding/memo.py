"""Remember what the algebra answered, on the sharding that was asked about.

Floor: sharding.  A plain `lru_cache` would be wrong: shardings are equal by meaning, yet the answer's spelling follows the
question's.  So answers lie in the first sharding's own `memo`, keyed by the function, the other shardings' `uid` and the
remaining arguments; they die with it.  Axis names are put back here, so that no function of the algebra need know of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hlosharding.sharding.hlo_sharding import HloSharding

P = ParamSpec("P")
R = TypeVar("R")


def memoised(function: Callable[P, R]) -> Callable[P, R]:
    """Memoise a pure function whose arguments hold at least one HloSharding, by spelling; sequences become tuples."""

    @wraps(function)
    def remembering(*args: Any, **named: Any) -> Any:
        owner: HloSharding | None = None
        key: list[Any] = [function]
        for arg in args:
            if type(arg) is HloSharding:
                if owner is None:
                    owner = arg
                else:
                    key.append(arg.uid)
            else:
                key.append(arg)
        if owner is None:
            return function(*args, **named)
        if named:
            key.append(tuple(named.items()))
        return _look_up(owner, tuple(key), function, args, named)

    return remembering


def _look_up(owner: HloSharding, key: tuple[Any, ...], function: Callable[..., Any], args: Any, named: Any) -> Any:
    try:
        found = owner.memo.get(key, _MISSING)
    except TypeError:
        frozen = tuple(tuple(a) if isinstance(a, list | range) else a for a in args)
        return memoised(function)(*frozen, **{k: tuple(v) if isinstance(v, list | range) else v for k, v in named.items()})
    if found is _MISSING:
        found = owner.memo[key] = _keep_names(function(*args, **named), args)
    return found


def _keep_names(result: Any, args: Any) -> Any:
    """Where all shardings asked about were named over one mesh, so is the answer, if axes can say it."""
    if not isinstance(result, HloSharding | tuple) or not result:
        return result
    given = [leaf.named_form for arg in args if type(arg) is HloSharding for leaf in arg.leaves]
    if not given or any(form is None or form.mesh != given[0].mesh for form in given):
        return result
    from hlosharding.sharding.naming import with_mesh

    if isinstance(result, tuple):
        return tuple(_keep_names(part, args) for part in result)
    return result if result.named_form is not None else with_mesh(result, given[0].mesh)


_MISSING = object()
