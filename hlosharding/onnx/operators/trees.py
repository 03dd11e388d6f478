"""Ensembles of decision trees: all examples walk down all trees at once, as many steps as the deepest tree has.

Floor: onnx.  A place is a node or, behind all nodes, a leaf; whoever is at a leaf stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from hlosharding.errors import LoadError
from hlosharding.onnx.budget import charge_array
from hlosharding.onnx.operators.table import operator

_MEMBER = 6
"""The mode by which a node asks whether the value is one of several."""
_COMPARED: Mapping[int, Callable[[Any, Any], Any]] = {
    0: jnp.less_equal, 1: jnp.less, 2: jnp.greater_equal, 3: jnp.greater, 4: jnp.equal, 5: jnp.not_equal,
    _MEMBER: lambda x, members: jnp.any(x[..., None] == members, -1),
}  # fmt: skip


class _Forest(NamedTuple):
    """Per place: what it asks, and where it leads; of a leaf, back to itself."""

    roots: np.ndarray
    features: np.ndarray
    modes: np.ndarray
    splits: np.ndarray
    members: np.ndarray
    """Of each node that asks for one of several values, these, and NaN."""
    missing: np.ndarray
    """Is the answer yes where the feature is NaN?"""
    yes: np.ndarray
    no: np.ndarray
    nodes: int

    def check(self, features: int) -> None:
        """Raises LoadError for what is not there."""
        for what, found, end in (
            ("root", self.roots, self.nodes), ("feature", self.features, features), ("mode", self.modes, _MEMBER + 1),
            ("place", self.yes, len(self.yes)), ("place", self.no, len(self.yes)),
        ):  # fmt: skip
            wrong = found[(found < 0) | (found >= end)]
            if wrong.size:
                raise LoadError(f"a tree names {what} {wrong[0]} of {end}")

    @property
    def depth(self) -> int:
        """Steps from the roots to where everybody is at a leaf.  Raises LoadError where that is never so."""
        at, steps = np.unique(self.roots), 0
        # Places are sorted, and leaves are behind all nodes: the first one says whether anybody is still on the way.
        while at[0] < self.nodes:
            at, steps = np.unique([self.yes[at], self.no[at]]), steps + 1
            if steps > self.nodes:
                raise LoadError("a tree has a circle")
        return steps

    def leaves(self, x: Any) -> Any:
        """The place that each example reaches in each tree."""
        at = jnp.broadcast_to(self.roots, (x.shape[0], len(self.roots)))
        for _ in range(self.depth):
            at = jnp.where(self._answers(x, at), jnp.asarray(self.yes)[at], jnp.asarray(self.no)[at])
        return at

    def _answers(self, x: Any, at: Any) -> Any:
        asked = jnp.take_along_axis(x, jnp.asarray(self.features)[at], 1)
        mode, found = jnp.asarray(self.modes)[at], jnp.zeros(asked.shape, bool)
        # Only the modes that some node has: each is an op over all examples and trees.
        for kind in np.unique(self.modes):
            others = jnp.asarray(self.members if kind == _MEMBER else self.splits)[at]
            found = found | ((mode == kind) & _COMPARED[int(kind)](asked, others))
        return found | (jnp.isnan(asked) & jnp.asarray(self.missing)[at])


@operator("TreeEnsemble", 5, domain="ai.onnx.ml")
def _tree_ensemble(
    x: Any, *, aggregate_function: int = 1, leaf_targetids: Sequence[int], leaf_weights: Any,
    membership_values: Any = None, n_targets: int | None = None, nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int], nodes_featureids: Sequence[int], nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Sequence[int] = (), nodes_modes: Any, nodes_splits: Any,
    nodes_trueleafs: Sequence[int], nodes_truenodeids: Sequence[int], post_transform: int = 0,
    tree_roots: Sequence[int],
) -> Any:  # fmt: skip
    count, leaves = len(nodes_modes), len(leaf_weights)
    stay = np.arange(count, count + leaves)

    def of_nodes(values: Any, dtype: Any) -> np.ndarray:
        return np.concatenate([np.asarray(values, dtype), np.zeros(leaves, dtype)])

    def led(ids: Sequence[int], is_leaf: Sequence[int]) -> np.ndarray:
        return np.concatenate([np.where(is_leaf, np.asarray(ids) + count, ids), stay]).astype(np.int32)

    forest = _Forest(
        np.asarray(tree_roots, np.int32),
        of_nodes(nodes_featureids, np.int32),
        of_nodes(nodes_modes, np.uint8),
        of_nodes(nodes_splits, x.dtype),
        _members(np.asarray(nodes_modes), membership_values, x.dtype, leaves),
        of_nodes(nodes_missing_value_tracks_true or np.zeros(count), bool),
        led(nodes_truenodeids, nodes_trueleafs),
        led(nodes_falsenodeids, nodes_falseleafs),
        count,
    )
    forest.check(x.shape[1])
    at = forest.leaves(x) - count
    weight, target = jnp.asarray(leaf_weights, x.dtype)[at], jnp.asarray(leaf_targetids)[at]
    number = n_targets if n_targets is not None else 1 + max(leaf_targetids)
    scores = _aggregated(weight, target[..., None] == jnp.arange(number), aggregate_function)
    return _TRANSFORMS[post_transform](scores)


def _members(modes: np.ndarray, values: Any, dtype: Any, leaves: int) -> np.ndarray:
    """Per place the values of which one is asked for, as many as the longest list has."""
    given = np.zeros(0, dtype) if values is None else np.asarray(values)
    ends = np.flatnonzero(np.isnan(given))
    asking = np.flatnonzero(modes == _MEMBER)
    if len(ends) != len(asking):
        raise LoadError(f"membership_values has {len(ends)} lists for {len(asking)} nodes that ask for members")
    lists = np.split(given, ends) if len(ends) else []  # but the first they begin with a NaN, which nothing equals
    shape = len(modes) + leaves, max(map(len, lists), default=1)
    charge_array(shape)
    found = np.full(shape, np.nan, dtype)
    for node, members in zip(asking, lists, strict=False):
        found[node, : len(members)] = members
    return found


def _aggregated(weight: Any, is_for: Any, how: int) -> Any:
    """Of [example, tree] values the average, sum, least or greatest for each target."""
    limits = jnp.finfo(weight.dtype)
    if how in (0, 1):
        found = jnp.sum(jnp.where(is_for, weight[..., None], jnp.zeros((), weight.dtype)), 1)
        return found / weight.shape[1] if how == 0 else found
    if how == 2:
        return jnp.min(jnp.where(is_for, weight[..., None], limits.max), 1)
    return jnp.max(jnp.where(is_for, weight[..., None], limits.min), 1)


def _softmax_zero(scores: Any) -> Any:
    """Softmax, but what is zero stays zero."""
    return jnp.where(scores == 0, 0, jax.nn.softmax(scores, -1, where=scores != 0))


_TRANSFORMS: Mapping[int, Callable[[Any], Any]] = {
    0: lambda scores: scores, 1: jax.nn.softmax, 2: jax.nn.sigmoid, 3: _softmax_zero, 4: ndtri,
}  # fmt: skip


# ---- other classical models

_DOMAIN = "ai.onnx.ml"


@operator("ArrayFeatureExtractor", 1, domain=_DOMAIN)
def _array_feature_extractor(x: Any, places: Any) -> Any:
    found = jnp.take(x, jnp.ravel(places), -1)
    return found if x.ndim > 1 else found[None]


@operator("Binarizer", 1, domain=_DOMAIN)
def _binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).astype(x.dtype)
