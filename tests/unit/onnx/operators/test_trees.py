"""Ensembles of trees: random ones against a walk of one example at a time, which stands here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from scipy.special import ndtr

import hlosharding as hs
from tests.support.onnx_models import model, node, port, run

FEATURES, TARGETS = 5, 3
COMPARED = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal]


class Trees:
    """Random trees, and how they are written."""

    def __init__(self, seed: int, depths: list[int]) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[list[Any]] = []
        """feature, mode, split or members, missing, (is leaf, place) of yes, of no."""
        self.leaves: list[tuple[float, int]] = []
        self.roots = [self._node(depth) for depth in depths]

    def _node(self, depth: int) -> int:
        number = len(self.nodes)
        mode = int(self.random.integers(7))
        split = self.random.integers(-2, 3, 3).tolist() if mode == 6 else float(self.random.integers(-2, 3))
        self.nodes.append([int(self.random.integers(FEATURES)), mode, split, int(self.random.integers(2)), None, None])
        for side in (4, 5):
            self.nodes[number][side] = (
                self._leaf() if depth == 1 or self.random.random() < 0.3 else (0, self._node(depth - 1))
            )
        return number

    def _leaf(self) -> tuple[int, int]:
        self.leaves.append((float(self.random.standard_normal()), int(self.random.integers(TARGETS))))
        return 1, len(self.leaves) - 1

    def attributes(self) -> dict[str, Any]:
        feature, mode, split, missing, yes, no = zip(*self.nodes, strict=True)
        weights, targets = zip(*self.leaves, strict=True)
        members = [value for m, each in zip(mode, split, strict=True) if m == 6 for value in (*each, np.nan)]
        splits = [0.0 if m == 6 else each for m, each in zip(mode, split, strict=True)]
        return {
            "nodes_featureids": feature,
            "nodes_modes": numpy_helper.from_array(np.array(mode, np.uint8)),
            "nodes_splits": numpy_helper.from_array(np.array(splits, np.float32)),
            "nodes_missing_value_tracks_true": missing,
            "nodes_trueleafs": [leaf for leaf, _ in yes],
            "nodes_truenodeids": [place for _, place in yes],
            "nodes_falseleafs": [leaf for leaf, _ in no],
            "nodes_falsenodeids": [place for _, place in no],
            "leaf_weights": numpy_helper.from_array(np.array(weights, np.float32)),
            "leaf_targetids": targets,
            "membership_values": numpy_helper.from_array(np.array(members, np.float32)),
            "tree_roots": self.roots,
            "n_targets": TARGETS,
        }

    def leaf(self, root: int, example: np.ndarray) -> tuple[float, int]:
        is_leaf, place = 0, root
        while not is_leaf:
            feature, mode, split, missing, yes, no = self.nodes[place]
            value = example[feature]
            answer = value in split if mode == 6 else COMPARED[mode](value, split)
            is_leaf, place = yes if answer or (missing and np.isnan(value)) else no
        return self.leaves[place]


def examples() -> np.ndarray:
    random = np.random.default_rng(1)
    found = random.integers(-3, 4, (24, FEATURES)).astype(np.float32)
    found[random.random(found.shape) < 0.1] = np.nan
    return found


def ensemble(**attributes: Any) -> Any:
    made = node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    proto = model([made], [port("x", [24, FEATURES])], [port("y", None)])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 5))
    return proto


@pytest.mark.parametrize("how", range(4))
@pytest.mark.parametrize("depths", [[1], [6], [3, 5, 2, 4]])
def test_a_walk_gives_what_one_example_after_the_other_gives(depths: list[int], how: int) -> None:
    trees, x = Trees(len(depths), depths), examples()
    limits = np.finfo(np.float32)
    expected = np.full((24, TARGETS), [0, 0, limits.max, limits.min][how], np.float32)
    for row, example in zip(expected, x, strict=True):
        for weight, target in (trees.leaf(root, example) for root in trees.roots):
            both = row[target], weight
            row[target] = [sum(both), sum(both), min(both), max(both)][how]
    expected /= len(depths) if how == 0 else 1
    (found,) = run(ensemble(**trees.attributes(), aggregate_function=how), x=x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", range(1, 5))
def test_what_is_made_of_scores(how: int) -> None:
    trees, x = Trees(0, [4, 4]), examples()
    attributes = trees.attributes()
    if how == 4:  # the inverse of the normal distribution is of numbers between 0 and 1
        attributes["leaf_weights"] = numpy_helper.from_array(np.linspace(0.1, 0.4, len(trees.leaves), dtype=np.float32))
    (scores,) = run(ensemble(**attributes), x=x)
    (found,) = run(ensemble(**attributes, post_transform=how), x=x)
    if how == 4:
        np.testing.assert_allclose(ndtr(found), scores, rtol=1e-4)
        return
    if how == 2:
        np.testing.assert_allclose(found, 1 / (1 + np.exp(-scores)), rtol=1e-5)
        return
    shares = np.exp(scores) * ((scores != 0) if how == 3 else 1)
    np.testing.assert_allclose(found, shares / shares.sum(-1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tree_roots": [99]}, "a tree names root 99 of"),
        ({"nodes_featureids": [9]}, "a tree names feature 9 of 5"),
        ({"nodes_truenodeids": [7]}, "a tree names place"),
        ({"nodes_trueleafs": [0], "nodes_truenodeids": [0]}, "a tree has a circle"),
        ({"membership_values": numpy_helper.from_array(np.array([np.nan], np.float32))}, "1 lists for 0 nodes"),
    ],
)
def test_trees_that_cannot_be(change: dict[str, Any], said: str) -> None:
    whole = {
        "nodes_featureids": [0],
        "nodes_modes": numpy_helper.from_array(np.array([0], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([0.0], np.float32)),
        "nodes_trueleafs": [1],
        "nodes_truenodeids": [0],
        "nodes_falseleafs": [1],
        "nodes_falsenodeids": [1],
        "leaf_weights": numpy_helper.from_array(np.array([1.0, 2.0], np.float32)),
        "leaf_targetids": [0, 0],
        "tree_roots": [0],
        "n_targets": 1,
    }
    (found,) = run(ensemble(**whole), x=examples())
    assert set(found.ravel()) == {1.0, 2.0}
    with pytest.raises(hs.LoadError, match=said):
        hs.load(ensemble(**{**whole, **change}))
