"""Classifiers made of label words, against the equations written out label by label."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

torch = pytest.importorskip("torch")

from longtail.features.tokens import Tokens  # noqa: E402
from longtail.networks.heads.label_text import LabelText, label_words  # noqa: E402

L = 13
V = 17
D = 6
PARTS = [
    ("text",),
    ("graph",),
    ("text", "graph"),
    ("text", "free"),
    ("graph", "free"),
    ("text", "graph", "free"),
]
COMBINE = ["attention", "sum"]


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def words(seed, rows=L):
    """Weights of words of labels, of which one has no word."""
    chance = np.random.default_rng(seed)
    matrix = random_array(
        (rows, V), density=0.3, rng=chance, format="csr", dtype=np.float32
    ).tolil()
    matrix[2] = 0
    return csr_array(matrix)


def graph(n=L):
    """A label graph: each label is its own neighbour, and one has no other."""
    others = random_array(
        (n, n), density=0.3, rng=np.random.default_rng(2), format="csr", dtype=np.float32
    ).tolil()
    others[1] = 0
    return csr_array(others + np.eye(n, dtype=np.float32))


def made(parts=("text", "graph", "free"), combine="attention", dtype=torch.float64, seed=0):
    """Classifiers whose Φ have learnt something, so that no part of them is at its first value."""
    torch.manual_seed(5)
    embedding = torch.nn.Embedding(V, D, dtype=dtype)
    text = LabelText(embedding, words(1), graph(), parts, combine, seed)
    with torch.no_grad():
        for parameter in text.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=dtype) / 3)
    text(None, torch.zeros(L, D, dtype=dtype))  # one power iteration
    return text


def slow_phi(phi, z):
    norm = phi.R.parametrizations.weight
    R = norm.original / (norm[0]._u @ norm.original @ norm[0]._v)
    return phi.alpha * R @ (z * (1 + torch.erf(z / 2**0.5)) / 2) + phi.beta * z


def slow_rows(text, free=None, z0=None, z0_graph=None):
    """The equations of A.3, one label at a time; differentiable."""
    z0, z0_graph = (
        words(1) if z0 is None else z0,
        graph() @ words(1) if z0_graph is None else z0_graph,
    )
    E = text.embedding.weight
    rows = []
    for label in range(z0.shape[0]):
        z1, z2 = (sum((float(row[v]) * E[v] for v in range(V)), torch.zeros(D, dtype=E.dtype))
                  for row in (z0[[label]].toarray()[0], z0_graph[[label]].toarray()[0]))  # fmt: skip
        own = {
            "text": lambda z=z1: slow_phi(text.phi_l, z),
            "graph": lambda z=z2: slow_phi(text.phi_g, z),
        }
        own |= {"free": lambda z=z1, at=label: z if free is None else free[at]}
        parts = [own[part]() for part in text.parts]
        alpha = [1.0] * len(parts)
        if text.attention is not None:
            scores = text.attention.weight @ torch.cat(parts) + text.attention.bias
            alpha = scores.exp() / scores.exp().sum()
        rows.append(sum(weight * part for weight, part in zip(alpha, parts, strict=True)))
    return torch.stack(rows)


@pytest.mark.parametrize("combine", COMBINE)
@pytest.mark.parametrize("parts", PARTS)
def test_rows_and_gradients_are_those_of_the_equations(parts, combine):
    text = made(parts, combine)
    free = torch.randn(L, D, dtype=torch.float64, requires_grad=True)
    found = text(None, free)
    expected = slow_rows(text, free)
    torch.testing.assert_close(found, expected)
    learnt = [text.embedding.weight, *text.parameters(), *([free] if "free" in parts else [])]
    shares = torch.randn(L, D, dtype=torch.float64)
    one, other = (torch.autograd.grad((rows * shares).sum(), learnt) for rows in (found, expected))
    torch.testing.assert_close(one, other)
    assert (text.attention is None) == (combine == "sum" or len(parts) == 1)


def test_some_labels_are_those_of_all_in_the_order_asked_for():
    text = made()
    free = torch.randn(L, D, dtype=torch.float64)
    every = text.eval()(None, free)
    labels = torch.tensor([12, 2, 0, 7])
    torch.testing.assert_close(text(labels, free[labels]), every[labels])
    torch.testing.assert_close(text.z1(labels), text.z1()[labels])
    assert text(labels[:0], free[:0]).shape == (0, D)


def test_a_label_without_words_has_no_vector():
    text = made(("text",))
    assert not text.z1()[2].any()
    assert not text(torch.tensor([2]), None).any()


def test_gradients_by_differences():
    text = made(combine="attention")
    for phi in (text.phi_l, text.phi_g):
        phi.R.parametrizations.weight[
            0
        ].n_power_iterations = 0  # else each call changes the function
    labels = torch.tensor([4, 0, 2])
    free = torch.randn(3, D, dtype=torch.float64, requires_grad=True)
    R = text.phi_g.R.parametrizations.weight.original
    assert torch.autograd.gradcheck(
        lambda *_: text(labels, free),
        (free, text.embedding.weight, R, text.phi_l.alpha, text.attention.weight),
    )


def test_at_first_the_residual_map_is_the_identity():
    embedding = torch.nn.Embedding(V, D, _weight=torch.zeros(V, D))
    phi = LabelText(embedding, words(1), None, ("text",), "sum", 0).phi_l
    torch.testing.assert_close(phi.R.weight, torch.eye(D))
    z = torch.randn(4, D)
    torch.testing.assert_close(phi(z), torch.nn.functional.gelu(z) / 2 + z / 2)


def test_the_map_stays_of_norm_one():
    text = made()
    for _ in range(50):
        text(None, torch.zeros(L, D, dtype=torch.float64))
    assert torch.linalg.matrix_norm(text.phi_l.R.weight, 2).item() == pytest.approx(1, abs=1e-3)


def test_the_word_vectors_are_the_encoders():
    text = made()
    assert not any(parameter is text.embedding.weight for parameter in text.parameters())
    assert text.state_dict().keys() == {
        *(f"phi_{of}.{name}" for of in "lg" for name in ("alpha", "beta", "R.parametrizations.weight.original",
          "R.parametrizations.weight.0._u", "R.parametrizations.weight.0._v")),
        "attention.weight", "attention.bias",
    }  # fmt: skip


def test_all_chance_comes_from_the_seed():
    before = torch.random.get_rng_state()
    embedding = torch.nn.Embedding(V, D, _weight=torch.zeros(V, D))
    one, same, other = (
        LabelText(embedding, words(1), graph(), PARTS[-1], "attention", seed) for seed in (1, 1, 2)
    )
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), same.state_dict().values(), strict=True)
    )
    assert not torch.equal(one.attention.weight, other.attention.weight)


def test_labels_never_trained_on():
    text = made().eval()
    z0 = words(3, rows=4)
    found = text.new_rows(z0)
    torch.testing.assert_close(
        found, slow_rows(text, torch.zeros(4, D, dtype=torch.float64), z0, z0).detach()
    )
    assert not found.requires_grad


def test_long_vectors_of_words_start_as_short_ones():
    long = torch.nn.Embedding(V, D)
    short = torch.nn.Embedding(V, D)
    torch.nn.init.normal_(long.weight, std=9)
    torch.nn.init.normal_(short.weight, std=0.01)
    scales = [
        LabelText(own, words(1), graph(), ("text",), "sum", 0).phi_l.beta.item()
        for own in (long, short)
    ]
    length = long.weight.square().sum(1).mean().sqrt().item()
    assert scales == pytest.approx([0.5 / length, 0.5])


def test_phase_two_takes_what_phase_one_learnt():
    first = made(("text", "graph"))
    second = made(seed=1)
    third = made(("graph", "text"), seed=2)
    attention = second.attention.weight.clone()
    second.start_from(first)
    third.start_from(first)
    z = torch.randn(3, D, dtype=torch.float64)
    for other in (second.eval(), third.eval()):
        torch.testing.assert_close(other.phi_l(z), first.eval().phi_l(z))
        torch.testing.assert_close(other.phi_g(z), first.phi_g(z))
    assert torch.equal(second.attention.weight, attention)  # of other parts
    assert torch.equal(third.attention.weight, first.attention.weight)


def test_what_does_not_fit_is_refused():
    embedding = torch.nn.Embedding(V, D)
    with pytest.raises(ValueError, match="found no label graph"):
        LabelText(embedding, words(1), None, ("text", "graph"), "sum", 0)
    with pytest.raises(ValueError, match="found no part"):
        LabelText(embedding, words(1), None, (), "sum", 0)
    with pytest.raises(ValueError, match=r"label graph: found \(12, 12\); expected \(13, 13\)"):
        LabelText(embedding, words(1), graph(12), ("graph",), "sum", 0)
    with pytest.raises(ValueError, match=r"words of labels: found \(13, 17\); expected \(13, 18\)"):
        LabelText(torch.nn.Embedding(V + 1, D), words(1), None, ("text",), "sum", 0)
    with pytest.raises(ValueError, match="found 1 parts; expected text, free"):
        LabelText(embedding, words(1), None, ("text", "free"), "sum", 0)(None, None)


def test_label_words_are_tf_idf_without_padding():
    ids = np.array([3, 1, 3, 0, 2, 4, 4], np.uint16)  # labels: 3 1 3, padding alone, 2 4 4
    tokens = Tokens(ids, np.array([0, 3, 4, 7]), pad=0, pad_left=False)
    idf = np.array([9.0, 1.5, 0.0, 2.0, 3.0])
    found = label_words(tokens, idf)
    length = np.hypot(4, 1.5)
    expected = [[0, 1.5 / length, 0, 4 / length, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    np.testing.assert_allclose(found.toarray(), expected, rtol=1e-6)
    assert found.dtype == np.float32
    assert found.nnz == 3
    assert idf[0] == 9.0
