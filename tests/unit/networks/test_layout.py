"""Where levels go by themselves, against table 9 of CascadeXML."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("torch")

from longtail.methods import configure
from longtail.networks.cascade_family import (
    dropouts,
    level_layers,
    level_widths,
    shortlist_sizes,
)
from longtail.networks.layout import cluster_widths, scores_all_labels

# labels, nodes of the levels above them, and the sizes of the shortlists of all levels: table 9
PUBLISHED = {
    "wiki10-31k": (30_938, (2**9, 2**12), (2**9, 2**9, 2**9)),
    "amazoncat-13k": (13_330, (2**8, 2**11), (2**8, 2**8, 2**8)),
    "wiki-500k": (501_070, (2**10, 2**13, 2**16), (2**10, 2**10, 2**11, 2**12)),
    "amazon-670k": (670_091, (2**10, 2**13, 2**16), (2**10, 2**10, 2**11, 2**12)),
    "amazon-3m": (2_812_281, (2**10, 2**13, 2**16), (2**10, 2**10, 2**11, 2**12)),
}


def slots(widths, kept):
    """Return how many nodes of each level are scored for a document on average."""
    below = [fine / coarse for coarse, fine in pairwise(widths)]
    return [widths[0], *(k * children for k, children in zip(kept, below, strict=True))]


class TestWidths:
    @pytest.mark.parametrize(("n_labels", "widths", "_"), PUBLISHED.values(), ids=PUBLISHED)
    def test_are_those_of_the_paper(self, n_labels, widths, _):
        assert level_widths(n_labels) == widths

    @pytest.mark.parametrize(
        ("n_labels", "widths"), [(1, ()), (2, ()), (10, ()), (32, (4,)), (500, (8, 64))]
    )
    def test_of_few_labels(self, n_labels, widths):
        assert level_widths(n_labels) == widths

    @pytest.mark.parametrize(
        "n_labels", [2, 3, 17, 100, 999, 5_000, 65_537, 199_999, 200_000, 10**7]
    )
    def test_rise_and_stay_below_the_labels(self, n_labels):
        widths = (*level_widths(n_labels), n_labels)
        assert list(widths) == sorted(set(widths))


class TestClusters:
    @pytest.mark.parametrize(
        ("n_labels", "last_level", "widths"),
        [
            (670_091, "auto", (8192,)),
            (501_070, "auto", (8192,)),
            (200_000, "auto", (2048,)),
            (199_999, "auto", ()),
            (670_091, "full", ()),
            (13_330, "shortlist", (256,)),
            (801, "shortlist", (16,)),
            (800, "shortlist", (8,)),
            (101, "shortlist", (2,)),
            (100, "shortlist", ()),
            (1, "shortlist", ()),
        ],
    )
    def test_are_a_power_of_two_or_none(self, n_labels, last_level, widths):
        assert cluster_widths(n_labels, last_level) == widths
        assert all(50 <= n_labels / width <= 100 for width in widths)


class TestShortlists:
    @pytest.mark.parametrize("name", ["wiki10-31k", "wiki-500k", "amazon-670k", "amazon-3m"])
    def test_are_as_long_as_in_the_paper(self, name):
        n_labels, above, sizes = PUBLISHED[name]
        widths = (*above, n_labels)
        assert slots(widths, shortlist_sizes(widths)) == pytest.approx(sizes, rel=0.06)

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_of_the_presets_are_as_long_as_in_the_paper(self, name):
        n_labels, above, sizes = PUBLISHED[name]
        cascade = configure("cascadexml", name).cascade
        assert cascade.levels == above
        assert slots((*above, n_labels), cascade.shortlist) == pytest.approx(sizes, rel=0.06)

    def test_never_keep_more_nodes_than_there_are(self):
        assert shortlist_sizes((8, 64, 500)) == (8, 64)
        assert shortlist_sizes((4, 100)) == (4,)
        assert shortlist_sizes((10,)) == ()

    def test_other_trees_keep_as_many_on_each_level(self):
        assert shortlist_sizes((100, 1_000, 10_000, 100_000)) == (64, 64, 64)


class TestLayers:
    @pytest.mark.parametrize(
        ("depth", "n_levels", "layers"),
        [
            (12, 4, ((5, 6), (8,), (10,), (12,))),  # table 9: the three large sets
            (12, 3, ((7, 8), (10,), (12,))),  # table 9: AmazonCat-13K
            (12, 1, ((12,),)),
            (6, 4, ((2, 3), (4,), (5,), (6,))),
            (6, 3, ((3, 4), (5,), (6,))),
            (6, 2, ((4, 5), (6,))),
            (3, 3, ((1,), (2,), (3,))),
            (3, 2, ((1, 2), (3,))),
            (3, 4, ((1,), (1,), (2,), (3,))),  # more levels than layers: the first ones share
            (24, 4, ((11, 12), (16,), (20,), (24,))),
        ],
    )
    def test_are_at_the_same_parts_of_the_depth(self, depth, n_levels, layers):
        assert level_layers(depth, n_levels) == layers

    @pytest.mark.parametrize("depth", [1, 2, 3, 4, 6, 12, 24])
    @pytest.mark.parametrize("n_levels", [1, 2, 3, 4, 5])
    def test_exist_and_never_go_back(self, depth, n_levels):
        layers = level_layers(depth, n_levels)
        assert len(layers) == n_levels
        assert layers[-1] == (depth,)
        flat = [layer for own in layers for layer in own]
        assert flat == sorted(flat)
        assert all(1 <= layer <= depth for layer in flat)

    @pytest.mark.parametrize(
        ("depth", "layers"), [(12, (8, 9, 10, 11, 12)), (6, (2, 3, 4, 5, 6)), (3, (1, 2, 3))]
    )
    @pytest.mark.parametrize("n_levels", [1, 2])
    def test_side_by_side_are_the_last_five(self, depth, layers, n_levels):
        assert level_layers(depth, n_levels, "concat") == (layers,) * n_levels


class TestLastLevel:
    @pytest.mark.parametrize(
        ("n_labels", "all_"), [(2, True), (30_938, True), (199_999, True), (200_000, False)]
    )
    def test_by_itself(self, n_labels, all_):
        assert scores_all_labels("auto", n_labels) is all_

    def test_as_set(self):
        assert scores_all_labels("full", 10**7)
        assert not scores_all_labels("shortlist", 2)


class TestDropouts:
    @pytest.mark.parametrize("n_levels", [1, 2, 3, 4, 5, 6])
    def test_one_a_level_and_rising(self, n_levels):
        rates = dropouts(n_levels)
        assert len(rates) == n_levels
        assert list(rates) == sorted(rates)
        assert all(0 < rate <= 0.5 for rate in rates)

    def test_of_the_paper(self):
        assert dropouts(3) == configure("cascadexml", "wiki10-31k").cascade.dropout
        assert dropouts(4) == configure("cascadexml", "amazon-670k").cascade.dropout

    def test_of_layers_side_by_side(self):
        assert dropouts(2, "concat") == (0.5, 0.5)
        assert dropouts(1, "concat") == (0.5,)
