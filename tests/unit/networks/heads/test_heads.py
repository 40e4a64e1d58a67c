from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy  # noqa: E402

from head_scenarios import KINDS, OPTIMISERS, positives, shortlists, trained  # noqa: E402
from longtail.errors import ModelFolderError  # noqa: E402
from longtail.networks.heads import updates  # noqa: E402
from longtail.networks.heads.head import Head  # noqa: E402
from longtail.networks.heads.updates import stochastic_bf16  # noqa: E402
from longtail.networks.losses import BinaryCrossEntropy  # noqa: E402

K = 30
D = 20
B = 5
LOSS = BinaryCrossEntropy()


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that every loop over them turns several times."""
    torch.set_num_threads(1)
    monkeypatch.setattr(updates, "CPU_ELEMENTS", 7 * D)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def double_head(**settings):
    head = Head(K, D, dtype=torch.float64, optimiser="sgd", std=0.5, **settings)
    head.set_rows(head.weight, torch.linspace(-1, 1, K))
    return head


def vectors(rng, documents=B):
    return torch.from_numpy(rng.normal(size=(documents, D))).requires_grad_()


def naive_logits(x, weight, bias, candidates):
    """The form with a (B, S, d) tensor, which autograd differentiates in everything."""
    nodes = candidates.clamp(min=0)
    logits = (weight[nodes] * x[:, None]).sum(2) + bias[nodes]
    return torch.where(candidates < 0, 0, logits)


def naive_parameters(head):
    return head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()


def assert_stepped(head, weight, bias, lr=0.5):
    """The step of sgd gives away the gradient: it must be the naive form's."""
    before = weight.detach().clone(), bias.detach().clone()
    head.step(lr, seed=0)
    torch.testing.assert_close((before[0] - head.weight) / lr, weight.grad)
    torch.testing.assert_close((before[1] - head.bias) / lr, bias.grad)


def test_shortlist_gradients_are_those_of_the_naive_form(rng):
    head = double_head()
    x = vectors(rng)
    candidates = shortlists(rng, B, 17, K)
    targets = torch.from_numpy(rng.random((B, 17)))
    weight, bias = naive_parameters(head)
    other = x.detach().clone().requires_grad_()
    expected = naive_logits(other, weight, bias, candidates)
    found = head.scores(x, candidates)
    torch.testing.assert_close(found, expected)
    for logits in (found, expected):
        cross_entropy(logits, targets, reduction="sum").backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert_stepped(head, weight, bias)


def test_scores_of_all_nodes(rng):
    head = double_head()
    x = vectors(rng)
    weight, bias = naive_parameters(head)
    other = x.detach().clone().requires_grad_()
    found = head.scores(x, None)
    expected = other @ weight.T + bias
    torch.testing.assert_close(found, expected)
    for logits in (found, expected):
        logits.sigmoid().square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert_stepped(head, weight, bias)


def test_full_loss_is_cross_entropy_over_all_nodes(rng):
    head = double_head()
    x = vectors(rng)
    nodes, values = positives(rng, B, 4, K)
    values = values.double()
    scale = torch.from_numpy(rng.random(B))
    weight, bias = naive_parameters(head)
    other = x.detach().clone().requires_grad_()
    targets = torch.zeros(B, K + 1, dtype=torch.float64).scatter_(
        1, nodes.long() % (K + 1), values
    )[:, :K]
    expected = (
        cross_entropy(other @ weight.T + bias, targets, reduction="none").sum(1) * scale
    ).sum()
    found = (head.full_loss(x, nodes, values, LOSS) * scale).sum()
    torch.testing.assert_close(found, expected)
    (found * 3).backward()
    (expected * 3).backward()
    torch.testing.assert_close(x.grad, other.grad)
    assert_stepped(head, weight, bias)


def test_full_loss_is_of_each_document(rng):
    head = double_head()
    x = vectors(rng)
    nodes, values = positives(rng, B, 4, K)
    losses = head.full_loss(x, nodes, values, LOSS)
    assert losses.shape == (B,)
    torch.testing.assert_close(
        losses[2], head.full_loss(x[2:3], nodes[2:3], values[2:3], LOSS).squeeze()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_two_micro_batches_are_one_batch(kind, rng):
    x = vectors(rng).detach()
    candidates = shortlists(rng, B, 17, K)
    nodes, values = positives(rng, B, 4, K)

    def run(*parts):
        head = Head(K, D, dtype=torch.float64, optimiser="adamw", weight_decay=0.1)
        for part in parts:
            if kind == "full loss":
                head.full_loss(x[part], nodes[part], values[part], LOSS).sum().backward()
            else:
                head.scores(
                    x[part], candidates[part] if kind == "candidates" else None
                ).square().sum().backward()
        head.step(0.1, seed=0)
        return head.weight

    torch.testing.assert_close(run(slice(0, 2), slice(2, B)), run(slice(0, B)))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("candidates", [True, False])
@pytest.mark.parametrize(("beta1", "epsilon"), [((0.9, 0.9, 0.9), 1e-8), ((0.95, 0.85, 0.9), 1e-2)])
def test_optimisers_follow_their_formulas(optimiser, candidates, beta1, epsilon, rng):
    head = Head(
        K, D, dtype=torch.float64, optimiser=optimiser, weight_decay=0.1, epsilon=epsilon, std=0.5
    )
    weight = head.weight.numpy().copy()
    bias = head.bias.numpy().copy()
    m = np.zeros((K, D))
    v = np.zeros((K, D))
    m_bias = np.zeros(K)
    v_bias = np.zeros(K)
    times = np.zeros(K)
    for step in range(3):
        x = vectors(rng).detach()
        shares = torch.from_numpy(rng.normal(size=(B, 17 if candidates else K)))
        slots = (
            shortlists(rng, B, 17, K)
            if candidates
            else torch.arange(K, dtype=torch.int32).expand(B, K)
        )
        (head.scores(x, slots if candidates else None) * shares).sum().backward()
        head.step(0.1, step, *(() if beta1[step] == 0.9 else (beta1[step],)))
        b = beta1[step]
        real = slots.numpy() >= 0
        nodes = slots.numpy()[real]
        documents = np.nonzero(real)[0]
        g = np.zeros((K, D))
        g_bias = np.zeros(K)
        np.add.at(g, nodes, shares.numpy()[real][:, None] * x.numpy()[documents])
        np.add.at(g_bias, nodes, shares.numpy()[real])
        t = np.unique(nodes)
        times[t] += 1
        if optimiser == "sgd":
            weight[t] -= 0.1 * (g[t] + 0.1 * weight[t])
            bias[t] -= 0.1 * g_bias[t]
            continue
        square = g**2 if optimiser == "adamw" else (g**2).mean(1, keepdims=True)
        v[t] = 0.999 * v[t] + 0.001 * square[t]
        v_bias[t] = 0.999 * v_bias[t] + 0.001 * g_bias[t] ** 2
        m[t], m_bias[t] = b * m[t] + (1 - b) * g[t], b * m_bias[t] + (1 - b) * g_bias[t]
        first = g[t]
        first_bias = g_bias[t]
        if optimiser == "adamw":
            first = m[t] / (1 - b ** times[t])[:, None]
            first_bias = m_bias[t] / (1 - b ** times[t])
        bias_correction = 1 - 0.999 ** times[t]
        weight[t] -= 0.1 * (
            first / (np.sqrt(v[t] / bias_correction[:, None]) + epsilon) + 0.1 * weight[t]
        )
        bias[t] -= 0.1 * first_bias / (np.sqrt(v_bias[t] / bias_correction) + epsilon)
    np.testing.assert_allclose(head.weight.numpy(), weight, rtol=1e-9)
    np.testing.assert_allclose(head.bias.numpy(), bias, rtol=1e-9, atol=1e-12)
    if candidates:
        assert (
            0 < np.count_nonzero(times == 0) < K
        )  # some rows were never touched, and stayed as they were


@pytest.mark.parametrize("mode", ["eval", "no_grad"])
def test_nothing_is_recorded_outside_training(mode, rng):
    head = Head(K, D, optimiser="sgd")
    x = vectors(rng).float()
    candidates = shortlists(rng, B, 17, K)
    if mode == "eval":
        head.eval().scores(x, candidates).sum().backward()
    else:
        with torch.no_grad():
            assert not head.scores(x, candidates).requires_grad
    before = head.weight.clone()
    head.step(1.0, seed=0)
    assert torch.equal(head.weight, before)


def test_records_are_used_once_and_can_be_forgotten(rng):
    head = Head(K, D, optimiser="sgd")
    x = vectors(rng).float()
    head.scores(x, None).sum().backward()
    head.step(1.0, seed=0)
    before = head.weight.clone()
    head.step(1.0, seed=0)
    head.scores(x, None).sum().backward()
    head.forget()
    head.step(1.0, seed=0)
    assert torch.equal(head.weight, before)


def test_a_vector_without_gradient_still_trains_the_head(rng):
    head = Head(K, D, optimiser="sgd")
    x = vectors(rng).float().detach()
    before = head.weight.clone()
    head.scores(x, shortlists(rng, B, 17, K)).sum().backward()
    head.step(1.0, seed=0)
    assert not torch.equal(head.weight, before)


def test_records_of_two_kinds_are_refused(rng):
    head = Head(K, D)
    x = vectors(rng).float()
    head.scores(x, None).sum().backward()
    head.scores(x, shortlists(rng, B, 17, K)).sum().backward()
    with pytest.raises(
        ValueError, match="scores of all nodes and scores of candidates; expected one kind"
    ):
        head.step(1.0, seed=0)


@pytest.mark.parametrize("slots", [0, 3])
def test_shortlists_of_padding_alone_change_nothing(slots, rng):
    head = Head(K, D, weight_decay=0.5)
    x = vectors(rng).float()
    x.retain_grad()
    before = head.to_arrays()
    logits = head.scores(x, torch.full((B, slots), -1))
    logits.sum().backward()
    assert logits.shape == (B, slots)
    assert not logits.any()
    assert not x.grad.any()
    head.step(1.0, seed=0)
    assert all(np.array_equal(before[name], array) for name, array in head.to_arrays().items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_byte_of_shortlists(dtype, monkeypatch):
    monkeypatch.undo()  # blocks large enough for several threads
    run = {
        "dtype": dtype,
        "optimiser": "adamw",
        "n_nodes": 700,
        "width": 64,
        "documents": 64,
        "slots": 300,
        "steps": 1,
    }
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(trained("candidates", **run))
    torch.set_num_threads(1)
    assert all(np.array_equal(array, results[1][name]) for name, array in results[0].items())


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_run_gives_the_same_bytes(kind):
    one = trained(kind, dtype=torch.bfloat16)
    other = trained(kind, dtype=torch.bfloat16)
    assert all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("k", [1, 6, 29, 50])
def test_best_is_the_top_of_all_logits(k, rng):
    head = double_head()
    x = vectors(rng)
    logits, nodes = head.best(x, k)
    expected, places = (x @ head.weight.T + head.bias).topk(min(k, K), 1)
    torch.testing.assert_close(logits, expected.detach())
    assert torch.equal(nodes, places.to(torch.int32))


def test_stochastic_rounding_is_right_on_average():
    values = torch.tensor([1.001, -3.0017, 1e-3, 2.0, -1e-20]).repeat(40, 400)
    rounded = torch.stack(
        [stochastic_bf16(values, torch.arange(40), seed).float() for seed in range(20)]
    )
    step = values[0, :5].abs() * 2.0**-7  # no less than the distance of neighbours
    assert (rounded - values).abs().amax((0, 1))[:5].le(step).all()
    mean = rounded.view(-1, 400, 5).mean((0, 1))
    assert ((mean - values[0, :5]).abs() <= 4 * step / 2 / np.sqrt(20 * 40 * 400)).all()
    assert torch.equal(rounded[:, :, 3], torch.full((20, 40), 2.0))  # a bf16 number stays
    assert rounded[:, :, 0].unique().numel() == 2
    assert rounded.view(20, -1).std(0)[0] > 0  # another seed, other bits


def test_stochastic_rounding_keeps_inf_and_nan():
    bits = np.array([0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    rounded = stochastic_bf16(torch.from_numpy(bits.view(np.float32))[None], torch.tensor([5]), 1)[
        0
    ]
    assert rounded[:2].tolist() == [np.inf, -np.inf]
    assert rounded[2:].isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_small_steps_add_up_in_bf16(kind, rng):
    """A thousandth of the spacing of bf16 numbers is lost by rounding to nearest, not here."""
    head = Head(K, D, optimiser="sgd", dtype=torch.bfloat16)
    x = torch.ones(1, D)
    head.set_rows(torch.ones(K, D))
    nodes = torch.arange(K, dtype=torch.int32)[None]
    for step in range(100):
        if kind == "full loss":  # target 0 and logits of 20: the gradient is 1
            head.full_loss(x, nodes[:, :0], torch.zeros(1, 0), LOSS).sum().backward()
        else:
            head.scores(x, nodes if kind == "candidates" else None).sum().backward()
        head.step(2.0**-7 / 100, seed=step)
    assert head.weight.float().mean().item() == pytest.approx(1 - 2.0**-7, abs=5e-4)


def test_autocast_multiplies_in_half_and_sums_in_float(rng):
    head = Head(K, D, optimiser="sgd", std=0.5)
    x = vectors(rng).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = head.scores(x, None)
        picked = head.scores(x, torch.arange(K, dtype=torch.int32).expand(B, K))
        (gradient,) = torch.autograd.grad(picked.sum(), x)
    half = (part.detach().bfloat16().float() for part in (x, head.weight.T))
    assert found.dtype == picked.dtype == torch.float32
    torch.testing.assert_close(found, torch.mm(*half))
    torch.testing.assert_close(picked, x @ head.weight.T)
    torch.testing.assert_close(gradient, head.weight.sum(0).expand(B, D))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_arrays_there_and_back(optimiser, dtype, rng):
    head = Head(K, D, optimiser=optimiser, dtype=dtype)
    head.scores(vectors(rng).float(), shortlists(rng, B, 17, K)).sum().backward()
    head.step(0.1, seed=0)
    arrays = head.to_arrays()
    other = Head(K, D, optimiser=optimiser, dtype=dtype, seed=9)
    other.load_arrays(arrays)
    assert arrays["weight"].dtype == (np.uint16 if dtype == torch.bfloat16 else np.float32)
    back = other.to_arrays()
    assert back.keys() == arrays.keys()
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())
    head.weight.zero_()
    assert arrays["weight"].any()  # a copy


def test_weights_alone_start_the_optimiser_anew(rng):
    head = Head(K, D)
    head.scores(vectors(rng).float(), None).sum().backward()
    head.step(0.1, seed=0)
    arrays = head.to_arrays(state=False)
    assert arrays.keys() == {"weight", "bias"}
    head.load_arrays(arrays)
    assert not head.to_arrays()["count"].any()
    assert np.array_equal(head.to_arrays()["weight"], arrays["weight"])


def test_arrays_of_another_head_are_refused():
    with pytest.raises(
        ModelFolderError,
        match=r"head, weight: found \(30, 20\) float32; expected \(30, 20\) uint16;",
    ):
        Head(K, D, dtype=torch.bfloat16).load_arrays(Head(K, D).to_arrays())
    with pytest.raises(ModelFolderError, match="head, mean: found nothing; expected"):
        Head(K, D, optimiser="adamw").load_arrays(
            Head(K, D, optimiser="adamw").to_arrays(state=False) | {"count": np.zeros(K, np.int32),
            "square": np.zeros((K, D), np.float32), "bias_square": np.zeros(K, np.float32)}
        )  # fmt: skip


def test_rows_start_from_the_seed():
    one = Head(K, D, seed=1)
    same = Head(K, D, seed=1)
    other = Head(K, D, seed=2)
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)
    assert 0.015 < one.weight.std() < 0.025
