"""What users say of custom calls: `register_rule`, again, and no more.

Floor: rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from warnings import warn

from hlosharding.errors import RuleError, RuleReplacedWarning
from hlosharding.rules.custom_calls import CostFunction, Rule, UsersCall, known_rules, users_calls
from hlosharding.rules.notation import parse_rule
from hlosharding.rules.twins import Twin


def register_rule(
    target: str,
    rule: Rule | str | None = None,
    *,
    like: Callable[..., Any] | None = None,
    kernel: Callable[..., Any] | None = None,
    reduction_factors: Sequence[str] = (),
    need_replication_factors: Sequence[str] = (),
    permutation_factors: Sequence[str] = (),
    reducer: str = "add",
    cost: CostFunction | None = None,
    **sizes: int,
) -> None:
    """Declare how the dims of a custom call relate: a function of the instruction, text, or a JAX function.

    `target`: the call's; for a Pallas kernel the `name` of its `pallas_call`, or the jitted function around it, or both
    ("gqa/mha_forward").

    `rule`, as text, is that of JAX's `custom_partitioning(sharding_rule=...)`: operands and results as lists of factor
    names, `...` for leading dims, `(a b)` for a dim of two factors (of which `sizes` gives all but one).

    `like`: a function of JAX's own ops that takes arrays like the call's operands and gives arrays like its results.
    The call is split as it would be: the rule is composed of those of its ops at the shapes of a call, and tried on
    small random arrays; a dim whose halves do not make up the whole stays whole (a mean over it divides by its size).
    `kernel`: a function that makes the call.  It must give what `like` gives, and take the pieces, too; on CPU devices
    Pallas needs `interpret=True` for that.  The code of a Pallas kernel is for the shapes that it was traced with: this
    function is what each device calls on its pieces, and without it they are priced and shown, but not run.

    `cost`: what the call costs on one device, whose shapes the instruction has then: a `CallCost`, or Pallas's
    `CostEstimate`.  Without it a call counts the bytes of its operands and results, and the arithmetic of `like`.

    A target that has a rule gets the new one, with a RuleReplacedWarning.  Raises RuleError for text that is no rule; a
    function that does not fit a call is one when the call is met.

    >>> register_rule("doctest_matmul", "... m k, k n -> ... m n", reduction_factors=("k",))
    >>> import jax, hlosharding as hs
    >>> from hlosharding.rules import Nothing, signature_of
    >>> register_rule("doctest_scores", like=lambda q, k: jax.nn.softmax(q @ k.T))
    >>> text = '''HloModule m
    ... ENTRY e { q = f32[64,32] parameter(0)  k = f32[128,32] parameter(1)
    ...   ROOT s = f32[64,128] custom-call(q, k), custom_call_target="doctest_scores" }'''
    >>> found = signature_of(hs.load(text).by_name("s"))
    >>> str(found), [factor.name for factor in found.factors if factor.owes == Nothing()]
    ('a b, c b -> a c', ['a'])
    """
    lists = reduction_factors or need_replication_factors or permutation_factors or sizes
    if (rule is None) == (like is None):
        raise RuleError(
            f"{'no' if rule is None else 'more than one'} rule for {target!r}", remedy="give rule, or like="
        )
    if lists and not isinstance(rule, str):
        raise RuleError(f"the rule of {target!r} is a function and says all by itself", remedy="drop the factor lists")
    if kernel is not None and like is None:
        raise RuleError(f"a kernel for {target!r} with nothing to compare it with", remedy="add like=")
    if isinstance(rule, str):
        rule = parse_rule(
            rule,
            reduction_factors=reduction_factors,
            need_replication_factors=need_replication_factors,
            permutation_factors=permutation_factors,
            reducer=reducer,
            **sizes,
        ).bind
    if like is not None:
        twin = Twin(target, like, kernel)
        rule, cost = twin.signature, cost or twin.cost
    assert rule is not None
    if target in users_calls or target in known_rules:
        warn(f"{target!r} had a rule; the new one holds from now on", RuleReplacedWarning, stacklevel=2)
    users_calls[target] = UsersCall(rule, cost, like is not None, kernel)
    _changes.append(target)


def unregister_rule(target: str) -> None:
    """Forget what `register_rule` said of a target; a rule that this library has for it holds again.

    Raises RuleError where nothing was said.

    >>> register_rule("doctest_no_more", "m -> m")
    >>> unregister_rule("doctest_no_more")
    >>> unregister_rule("doctest_no_more")
    Traceback (most recent call last):
        ...
    hlosharding.errors.RuleError: no rule was registered for 'doctest_no_more'; ...
    """
    if target not in users_calls:
        raise RuleError(f"no rule was registered for {target!r}", remedy="name one that `register_rule` was told")
    del users_calls[target]
    _changes.append(target)


_changes: list[str] = []


def count_changes() -> int:
    """Of users' rules, in this process: a program that was made before one was made by other rules."""
    return len(_changes)
