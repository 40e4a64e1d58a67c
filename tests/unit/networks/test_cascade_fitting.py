"""How one phase of training hands over to the next: what is taken over, what is new, and what stays as it is."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

import longtail as lt
from longtail.config import Cascade, Training
from longtail.features.word_tokens import idf_of
from longtail.kernels import pool
from longtail.methods import configure
from longtail.networks import cascade_fitting, fitting
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batch
from longtail.networks.cascade import CascadeXML
from longtail.networks.cascade_family import CascadeFamily
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.encoders.word_encoder import make_word_encoder
from longtail.networks.heads.head import Head
from longtail.networks.heads.label_text import label_words
from longtail.networks.heads.text_head import TextHead
from longtail.networks.network_folder import first_encoder, tokeniser_for
from longtail.steps.run import Run
from longtail.steps.work import Work
from longtail.tree.tree import LabelTree

pytestmark = pytest.mark.usefixtures("one_thread")

N_LABELS, N_CLUSTERS, WIDTH, SHORTLIST = 32, 4, 16, 6
EMBEDDING = "encoder.embedding.weight"
TREE = LabelTree(
    np.random.default_rng(5).permutation(N_LABELS).astype(np.int32),
    (np.arange(0, N_LABELS + 1, N_LABELS // N_CLUSTERS),),
)


def documents_of():
    """Return documents on some of eight subjects; a label is called by its subject and a word of its own."""
    chance = np.random.default_rng(0)
    names = [f"subject{at % 8} thing{at}" for at in range(N_LABELS)]
    chosen = [chance.choice(N_LABELS, 2, replace=False) for _ in range(96)]
    texts = [" ".join([*(names[at] for at in own), f"noise{chance.integers(9)}"]) for own in chosen]
    return lt.Dataset.of(texts, [[names[at] for at in own] for own in chosen], names)


def copied(network):
    return {name: array.copy() for name, array in network.to_arrays().items()}


def phases_of(monkeypatch, method, tree=TREE, **settings):
    """Train a method; return the ranker, and of each phase its network, and its weights before and after."""
    phases, real = [], cascade_fitting.fit

    def fit(network, *given, **options):
        phase = SimpleNamespace(network=network, before=copied(network), parts=None)
        phase.rates = given[1].encoder_rate, given[1].head_rate
        if isinstance(network.heads[-1], TextHead):
            phase.parts = network.heads[-1].text.parts
        phases.append(phase)
        history = real(network, *given, **options)
        phase.after, phase.epochs = copied(network), len(history.epochs)
        return history

    monkeypatch.setattr(cascade_fitting, "fit", fit)
    own = {
        "encoder": {"width": WIDTH, "max_tokens": 8, "min_count": 1},
        "training": {"epochs": 5, "batch_size": 16},
    }
    own["training"] |= {"encoder_rate": 1e-2, "head_rate": 1e-2}
    config = configure(method, None, own, settings)
    documents = documents_of()
    tokeniser = tokeniser_for(documents, config.encoder)
    tokens = tokeniser(documents.document_texts())
    embedder = Embedder(tokeniser, LastLayer(first_encoder(tokeniser, tokens, config)), "float32")
    with pool.threads(1):
        run = NetworkRun(documents, embedder, tokens, tree, config, Work())
        ranker = CascadeFamily().fit(run)
    return SimpleNamespace(
        ranker=ranker, phases=phases, documents=documents, tokens=tokens, tokeniser=tokeniser
    )


def words_of_labels(run):
    """Return z⁰ (L, V), rows in the order of labels."""
    n_words = len(run.phases[0].after[EMBEDDING])
    return label_words(run.tokeniser(run.documents.labels.described()), idf_of(run.tokens, n_words))


def same(ours, theirs, names):
    names = list(names)
    assert names
    return all(np.array_equal(ours[name], theirs[name]) for name in names)


def of_encoder(arrays):
    return [name for name in arrays if name.startswith("encoder.")]


def within_clusters(tree, rows):
    """Return the mean cosine of labels with those of their node; ``rows`` (L, D) in the order of labels."""
    units = (rows / np.linalg.norm(rows, axis=1, keepdims=True))[tree.order]
    node = tree.parents(1)
    return (units @ units.T)[(node[:, None] == node) & ~np.eye(len(node), dtype=bool)].mean()


@pytest.fixture(scope="module")
def tied():
    with pytest.MonkeyPatch.context() as patch:
        return phases_of(patch, "inceptionxml-lf", phases={"first_share": 0.5})


@pytest.fixture(scope="module")
def surrogate():
    settings = {
        "phases": {"shortlist": SHORTLIST, "first_share": 0.5},
        "cascade": {"dropout": [0.1, 0.2]},
    }
    with pytest.MonkeyPatch.context() as patch:
        return phases_of(patch, "astec", **settings)


@pytest.mark.parametrize("method", ["astec", "inceptionxml-lf"])
def test_the_first_phase_may_have_a_rate_of_its_own(monkeypatch, method):
    run = phases_of(
        monkeypatch,
        method,
        phases={"first_rate": 0.03},
        training={"epochs": 2, "head_rate": 0.002},
    )
    assert [phase.rates for phase in run.phases] == [(0.03, 0.03), (0.01, 0.002)]


class TestTied:
    """InceptionXML-LF, appendix A.4."""

    def test_only_the_second_phase_has_free_rows(self, tied):
        first, second = tied.phases
        assert (first.parts, second.parts) == (("text", "graph"), ("text", "graph", "free"))
        assert not [name for name in first.after if ".free." in name]
        assert (first.epochs, second.epochs) == (2, 3)

    def test_the_second_tree_is_clustered_by_label_words(self, tied):
        tree = tied.ranker.tree
        assert tree.widths == TREE.widths
        assert not np.array_equal(tree.order, TREE.order)
        z1 = words_of_labels(tied) @ tied.phases[0].after[EMBEDDING]
        assert within_clusters(tree, z1) > within_clusters(TREE, z1) + 0.1

    def test_free_rows_start_at_z1_in_the_order_of_the_new_tree(self, tied):
        z1 = words_of_labels(tied) @ tied.phases[0].after[EMBEDDING]
        found = tied.phases[1].before["heads.1.free.weight"]
        np.testing.assert_allclose(found, z1[tied.ranker.tree.order], rtol=1e-5, atol=1e-6)
        assert not np.allclose(tied.phases[1].after["heads.1.free.weight"], found)

    def test_encoder_and_maps_of_words_go_on(self, tied):
        first, second = tied.phases
        maps = [name for name in first.after if ".phi_l." in name or ".phi_g." in name]
        assert same(first.after, second.before, [*of_encoder(first.after), *maps])
        moved = [*maps, EMBEDDING]
        assert not any(
            np.array_equal(first.before[name], first.after[name])
            for name in moved
            if "R." not in name
        )

    def test_what_is_left_is_a_plain_head_with_the_same_classifiers(self, tied):
        own = tied.ranker.network.heads[-1]
        assert isinstance(own, Head)
        assert own.weight.shape == (N_LABELS, WIDTH)
        np.testing.assert_array_equal(own.bias, tied.phases[1].after["heads.1.bias"])


class TestSurrogate:
    """DeepXML's modules II to IV, as Astec has them."""

    def test_the_first_phase_is_on_clusters(self, surrogate):
        first, second = surrogate.phases
        assert first.network.tables.widths == (N_CLUSTERS,)
        assert first.network.layers == ((1,),)
        assert second.network.tables.widths == (N_LABELS, N_LABELS)
        assert (first.epochs, second.epochs) == (2, 3)
        assert [module.p for phase in surrogate.phases for module in phase.network.dropouts] == [
            0.1,
            0.1,
            0.2,
        ]

    def test_vectors_of_words_do_not_move_in_the_second(self, surrogate):
        first, second = surrogate.phases
        assert not np.array_equal(first.before[EMBEDDING], first.after[EMBEDDING])
        assert same(first.after, second.before, of_encoder(first.after))
        assert same(second.before, second.after, [EMBEDDING])
        assert not np.array_equal(
            second.before["encoder.residual.map.bias"], second.after["encoder.residual.map.bias"]
        )

    def test_the_first_level_is_fixed_at_the_centroids(self, surrogate):
        second, tree = surrogate.phases[1], surrogate.ranker.tree
        assert same(second.before, second.after, ["heads.0.weight", "heads.0.bias"])
        vectors = surrogate.ranker.level_vectors(surrogate.tokens)[0]
        centred = vectors - vectors.mean(0)
        centroids = (surrogate.documents.label_matrix.T @ centred)[tree.order]
        rows = second.after["heads.0.weight"]
        cosines = (
            (rows * centroids).sum(1)
            / np.linalg.norm(rows, axis=1)
            / np.linalg.norm(centroids, axis=1)
        )
        np.testing.assert_allclose(cosines, 1, atol=1e-4)
        assert not np.array_equal(second.before["heads.1.weight"], second.after["heads.1.weight"])

    def shortlists(self, surrogate, truth):
        """Return nodes and targets of the labels' shortlists in training; ``truth`` has a dict a document."""
        network, seen = surrogate.ranker.network, []
        ids, mask = surrogate.tokens.padded(np.arange(len(truth)))
        positives = np.full((len(truth), 4), -1, np.int32)
        values = np.zeros(positives.shape, np.float32)
        for at, own in enumerate(truth):
            positives[at, : len(own)], values[at, : len(own)] = (
                sorted(own),
                [own[label] for label in sorted(own)],
            )
        batch = Batch(*map(torch.from_numpy, (ids, mask, positives, values)), np.arange(len(truth)))
        with pytest.MonkeyPatch.context() as patch:
            real = type(network)._shortlist
            patch.setattr(
                CascadeXML, "_shortlist", lambda *given: seen.append(real(*given)) or seen[-1]
            )
            losses = network.losses(batch)
        assert list(losses) == ["level 2"]  # the fixed level has none
        return batch, seen[1].nodes.numpy(), seen[1].targets.numpy()

    def test_a_shortlist_is_the_nearest_labels_and_the_true_ones_with_their_values(self, surrogate):
        network, count = surrogate.ranker.network, 10
        ids, mask = surrogate.tokens.padded(np.arange(count))
        theta = network.vectors(torch.from_numpy(ids), torch.from_numpy(mask))[0]
        order = network.heads[0].scores(theta, None).argsort(1, descending=True).numpy()
        truth = [
            {int(own[0]): 1.0, int(own[-1]): 0.3} for own in order
        ]  # the nearest, and the one farthest away
        _, nodes, targets = self.shortlists(surrogate, truth)
        for at, own in enumerate(truth):
            found = dict(zip(nodes[at].tolist(), targets[at].tolist(), strict=True))
            found.pop(-1)
            assert set(found) == {*order[at, :SHORTLIST].tolist(), *own}
            assert (nodes[at] >= 0).sum() == SHORTLIST + 1
            assert {node: value for node, value in found.items() if value} == pytest.approx(own)

    def test_ranked_labels_are_of_the_shortlist(self, surrogate):
        assert surrogate.ranker.network.kept == (SHORTLIST,)
        found = surrogate.ranker.search(surrogate.tokens, N_LABELS)[0]
        assert np.diff(found.indptr).max() == SHORTLIST

    def test_labels_without_clusters(self, monkeypatch):
        """So few that all fit into one node: phase I is on the labels themselves."""
        run = phases_of(
            monkeypatch, "astec", LabelTree(TREE.order, ()), phases={"first_share": 0.5}
        )
        assert [phase.network.tables.widths for phase in run.phases] == [
            (N_LABELS,),
            (N_LABELS, N_LABELS),
        ]


# parameters that labels alone train, and one of those that they share, of each kind of encoder
OF_LABELS = {
    "inception": ("hidden.1.",),
    "routed-inception": ("second.1.", "second_norm.1.", "hidden.1."),
    "cnn": (),
}
SHARED = {
    "inception": "convolutions.0.weight",
    "routed-inception": "convolutions.0.weight",
    "cnn": "filters.0.weight",
}


class TestDetached:
    """The first epochs of InceptionXML: labels train their own layer, and nothing that clusters read."""

    def gradients(self, kind, epoch, wanted):
        """Return the encoder's gradients of the losses ``wanted`` in an epoch, by name."""
        chance = np.random.default_rng(2)
        vectors = chance.normal(size=(20, WIDTH)).astype(np.float32)
        encoder = make_word_encoder(kind, vectors, np.ones(20, np.float32), 0, 8, 0)
        cascade = Cascade(shortlist=(2,), last_level="shortlist", detach_epochs=2)
        network = CascadeXML(encoder, TREE, cascade, Training(), 0, std=0.5).eval()  # no dropout
        ids = torch.from_numpy(chance.integers(1, 20, (6, 8)))
        positives = torch.from_numpy(
            np.sort(chance.permutation(N_LABELS)[:24].reshape(6, 4).astype(np.int32), 1)
        )
        losses = network.losses(Batch(ids, None, positives, torch.ones(6, 4), np.arange(6), epoch))
        total = sum(losses[name] for name in wanted)
        named = dict(network.encoder.named_parameters())
        if not total.requires_grad:
            return {name: torch.zeros_like(own) for name, own in named.items()}
        found = torch.autograd.grad(total, list(named.values()), allow_unused=True)
        return {
            name: torch.zeros_like(named[name]) if own is None else own
            for name, own in zip(named, found, strict=True)
        }

    @pytest.mark.parametrize("kind", OF_LABELS)
    @pytest.mark.parametrize("epoch", [0, 1, 2, 7])
    def test_until_the_epochs_are_over(self, kind, epoch):
        both = self.gradients(kind, epoch, ["level 1", "level 2"])
        above, labels = (self.gradients(kind, epoch, [name]) for name in ("level 1", "level 2"))
        assert both["embedding.weight"].abs().sum() > 0
        trained = {name for name, own in labels.items() if own.any()}
        of_labels = {name for name in both if name.startswith(OF_LABELS[kind])}
        assert not any(above[name].any() for name in of_labels)
        if epoch < 2:
            assert trained == of_labels
        else:
            assert trained > of_labels
            assert {"embedding.weight", SHARED[kind]} < trained
            assert "hidden.0.map.bias" not in trained
        for name in both:
            torch.testing.assert_close(both[name], above[name] + labels[name], rtol=1e-4, atol=1e-6)


def test_texts_are_read_once_where_no_stages_are_kept():
    documents, config, read = documents_of(), configure("xml-cnn"), []
    tokeniser, run = tokeniser_for(documents, config.encoder), Run(config, Work())
    both = [
        fitting._tokens(documents, lambda texts: read.append(1) or tokeniser(texts), run)
        for _ in range(2)
    ]
    assert read == [1]
    assert [own.ids.tolist() for own in both] == [
        tokeniser(documents.document_texts()).ids.tolist()
    ] * 2
