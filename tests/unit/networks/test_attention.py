"""AttentionXML against its equations, done for one document and one label at a time in float64."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import torch

from attention_networks import (
    PARENTS,
    SETTINGS,
    TREE,
    TRUTH,
    N,
    arrays_of,
    batch_of,
    documents,
    level_of,
    sample_problem,
    slow_logit,
    trained,
)
from longtail import store
from longtail.methods import configure
from longtail.networks import attention, attention_fitting
from longtail.networks.attention import AttentionXML
from longtail.networks.attention_trees import load_attention, save_attention
from longtail.networks.encoders.word_encoder import WordEncoder
from longtail.networks.recursive import joined_nodes
from longtail.networks.training.stepper import Stepper
from longtail.steps.work import Work

pytestmark = pytest.mark.usefixtures("one_thread")


def slow_loss(level, w, batch):
    losses = []
    for document, above, own in zip(documents(batch), PARENTS, TRUTH, strict=True):
        children = {child for node in above if node >= 0 for child in TREE.children(1, node)}
        found = []
        for node in sorted(children | set(own)):
            p = torch.sigmoid(slow_logit(level, w, document, node))
            y = own.get(node, 0.0)
            found.append(-y * torch.log(p) - (1 - y) * torch.log(1 - p))
        losses.append(sum(found) / len(found))
    return sum(losses) / len(losses)


class TestLevel:
    @pytest.mark.parametrize("elements", [1, 10**9], ids=["a slot at a time", "at once"])
    @pytest.mark.parametrize("layers", [(6,), (5, 7), (9, 8, 7)])
    def test_loss_and_gradients_are_those_of_the_equations(self, monkeypatch, elements, layers):
        """Chunked or not, with positives among the candidates, beside them, and soft."""
        monkeypatch.setitem(attention._ELEMENTS, "cpu", elements)
        level, batch = level_of(layers=layers), batch_of(9, filler=3)
        assert [len(layer.bias) for layer in level.shared.values()] == [*layers, 1]
        w, parameters = level.heads[0].weight.clone().requires_grad_(), list(level.parameters())
        expected = slow_loss(level, w, batch)
        gradients = torch.autograd.grad(expected, [*parameters, w])
        ((name, found),) = level.losses(batch).items()
        assert name == "level 3"
        torch.testing.assert_close(found, expected)
        found.backward()
        for parameter, gradient in zip(parameters, gradients[:-1], strict=True):
            torch.testing.assert_close(parameter.grad, gradient)
        assert min(float(gradient.abs().max()) for gradient in gradients) > 1e-4
        level.heads[0].step(
            1.0, 0
        )  # plain gradient descent: what a step of 1 takes away is the gradient
        torch.testing.assert_close(w.detach() - level.heads[0].weight, gradients[-1])

    def test_all_nodes_of_the_first_level(self):
        level, batch = level_of(0), batch_of()
        w, texts = level.heads[0].weight, documents(batch)
        expected = torch.stack(
            [torch.stack([slow_logit(level, w, text, node) for node in range(3)]) for text in texts]
        )
        torch.testing.assert_close(level.scores(batch.ids, batch.mask, None)[1], expected)
        with torch.no_grad():
            torch.testing.assert_close(
                level.eval().scores(batch.ids, batch.mask, None)[1], expected
            )

    def test_scores_without_gradient_are_the_same(self):
        level, batch = level_of(), batch_of()
        nodes = torch.tensor([[13, -1, 2], [0, 0, 5], [-1, 7, -1]], dtype=torch.int32)
        x, found = level.scores(batch.ids, batch.mask, nodes)
        with torch.no_grad():
            others, same = level.eval().scores(batch.ids, batch.mask, nodes)
        torch.testing.assert_close(found, same)
        torch.testing.assert_close(x, others)
        torch.testing.assert_close(x, level.vectors(batch.ids, batch.mask)[0])

    def test_padding_is_no_row(self):
        """A slot of padding must not move the first node, which stands for it."""
        level, batch = level_of(), batch_of()
        before = level.heads[0].weight.clone()
        level.heads[0].weight_decay = 0.5
        _, p = level.scores(
            batch.ids, batch.mask, torch.tensor([[-1, 4], [5, -1], [4, -1]], dtype=torch.int32)
        )
        p.sum().backward()
        level.heads[0].step(1.0, 0)
        moved = (level.heads[0].weight != before).any(1)
        assert moved.nonzero()[:, 0].tolist() == [4, 5]

    def test_starts_from_the_level_above(self):
        above, level = level_of(1, layers=(6, 3)), level_of(2, layers=(6, 3))
        level.further[0].weight.data.zero_()
        level.start(above, 0.75)
        assert torch.equal(level.first.weight, above.first.weight)
        assert torch.equal(level.further[0].weight, above.further[0].weight)
        torch.testing.assert_close(level.output.bias, above.output.bias + 0.75)

    @pytest.mark.parametrize("state", [False, True])
    @pytest.mark.parametrize("layers", [(6,), (6, 3)])
    def test_there_and_back(self, state, layers):
        ours, theirs = level_of(2, layers), level_of(2, layers)
        with torch.no_grad():
            for tensor in (*theirs.parameters(), theirs.heads[0].weight):
                tensor.add_(1)
        arrays = ours.to_arrays(state)
        theirs.load_arrays(arrays)
        for name, array in theirs.to_arrays(state).items():
            np.testing.assert_array_equal(array, arrays[name])
        trained = sum(len(group["params"]) for group in ours.optimiser_groups())
        assert trained == len(list(ours.parameters()))


class TestRank:
    def slow_ranking(self, network, document, *kept):
        """Return the labels below the ``kept`` best nodes of each level, with σ times σ of those above."""
        scores = dict.fromkeys(range(3), 1.0)
        for t, level in enumerate(network.levels):
            own = {n: above * slow_logit(level, level.heads[0].weight, document, n).sigmoid().item()
                   for n, above in scores.items()}  # fmt: skip
            if t == 2:
                return own
            best = sorted(own, key=lambda node: -own[node])[: kept[t]]
            scores = {child: own[node] for node in best for child in TREE.children(t, node)}

    def test_is_the_product_on_the_way_down(self):
        network, batch = AttentionXML([level_of(t) for t in range(3)]).eval(), batch_of(9)
        ranked = network.rank(batch.ids, batch.mask, 5)
        assert network.slots == [3, 6, 8]
        assert network.widths == [8, 8, 8]
        for row, document in enumerate(documents(batch)):
            expected = self.slow_ranking(network, document, 2, 2)
            best = sorted(expected, key=lambda node: -expected[node])[:5]
            found = [node for node in ranked.nodes[row].tolist() if node >= 0]
            assert found == best
            own = [expected[node] for node in best]
            np.testing.assert_allclose(ranked.scores[row, : len(best)], own)
            assert not ranked.scores[row, len(best) :].any()
            path = network.path_scores(
                batch.ids, batch.mask, TREE.ancestors(int(TREE.order[best[0]]))
            )
            assert float(path[row]) == pytest.approx(own[0])
        torch.testing.assert_close(ranked.vectors, network.vectors(batch.ids, batch.mask)[2])
        assert [tuple(kept.shape) for kept in ranked.kept] == [(3, 2), (3, 2)]

    def test_each_level_keeps_its_own_number(self):
        levels = [level_of(t, level_shortlists=(1, 4)) for t in range(3)]
        network, batch = AttentionXML(levels).eval(), batch_of(9)
        assert network.kept == [1, 4]
        assert AttentionXML(levels[:2]).kept == [1]  # while they are trained
        assert network.slots == [3, 3, 12]
        ranked = network.rank(batch.ids, batch.mask, 14)
        assert [tuple(kept.shape) for kept in ranked.kept] == [(3, 1), (3, 3)]
        for row, document in enumerate(documents(batch)):
            expected = self.slow_ranking(network, document, 1, 4)
            labels = ranked.nodes[row]
            assert set(labels[labels >= 0].tolist()) == set(expected)

    def test_in_half_shares_attention_vectors(self):
        network, batch = AttentionXML([level_of(t).float() for t in range(3)]).eval(), batch_of()
        half = network.in_half()
        assert half.heads[1] is network.heads[1]
        assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        scores = [own.path_scores(batch.ids, batch.mask, [2, 5, 13]) for own in (half, network)]
        torch.testing.assert_close(*scores, rtol=0.3, atol=0.05)


def epochs_of(log_file):
    events = [json.loads(line) for line in log_file.read_text().splitlines()]
    return [event for event in events if event["event"] == "epoch"]


@pytest.fixture(scope="module")
def problem():
    return sample_problem()


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    return tmp_path_factory.mktemp("run") / "log.jsonl"


@pytest.fixture(scope="module")
def ranker(problem, log_file):
    return trained(problem, log_file=log_file)


class TestTraining:
    def test_learns_the_documents(self, problem, ranker, log_file):
        losses = [
            event["losses"]["level 2"]
            for event in epochs_of(log_file)
            if "level 2" in event["losses"]
        ]
        assert len(losses) == 24
        assert losses[-1] < 0.7 * losses[0]
        scores, _ = ranker.search(problem.documents.texts, 5)
        truth = problem.documents.label_matrix.toarray() > 0
        hits = np.mean(
            [truth[row, scores.indices[start]] for row, start in enumerate(scores.indptr[:-1])]
        )
        assert hits > 0.1 + max(truth.mean(0))  # what the most frequent label would give

    def test_goes_on_after_a_stop_between_levels(self, problem, ranker, tmp_path, monkeypatch):
        whole = arrays_of(ranker)
        fit, calls = attention_fitting.fit, []

        def stopped(network, *given, **named):
            calls.append(network.level)
            if network.level:
                raise KeyboardInterrupt
            return fit(network, *given, **named)

        with store.Stages(tmp_path / "work") as stages:
            monkeypatch.setattr(attention_fitting, "fit", stopped)
            with pytest.raises(KeyboardInterrupt):
                trained(problem, Work(stages))
            monkeypatch.setattr(
                attention_fitting,
                "fit",
                lambda network, *a, **n: calls.append(9) or fit(network, *a, **n),
            )
            resumed = arrays_of(trained(problem, Work(stages)))
        assert calls == [0, 1, 9]
        assert set(resumed) == set(whole)
        for name, array in whole.items():
            np.testing.assert_array_equal(array, resumed[name])

    def test_candidates_are_children_of_the_best_and_the_true(self, problem, tmp_path, monkeypatch):
        given, fit = {}, attention_fitting.fit

        def seen(network, *args, **named):
            given[network.level] = network.parents
            return fit(network, *args, **named)

        monkeypatch.setattr(attention_fitting, "fit", seen)
        short, log = (
            SETTINGS | {"attention": SETTINGS["attention"] | {"epochs": [2, 1]}},
            tmp_path / "log.jsonl",
        )
        ranker = trained(
            problem, valid=problem.documents.take(np.arange(10)), log_file=log, settings=short
        )
        first = AttentionXML([ranker.network.levels[0]])
        ids, mask = (torch.from_numpy(array) for array in problem.tokens.padded(np.arange(N)))
        chosen = first.rank(ids, mask, 2).nodes.numpy()
        true = problem.tree.coarsen(problem.documents.label_matrix)[0]
        assert given[0] is None
        np.testing.assert_array_equal(given[1], joined_nodes(chosen, true))
        assert all(event["valid"]["P@1"] > 0 for event in epochs_of(log))

    def test_saved_and_read(self, problem, ranker, tmp_path):
        with store.write_folder(tmp_path / "model") as folder:
            ranker.network.encoder.save(folder.path("encoder"))
            save_attention(ranker, folder)
        found = store.open_folder(tmp_path / "model")
        config = configure("attentionxml", None, SETTINGS)
        encoder = WordEncoder.load(found.path("encoder"))
        loaded = load_attention(found, config, problem.tokeniser, encoder, torch.device("cpu"))
        ours, theirs = (own.search(problem.documents.texts, 4) for own in (ranker, loaded))
        for name in ("indices", "indptr", "data"):
            np.testing.assert_array_equal(getattr(ours[0], name), getattr(theirs[0], name))
        np.testing.assert_array_equal(ours[1], theirs[1])

    def test_a_folder_of_another_network(self, problem, ranker, tmp_path):
        with store.write_folder(tmp_path / "model") as folder:
            save_attention(ranker, folder)
        other = {"attention": SETTINGS["attention"] | {"layers": [7]}}
        with pytest.raises(
            ValueError,
            match=r"attention-0.safetensors, first.weight: found \(32, 32\); expected \(7, 32",
        ):
            load_attention(
                store.open_folder(tmp_path / "model"),
                configure("attentionxml", None, other),
                problem.tokeniser,
                ranker.network.encoder,
                torch.device("cpu"),
            )

    def test_weights_are_averaged_from_an_epoch_of_each_level(self, problem, monkeypatch):
        averages = []
        fit = attention_fitting.fit

        def seen(network, batches, training, **named):
            averages.append((training.average, training.epochs))
            return fit(network, batches, training, **named)

        monkeypatch.setattr(attention_fitting, "fit", seen)
        attending = SETTINGS["attention"] | {"epochs": [4, 5], "average_from": [3, 1]}
        averaged = trained(problem, settings=SETTINGS | {"attention": attending})
        assert averages == [(pytest.approx(0.25), 4), (pytest.approx(0.8), 5)]
        plain = trained(
            problem, settings=SETTINGS | {"attention": attending | {"average_from": []}}
        )
        assert averages[2:] == [(0.0, 4), (0.0, 5)]
        ours = arrays_of(averaged)
        theirs = arrays_of(plain)
        assert not np.allclose(ours[0, "first.weight"], theirs[0, "first.weight"])

    def test_average_of_the_last_epoch_is_the_mean_of_its_steps(self, problem, monkeypatch):
        """Each step of the last epoch counts alike: the mean of weights that were noted beside the training."""
        noted = []
        step = Stepper.step

        def noting(stepper, batch, number):
            result = step(stepper, batch, number)
            noted.append(stepper.network.first.weight.detach().clone())
            return result

        monkeypatch.setattr(Stepper, "step", noting)
        attending = SETTINGS["attention"] | {"epochs": [2, 1], "average_from": [1, 0]}
        ranker = trained(problem, settings=SETTINGS | {"attention": attending})
        steps = -(-N // SETTINGS["training"]["batch_size"])
        for level, weights in enumerate([noted[steps : 2 * steps], noted[2 * steps :]]):
            assert len(weights) == steps
            found = ranker.network.levels[level].first.weight
            torch.testing.assert_close(found.detach(), torch.stack(weights).mean(0))
