"""Logical axis rules, as Flax and MaxText write them: names of an array's dims become axes of the mesh.

Floor: frontends.  Flax goes through the rules in order and drops what clashes; here a clash is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from hlosharding.errors import AnnotationError

LogicalRules: TypeAlias = Sequence[Sequence[Any]]
"""Pairs of a logical name and what it is split over: a mesh axis, several, or None."""
_Axes: TypeAlias = tuple[str, ...]


def logical_to_mesh_sharding(tree: Any, mesh: Any, rules: LogicalRules) -> Any:
    """A pytree of `PartitionSpec`s over logical names (`nn.get_partition_spec(variables)`) as `NamedSharding`s.

    As Flax's function of that name, with rules as for `nn.logical_axis_rules` and in MaxText's `logical_axis_rules`:
    `("embed", "fsdp")`, `("batch", ("data", "fsdp"))`, `("norm", None)`.  A name without a rule is not split, as in
    Flax.  The order of the rules says nothing: where two of them give one name two answers, or claim one mesh axis for
    two dims of an array, an AnnotationError names both, and the array.  Axes of size 1 split nothing, and clash with
    nothing.  An axis that the mesh has not is an error, too.

    >>> from jax.sharding import AbstractMesh, PartitionSpec as P
    >>> mesh = AbstractMesh((4, 2), ("data", "model"))
    >>> rules = [("batch", "data"), ("mlp", "model"), ("length", "data")]
    >>> found = logical_to_mesh_sharding({"w": P("embed", "mlp"), "x": P("batch")}, mesh, rules)
    >>> found["w"].spec, found["x"].spec
    (P(None, 'model'), P('data',))
    >>> logical_to_mesh_sharding({"x": P("batch", "length")}, mesh, rules)
    Traceback (most recent call last):
    ...
    hlosharding.errors.AnnotationError: the rules ('batch', 'data') and ('length', 'data') both claim axis 'data'; ...
    """
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    known = _Rules(rules, dict(mesh.shape))

    def named(path: Any, spec: Any) -> Any:
        where = f"{jax.tree_util.keystr(path)} {spec}".strip()
        if not isinstance(spec, PartitionSpec):
            raise AnnotationError(
                f"{spec!r} names no logical axes", where=where, remedy="write P('batch', 'embed', None)"
            )
        return NamedSharding(mesh, PartitionSpec(*known.entries(spec, where)))

    return jax.tree_util.tree_map_with_path(named, tree, is_leaf=lambda node: isinstance(node, PartitionSpec))


class _Rules:
    """What each name is split over on one mesh, and by which rule."""

    def __init__(self, rules: LogicalRules, sizes: Mapping[str, int]) -> None:
        self._answers: dict[str, dict[_Axes, tuple[str, Any]]] = {}
        for rule in rules:
            name, wanted = _checked(rule)
            axes = () if wanted is None else (wanted,) if isinstance(wanted, str) else tuple(wanted)
            for axis in axes:
                if axis not in sizes:
                    near = get_close_matches(axis, sizes, 1) or [*sizes]
                    what = f"the rule {(name, wanted)} names {axis!r}, and the mesh has no such axis"
                    raise AnnotationError(what, remedy=f"it has {', '.join(near)}; an axis that is not used has size 1")
            split = tuple(axis for axis in axes if sizes[axis] > 1)
            self._answers.setdefault(name, {}).setdefault(split, (name, wanted))

    def entries(self, spec: Iterable[Any], where: str) -> list[Any]:
        """Of a PartitionSpec over the mesh; what is no name (None, unconstrained) stays."""
        claims: dict[str, tuple[str, Any]] = {}
        return [self._entry(dim, claims, where) if isinstance(dim, str | tuple) else dim for dim in spec]

    def _entry(self, dim: str | _Axes, claims: dict[str, tuple[str, Any]], where: str) -> Any:
        """`claims`: by mesh axis, the rule by which another dim has it."""
        axes: list[str] = []
        for name in (dim,) if isinstance(dim, str) else dim:
            own, rule = self._answer(name, where)
            for axis in own:
                if axis in claims:
                    what = f"the rules {claims[axis]} and {rule} both claim axis {axis!r}"
                    raise AnnotationError(what, where=where, remedy="split one of the two dims over another axis")
                claims[axis] = rule
            axes += own
        return axes[0] if len(axes) == 1 else tuple(axes) or None

    def _answer(self, name: str, where: str) -> tuple[_Axes, tuple[str, Any]]:
        answers = self._answers.get(name, {(): (name, None)})
        first, *others = answers.values()
        if others:
            what = f"the rules {first} and {others[0]} give {name!r} two answers"
            raise AnnotationError(what, where=where, remedy="keep one of them: their order says nothing")
        return next(iter(answers)), first


def _checked(rule: Sequence[Any]) -> tuple[str, Any]:
    """A rule that is a pair; lists, as YAML has them, become tuples."""
    match rule:
        case [str(name), None | str() as axis]:
            return name, axis
        case [str(name), list() | tuple() as axes] if all(isinstance(axis, str) for axis in cast("_Axes", axes)):
            return name, tuple(cast("_Axes", axes))
        case _:
            remedy = "write (name, axis), (name, (axis, axis)) or (name, None)"
            raise AnnotationError(f"{rule!r} is no rule", remedy=remedy)
