"""What several layers' vectors become, and how wide it is."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from longtail.config import Cascade
from longtail.networks.cascade_family import vector_widths
from longtail.networks.merging import merged, merging_layers

WIDTH = 4
CHANCE = torch.Generator().manual_seed(0)
PARTS = [torch.randn(3, WIDTH, generator=CHANCE) for _ in range(3)]
LAYERS = [((1, 2), (3,)), ((2, 3), (2, 3)), ((1,), (1, 2, 3)), ((1, 2, 3),)]


def layers_of(layers, rates=None, seed=0, **settings):
    """Return merging layers and dropouts of a network with these settings."""
    return merging_layers(layers, WIDTH, Cascade(**settings), rates or [0.5] * len(layers), seed)


class TestWidths:
    @pytest.mark.parametrize("layers", LAYERS, ids=str)
    @pytest.mark.parametrize("merge", ["mean", "concat"])
    @pytest.mark.parametrize("bottleneck", [0, 3, WIDTH, 2 * WIDTH])
    def test_are_those_of_the_vectors(self, layers, merge, bottleneck):
        merges, _ = layers_of(layers, merge=merge, bottleneck=bottleneck)
        found = [
            merged(own, PARTS[: len(some)]).shape for own, some in zip(merges, layers, strict=True)
        ]
        assert found == [(3, width) for width in vector_widths(layers, WIDTH, merge, bottleneck)]

    def test_known(self):
        assert vector_widths(((1, 2), (3,)), 8, "mean", 0) == (8, 8)
        assert vector_widths(((1, 2), (3,)), 8, "concat", 0) == (16, 8)
        assert vector_widths(((1, 2), (1, 2)), 8, "concat", 5) == (16, 5)
        assert vector_widths(((1, 2),), 8, "concat", 5) == (16,)  # no level above the labels


class TestMean:
    def test_begins_as_the_mean(self):
        merges, _ = layers_of(((1, 2, 3), (1,)), merge="mean")
        torch.testing.assert_close(merged(merges.eval()[0], PARTS), sum(PARTS) / 3)
        assert torch.equal(merged(merges[1], PARTS[:1]), PARTS[0])
        assert merges[0][0].p == 0.2


class TestXavier:
    def settled(self, seed=0, **settings):
        layers = ((1, 2, 3), (1,))
        return layers_of(layers, seed=seed, merge="mean", label_rows="xavier", **settings)[0]

    def test_weights_are_uniform_within_the_bound_of_a_map_of_this_shape(self):
        layers, wide = ((1, 2), (3,)), 40
        merges, _ = merging_layers(layers, wide, Cascade(label_rows="xavier"), [0.5, 0.5], 0)
        weight = merges[0][1].weight.detach()
        bound = (6 / (2 * wide + wide)) ** 0.5
        assert 0.99 * bound < weight.abs().max() <= bound
        assert weight.var().item() == pytest.approx(bound**2 / 3, rel=0.05)
        assert isinstance(merges[1], nn.Identity)

    def test_seed_alone_decides(self):
        torch.manual_seed(1)
        first = self.settled(seed=3)[0][1]
        torch.manual_seed(2)
        state = torch.random.get_rng_state()
        again = self.settled(seed=3)[0][1]
        assert torch.equal(torch.random.get_rng_state(), state)
        assert torch.equal(first.weight, again.weight)
        assert torch.equal(first.bias, again.bias)
        assert not torch.equal(first.weight, self.settled(seed=4)[0][1].weight)

    def test_other_rows_leave_it_the_mean(self):
        merges, _ = layers_of(((1, 2), (3,)), merge="mean", label_rows="random")
        assert torch.equal(merges[0][1].weight, torch.eye(WIDTH).repeat(1, 2) / 2)


class TestConcat:
    def test_is_side_by_side_and_has_nothing_to_train(self):
        merges, _ = layers_of(((1, 2, 3), (1, 2)), merge="concat")
        assert torch.equal(merged(merges[0], PARTS), torch.cat(PARTS, 1))
        assert torch.equal(merged(merges[1], PARTS[:2]), torch.cat(PARTS[:2], 1))
        assert not list(merges.parameters())

    def test_dropouts_are_the_settings(self):
        _, dropouts = layers_of(((1, 2), (1, 2)), [0.1, 0.2], merge="concat")
        assert [module.p for module in dropouts] == [0.1, 0.2]


class TestBottleneck:
    def bottleneck(self, seed=0, rates=(0.1, 0.4)):
        return layers_of(((1, 2), (1, 2)), list(rates), seed, merge="concat", bottleneck=3)

    def test_is_a_linear_map_of_the_labels_level(self):
        merges, _ = self.bottleneck()
        linear = merges.eval()[1][1]
        expected = torch.cat(PARTS[:2], 1) @ linear.weight.T + linear.bias
        torch.testing.assert_close(merged(merges[1], PARTS[:2]), expected)
        assert isinstance(merges[0], nn.Identity)

    def test_dropout_is_before_it_and_not_behind(self):
        merges, dropouts = self.bottleneck()
        assert merges[1][0].p == 0.4
        assert [module.p for module in dropouts] == [0.1, 0.0]

    def test_seed_alone_decides_where_it_begins(self):
        torch.manual_seed(1)
        before = torch.random.get_rng_state()
        first = self.bottleneck()[0].state_dict()
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.manual_seed(2)
        same, other = self.bottleneck()[0].state_dict(), self.bottleneck(seed=1)[0].state_dict()
        assert all(torch.equal(first[name], same[name]) for name in first)
        assert not torch.equal(first["1.1.weight"], other["1.1.weight"])

    def test_in_bfloat16_takes_float32(self):
        merges, _ = self.bottleneck()
        merges = merges.eval().bfloat16()
        assert merged(merges[1], PARTS[:2]).dtype == torch.bfloat16
