"""Heads whose classifiers are made of label words, against dense autograd and against plain heads."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from test_label_text import D, L, V, made, slow_rows, words  # noqa: E402
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy  # noqa: E402

from head_scenarios import OPTIMISERS, positives, shortlists  # noqa: E402
from longtail.errors import ModelFolderError  # noqa: E402
from longtail.networks.heads import triton_launch, updates  # noqa: E402
from longtail.networks.heads.head import Head  # noqa: E402
from longtail.networks.heads.label_text import LabelText  # noqa: E402
from longtail.networks.heads.text_head import TextHead  # noqa: E402
from longtail.networks.losses import BinaryCrossEntropy  # noqa: E402
from longtail.networks.shortlist import TreeTables  # noqa: E402
from longtail.tree.tree import LabelTree  # noqa: E402

B = 5
S = 11
LOSS = BinaryCrossEntropy()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
SOME_PARTS = [("text", "graph"), ("text", "free"), ("text", "graph", "free")]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that every loop over them turns several times."""
    torch.set_num_threads(1)
    monkeypatch.setattr(updates, "CPU_ELEMENTS", 3 * D)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def head_of(parts=("text", "graph", "free"), dtype=torch.float64, **settings):
    head = TextHead(made(parts, dtype=dtype), dtype=dtype, std=0.5, **settings)
    head.set_bias(torch.linspace(-1, 1, L))
    return head


def vectors(rng, documents=B):
    return torch.from_numpy(rng.normal(size=(documents, D))).requires_grad_()


def learnt_by_adamw(head):
    return [
        head.text.embedding.weight,
        *(part for group in head.optimiser_parameters() for part in group),
    ]


def assert_same_gradients(head, found, expected, x, free, lr=0.5):
    """Of all that AdamW trains and of x; the step of sgd gives away that of the free rows."""
    wanted = [x, *learnt_by_adamw(head)]
    theirs = torch.autograd.grad(
        expected, [*wanted, *([] if free is None else [free])], retain_graph=True
    )
    found.backward()
    for parameter, gradient in zip(wanted, theirs, strict=False):
        torch.testing.assert_close(parameter.grad, gradient)
    head.step(lr, seed=0)
    if free is not None:
        torch.testing.assert_close((free - head.free.weight).detach() / lr, theirs[-1])


def free_rows(head):
    return None if head.free is None else head.free.weight.clone().requires_grad_()


@pytest.mark.parametrize("parts", SOME_PARTS)
def test_shortlists_are_scored_as_by_all_rows(parts, rng):
    head = head_of(parts, optimiser="sgd")
    x = vectors(rng)
    candidates = shortlists(rng, B, S, L)
    targets = torch.from_numpy(rng.random((B, S)))  # soft ones too
    free = free_rows(head)
    found = head.scores(x, candidates)
    logits = x @ slow_rows(head.text, free).T + head.bias
    expected = torch.where(candidates < 0, 0, logits.gather(1, candidates.clamp(min=0).long()))
    torch.testing.assert_close(found, expected)
    assert not found[0].any()  # padding alone
    losses = (
        cross_entropy(part, targets, reduction="none").mul(candidates >= 0).sum()
        for part in (found, expected)
    )
    assert_same_gradients(head, *losses, x, free)


def test_soft_positives_have_their_targets_in_a_shortlist_and_padding_has_none(rng):
    """Kept is the first node of three; of the positives one lies below it, the other is put behind."""
    tree = LabelTree(np.arange(L, dtype=np.int32), (np.array([0, 4, 7, L]),))
    head = head_of(optimiser="sgd")
    x = vectors(rng, 2)
    truth = torch.tensor([[1, 9], [5, -1]], dtype=torch.int32)
    values = torch.tensor([[0.25, 0.5], [1, 0]])
    shortlist = TreeTables(tree).refine_with(
        0, torch.tensor([[0], [1]], dtype=torch.int32), truth, values
    )
    free = free_rows(head)
    p = head.scores(x, shortlist.nodes)
    found = (
        cross_entropy(p, shortlist.targets.double(), reduction="none") * shortlist.counted(p)
    ).sum()
    logits = x @ slow_rows(head.text, free).T + head.bias
    shortlists = [{0: 0, 1: 0.25, 2: 0, 3: 0, 9: 0.5}, {4: 0, 5: 1, 6: 0}]
    pairs = [
        (logits[i, label], float(y)) for i, own in enumerate(shortlists) for label, y in own.items()
    ]
    expected = sum(torch.nn.functional.softplus(z) - y * z for z, y in pairs)
    torch.testing.assert_close(found, expected)
    assert_same_gradients(head, found, expected, x, free)


def test_scores_of_all_labels(rng):
    head = head_of(optimiser="sgd")
    x = vectors(rng)
    free = free_rows(head)
    found = head.scores(x, None)
    expected = x @ slow_rows(head.text, free).T + head.bias
    torch.testing.assert_close(found, expected)
    assert_same_gradients(
        head, found.sigmoid().square().sum(), expected.sigmoid().square().sum(), x, free
    )


@pytest.mark.parametrize("parts", SOME_PARTS)
def test_full_loss_is_cross_entropy_over_all_labels(parts, rng):
    head = head_of(parts, optimiser="sgd")
    x = vectors(rng)
    nodes, values = positives(rng, B, 4, L)
    free = free_rows(head)
    weights = torch.linspace(-1, 2, B)
    found = head.full_loss(x, nodes, values, LOSS)
    targets = torch.zeros(B, L + 1, dtype=torch.float64).scatter_(
        1, nodes.long() % (L + 1), values.double()
    )[:, :L]
    losses = cross_entropy(
        x @ slow_rows(head.text, free).T + head.bias, targets, reduction="none"
    ).sum(1)
    torch.testing.assert_close(found, losses)
    assert_same_gradients(head, (found * weights).sum(), (losses * weights).sum(), x, free)


def test_gradients_by_differences(rng):
    head = head_of(("text",))
    x = vectors(rng)
    candidates = shortlists(rng, B, S, L)
    nodes, values = positives(rng, B, 4, L)
    head.text.phi_l.R.parametrizations.weight[
        0
    ].n_power_iterations = 0  # else each call changes the function
    R = head.text.phi_l.R.parametrizations.weight.original
    given = x, head.text.embedding.weight, R, head.bias
    assert torch.autograd.gradcheck(lambda x, *_: head.scores(x, candidates), given)
    assert torch.autograd.gradcheck(
        lambda x, *_: head.full_loss(x, nodes, values.double(), LOSS), given
    )


@pytest.mark.parametrize("slots", [0, 3])
def test_shortlists_of_padding_alone_change_nothing(slots, rng):
    head = head_of(weight_decay=0.5)
    x = vectors(rng)
    before = head.to_arrays()
    logits = head.scores(x, torch.full((B, slots), -1))
    assert logits.shape == (B, slots)
    assert not logits.any()
    logits.sum().backward()
    assert not x.grad.any()
    assert all(parameter.grad is None for parameter in learnt_by_adamw(head))
    head.step(1.0, seed=0)
    after = head.to_arrays()
    assert all(
        np.array_equal(before[name], after[name])
        for name in before
        if not name.endswith(("_u", "_v"))
    )


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_free_rows_alone_learn_as_a_plain_head_does(optimiser, rng):
    text = LabelText(
        torch.nn.Embedding(V, D, dtype=torch.float64), words(1), None, ("free",), "attention", 0
    )
    settings = {
        "optimiser": optimiser,
        "dtype": torch.float64,
        "weight_decay": 0.1,
        "std": 0.5,
        "seed": 3,
    }
    head = TextHead(text, **settings)
    plain = Head(L, D, **settings)
    for step in range(3):
        for documents in (2, 3):  # micro-batches
            x = vectors(rng, documents)
            candidates = shortlists(rng, documents, S, L)
            for one in (head, plain):
                one.scores(x, candidates).square().sum().backward()
                plain.bias.zero_()  # which the plain head would learn by itself
        head.step(0.1, seed=step)
        plain.step(0.1, seed=step)
        plain.bias.zero_()
    torch.testing.assert_close(head.free.weight, plain.weight)


def test_outside_training_a_plain_head_stands_in(rng):
    head = head_of().eval()
    x = vectors(rng)
    candidates = shortlists(rng, B, S, L)
    nodes, values = positives(rng, B, 4, L)
    plain = head.as_head()
    rows = slow_rows(head.text, head.free.weight)
    assert (plain.optimiser, plain.training, plain.weight.dtype) == ("sgd", False, torch.float64)
    torch.testing.assert_close(plain.weight, rows.detach())
    torch.testing.assert_close(plain.bias, head.bias.detach())
    torch.testing.assert_close(head.weight, plain.weight)
    for given in (candidates, None):
        torch.testing.assert_close(head.scores(x, given), plain.scores(x, given))
    torch.testing.assert_close(
        head.full_loss(x, nodes, values, LOSS), plain.full_loss(x, nodes, values, LOSS)
    )
    for found, expected in zip(head.best(x, 4), plain.best(x, 4), strict=True):
        torch.testing.assert_close(found, expected)


def test_training_and_evaluation_agree(rng):
    head = head_of()
    x = vectors(rng)
    candidates = shortlists(rng, B, S, L)
    in_training = head.scores(x, candidates)
    torch.testing.assert_close(head.eval().scores(x, candidates), in_training)


def test_rows_are_composed_once_until_something_changes(rng):
    head = head_of().eval()
    with torch.inference_mode():
        first = head.weight
    assert head.weight is first
    head.scores(
        vectors(rng), None
    ).sum().backward()  # though it was made where no gradient is possible
    changes = [head.text.embedding.weight, head.text.phi_l.alpha, head.bias, head.free.weight]
    for tensor in changes:
        before = head.weight
        with torch.no_grad():
            tensor.add_(1)
        assert head.weight is not before
    kept = head.weight
    own, head.free.weight.data = (
        head.free.weight.data,
        torch.zeros(L, D, dtype=torch.float64),
    )  # as averaging does
    assert not torch.equal(head.weight, kept)
    head.free.weight.data = own
    torch.testing.assert_close(head.weight, kept)


def test_looking_at_the_rows_changes_nothing(rng):
    head = head_of()
    before = head.to_arrays()
    head.best(vectors(rng), 2)
    head.as_head()
    assert head.weight.shape == (L, D)
    assert head.text.training
    after = head.to_arrays()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_resumed_run_goes_on_to_the_same_bytes(rng):
    def step(head, adamw, number):
        chance = np.random.default_rng(number)
        for documents in (2, 3):
            x = vectors(chance, documents).float()
            candidates = shortlists(chance, documents, S, L)
            head.scores(x, candidates).square().mean().backward()
        adamw.step()
        adamw.zero_grad()
        head.step(0.1, seed=number)

    def new():
        head = head_of(dtype=torch.float32, optimiser="adamw")
        return head, torch.optim.SGD(learnt_by_adamw(head), lr=0.1)

    one = new()
    other = new()
    step(*one, 0)
    arrays = one[0].to_arrays()
    embedding = one[0].text.embedding.weight.detach().clone()
    for array in arrays.values():
        array.flags.writeable = False
    other[0].load_arrays(arrays)
    other[0].text.embedding.weight.data.copy_(embedding)
    for head in (one, other):
        step(*head, 1)
    expected = one[0].to_arrays()
    found = other[0].to_arrays()
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], array) for name, array in expected.items())
    assert not np.array_equal(found["free.weight"], arrays["free.weight"])


def test_weights_alone_start_the_optimiser_anew(rng):
    head = head_of()
    head.scores(vectors(rng), None).sum().backward()
    head.step(0.1, seed=0)
    arrays = head.to_arrays(state=False)
    assert {name for name in arrays if name.startswith("free.")} == {"free.weight", "free.bias"}
    head.load_arrays(arrays)
    assert not head.to_arrays()["free.count"].any()


def test_arrays_of_another_head_are_refused():
    head = head_of()
    with pytest.raises(
        ModelFolderError, match=r"head, text\.phi_g\.alpha: found nothing; expected \(\)"
    ):
        head.load_arrays(head_of(("text", "free")).to_arrays())
    with pytest.raises(
        ModelFolderError, match=r"head, bias: found \(3,\); expected \(13,\); were the settings"
    ):
        head.load_arrays(head.to_arrays() | {"bias": np.zeros(3)})


def test_autocast_is_heeded_where_a_plain_head_heeds_it(rng):
    head = head_of(dtype=torch.float32)
    x = vectors(rng).float()
    nodes, values = positives(rng, B, 4, L)
    candidates = torch.arange(L, dtype=torch.int32).expand(B, L)
    plain = head.as_head()
    head.text.eval()  # no iteration of the norm between the two
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for given in (None, candidates):
            torch.testing.assert_close(head.scores(x, given), plain.scores(x, given))
        losses = head.full_loss(x, nodes, values, LOSS)
        torch.testing.assert_close(losses, plain.full_loss(x, nodes, values, LOSS))
        losses.sum().backward()
    assert losses.dtype == torch.float32
    assert not torch.equal(head.scores(x, None), plain.scores(x.bfloat16(), None))
    assert head.scores(x.bfloat16(), candidates).dtype == torch.float32


def test_what_adamw_trains_and_what_steps_by_itself():
    head = head_of()
    decayed, plain = head.optimiser_parameters()
    listed = {id(parameter) for parameter in [*decayed, *plain]}
    assert listed == {id(parameter) for parameter in head.parameters()}
    assert {parameter.ndim for parameter in decayed} == {2}
    assert any(parameter is head.bias for parameter in plain)
    assert head.learnt()[0] is head.free.weight
    assert not head_of(("text",)).learnt()


def test_free_rows_can_be_given_forgotten_and_settled(rng):
    head = head_of(optimiser="adamw")
    head.set_free(head.text.z1().detach())
    torch.testing.assert_close(head.free.weight, head.text.z1().detach())
    head.scores(vectors(rng), None).sum().backward()
    head.forget()
    before = head.free.weight.clone()
    head.step(1.0, seed=0)
    assert torch.equal(head.free.weight, before)
    head.drop_optimiser_state()
    assert head.to_arrays().keys() == head.to_arrays(state=False).keys()
    for method in ("forget", "drop_optimiser_state"):
        getattr(head_of(("text",)), method)()


@pytest.mark.skipif(
    INTERPRETED or find_spec("triton") is None,
    reason="starts the test below in a process of its own",
)
def test_under_the_interpreter():
    here = Path(__file__)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            f"{here}::test_the_kernels_give_the_same_gradients",
        ],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=here.parents[4],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.skipif(not INTERPRETED, reason="runs in the process that the test above starts")
def test_the_kernels_give_the_same_gradients(monkeypatch):
    def run():
        rng = np.random.default_rng(0)
        head = head_of(dtype=torch.float32)
        x = vectors(rng).detach().float().requires_grad_()
        losses = head.full_loss(x, *positives(rng, B, 4, L), LOSS)
        losses.sum().backward()  # the gradient of a sum is one number, spread by strides
        head.step(0.1, seed=0)
        return [
            losses,
            head.free.weight,
            *(parameter.grad for parameter in [x, *learnt_by_adamw(head)]),
        ]

    assert triton_launch.serves(torch.zeros(1))
    found = run()
    monkeypatch.setattr(triton_launch, "serves", lambda weight: False)
    torch.testing.assert_close(found, run(), rtol=1e-4, atol=1e-5)
