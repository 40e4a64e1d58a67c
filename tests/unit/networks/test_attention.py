"""AttentionXML against its equations, done for one document and one label at a time in float64."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

import torch

import longtail as lt
from longtail import store
from longtail.config import Attention, Training
from longtail.errors import ConfigError
from longtail.features.tokens import Tokeniser
from longtail.methods import configure
from longtail.networks import attention, attention_fitting
from longtail.networks.attention import (
    AttentionLevel,
    AttentionXML,
    load_attention,
    save_attention,
)
from longtail.networks.attention_family import AttentionFamily
from longtail.networks.attention_fitting import fit_attention
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batch
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.encoders.word_encoder import WordEncoder, make_word_encoder
from longtail.networks.fitting import network_inputs
from longtail.networks.recursive import joined_nodes
from longtail.networks.training.stepper import Stepper
from longtail.reporting import listening
from longtail.run_log import RunLog
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree
from tiny_encoder import tokenizer_of

TREE = LabelTree(
    np.random.default_rng(1).permutation(14).astype(np.int32),
    (np.array([0, 1, 4, 6]), np.array([0, 3, 4, 5, 9, 13, 14])),  # 3 → 6 → 14, of 1 to 4 children
)
LENGTHS = [7, 2, 5]
PARENTS = [[0, 2, 5], [3, -1, -1], [1, 4, -1]]  # on the level above the labels
TRUTH = [{0: 1.0, 13: 0.25}, {6: 1.0}, {3: 0.5, 9: 1.0, 12: 1.0}]  # targets of labels by position
V, D = 30, 5

pytestmark = pytest.mark.usefixtures("one_thread")


def encoder_of(vectors, pad=0, hidden=4, seed=0):
    """Return an LSTM that drops nothing."""
    idf = np.ones(len(vectors), np.float32)
    return make_word_encoder("lstm", vectors, idf, pad, 16, seed, {"hidden": hidden})


def level_of(t=2, layers=(6,), **training):
    """Return a level in float64 and training mode that drops nothing, whose attention and scores are far from even."""
    vectors = np.random.default_rng(t).normal(size=(V, D)).astype(np.float32)
    encoder = encoder_of(vectors, seed=t)
    settings = Training(head_optimiser="sgd", head_decay=0, **training)
    attending = Attention(dropout=0.0, shortlist=2, layers=layers)
    level = AttentionLevel(encoder, TREE, t, attending, settings, seed=5, std=8.0)
    with torch.no_grad():
        for parameter in [part for layer in level.shared.values() for part in layer.parameters()]:
            parameter.mul_(4)
    if t == 2:
        level.parents = np.array(PARENTS, np.int32)
    return level.double().train()


def batch_of(width=7, filler=0):
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    words = torch.randint(1, V, (3, 7), generator=torch.Generator().manual_seed(2))
    ids = torch.full(mask.shape, filler)
    ids[:, :7] = words
    positives = torch.tensor(
        [[*sorted(own), *[-1] * (4 - len(own))] for own in TRUTH], dtype=torch.int32
    )
    values = torch.tensor(
        [[*(own[at] for at in sorted(own)), *[0.0] * (4 - len(own))] for own in TRUTH]
    )
    return Batch(ids.masked_fill(~mask, filler), mask, positives, values.double(), np.arange(3))


def slow_logit(level, w, document, node):
    """Return W_o ReLU(W_n ... ReLU(W_1 m + b_1) ... + b_n) + b_o of m = Σ_t α_t H_t, α = softmax(H w), of one text
    without padding."""
    H = level.encoder.states(document[None], None)[0]
    assert H.dtype == torch.float64
    shares = [torch.exp(state @ w[node]) for state in H]
    m = sum(share / sum(shares) * state for share, state in zip(shares, H, strict=True))
    *layers, output = level.shared.values()
    for layer in layers:
        m = torch.clamp(layer.weight @ m + layer.bias, min=0)
    return (output.weight @ m + output.bias)[0]


def documents(batch):
    return [own[:length] for own, length in zip(batch.ids, LENGTHS, strict=True)]


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
    def slow_ranking(self, network, document, kept):
        """Return the labels below the ``kept`` best nodes of each level, with σ times σ of those above."""
        scores = dict.fromkeys(range(3), 1.0)
        for t, level in enumerate(network.levels):
            own = {n: above * slow_logit(level, level.heads[0].weight, document, n).sigmoid().item()
                   for n, above in scores.items()}  # fmt: skip
            if t == 2:
                return own
            best = sorted(own, key=lambda node: -own[node])[:kept]
            scores = {child: own[node] for node in best for child in TREE.children(t, node)}

    def test_is_the_product_on_the_way_down(self):
        network, batch = AttentionXML([level_of(t) for t in range(3)]).eval(), batch_of(9)
        ranked = network.rank(batch.ids, batch.mask, 5)
        assert network.slots == [3, 6, 8]
        assert network.widths == [8, 8, 8]
        for row, document in enumerate(documents(batch)):
            expected = self.slow_ranking(network, document, 2)
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

    def test_in_half_shares_attention_vectors(self):
        network, batch = AttentionXML([level_of(t).float() for t in range(3)]).eval(), batch_of()
        half = network.in_half()
        assert half.heads[1] is network.heads[1]
        assert {p.dtype for p in half.parameters()} == {torch.bfloat16}
        assert {p.dtype for p in network.parameters()} == {torch.float32}
        scores = [own.path_scores(batch.ids, batch.mask, [2, 5, 13]) for own in (half, network)]
        torch.testing.assert_close(*scores, rtol=0.3, atol=0.05)


N, LABELS = 60, 20
HIDDEN = 16
SETTINGS = {
    # of a few units all may die, and nothing is learnt
    "attention": {
        "shortlist": 2,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "hidden": HIDDEN,
        "layers": [32],
        "epochs": [8, 24],
    },
    "training": {
        "batch_size": 6,
        "encoder_rate": 0.01,
        "head_rate": 0.01,
        "head_optimiser": "adamw",
        "head_decay": 0.0,
        "encoder_decay": 0.0,
    },
}


@pytest.fixture(scope="module")
def problem():
    """Return documents of the sample with the labels most of them have, their tokens and a tree of two levels."""
    sample = lt.sample()[0].take(np.arange(N))
    frequent = np.sort(np.argsort(-sample.label_counts, kind="stable")[:LABELS])
    kept = {sample.labels.ids[label] for label in frequent.tolist()}
    documents = lt.Dataset.of(
        sample.texts, [sorted(kept.intersection(sample.labels_of(row))) for row in range(N)]
    )
    words = tokenizer_of(documents.texts, 400)
    about = json.loads(words.to_str()) | {"post_processor": None}
    files = {
        "tokenizer.json": json.dumps(about),
        "tokenizer_config.json": json.dumps({"pad_token": "[PAD]"}),
    }
    tokeniser = Tokeniser({name: text.encode() for name, text in files.items()}, 16)
    tree = LabelTree(
        np.random.default_rng(1).permutation(LABELS).astype(np.int32),
        (np.arange(0, LABELS + 1, 5),),
    )
    return SimpleNamespace(
        documents=documents, tokeniser=tokeniser, tokens=tokeniser(documents.texts), tree=tree
    )


def trained(problem, work=None, valid=None, log_file=None, settings=SETTINGS):
    """Return a network trained on the problem, always from the same beginning."""
    vectors = np.random.default_rng(0).normal(0, 0.5, (400, 8)).astype(np.float32)
    encoder = encoder_of(vectors, problem.tokeniser.pad, HIDDEN, seed=3)
    embedder = Embedder(problem.tokeniser, LastLayer(encoder), "float32")
    given = (
        problem.documents,
        embedder,
        problem.tokens,
        problem.tree,
        configure("attentionxml", None, settings),
    )
    listeners = [] if log_file is None else [RunLog(log_file)]
    with listening(*listeners):
        return fit_attention(NetworkRun(*given, work or Work(), valid))


def epochs_of(log_file):
    events = [json.loads(line) for line in log_file.read_text().splitlines()]
    return [event for event in events if event["event"] == "epoch"]


def arrays_of(ranker):
    return {
        (level.level, name): array
        for level in ranker.network.levels
        for name, array in level.to_arrays().items()
    }


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


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"hidden": 0}, r"attention\.hidden"),
            ({"hidden": -4}, r"attention\.hidden"),
            ({"hidden": 9000}, r"attention\.hidden"),
            ({"layers": []}, r"attention\.layers"),
            ({"layers": [256, 0]}, r"attention\.layers"),
            ({"word_dropout": 1.0}, r"attention\.word_dropout"),
            ({"word_dropout": -0.1}, r"attention\.word_dropout"),
            ({"dropout": 1}, r"attention\.dropout"),
            ({"average_from": [-1]}, r"attention\.average_from"),
        ],
    )
    def test_wrong_values_are_refused(self, settings, message):
        with pytest.raises(ConfigError, match=message):
            configure("attentionxml", None, {"attention": settings})
        with pytest.raises(ConfigError, match=message):
            lt.Longtail("attentionxml", attention=settings)

    def test_two_settings_of_averages_are_refused(self):
        settings = {"attention": {"average_from": [2, 1]}, "training": {"average": 0.5}}
        message = r"average_from: found \[2.0, 1.0\] beside training.average=0.5; expected one of"
        with pytest.raises(ConfigError, match=message):
            AttentionFamily().check(configure("attentionxml", None, settings))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"average_from": [1]},
                r"average_from: found numbers for 1 levels; expected 2, as many",
            ),
            (
                {"average_from": [1, 3]},
                r"average_from: found 3 for level 2; expected less than its 3",
            ),
        ],
    )
    def test_averages_of_other_levels_are_refused(self, settings, message):
        settings = {"attention": settings | {"epochs": [2, 3], "levels": [4]}}
        config = configure("attentionxml", None, settings)
        AttentionFamily().check_levels(config)
        with pytest.raises(ConfigError, match=message):
            AttentionFamily().check_levels(config, 20)

    @pytest.mark.parametrize("name", ["hidden", "layers", "word_dropout", "average_from"])
    def test_inputs_of_the_network(self, name):
        """A run with another value trains anew."""
        config = configure("attentionxml")
        assert f"attention.{name}" in network_inputs(config, AttentionFamily())
        assert f"attention.{name}" not in AttentionFamily().level_inputs()
