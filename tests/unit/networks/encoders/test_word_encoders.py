"""Encoders on vectors of words: equations in float64 as oracles, gradients, padding, and what is written and read."""

import copy
import json

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn.functional import conv1d, gelu
from torch.nn.utils.parametrize import is_parametrized

from longtail.errors import UsageError
from longtail.features.word_tokens import word_tokeniser
from longtail.methods.registry import encoder_kind
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.encoders.cnn import dynamic_max_pool
from longtail.networks.encoders.inception import EmbeddingEnhancement, InceptionEncoder, mixture
from longtail.networks.encoders.word_encoder import (
    SpectralResidual,
    WordEncoder,
    make_word_encoder,
    without_norms,
)

pytestmark = pytest.mark.usefixtures("one_thread")

KINDS = ["bag", "inception", "routed-inception", "cnn"]
WIDTHS = {"bag": (20, 2), "inception": (480, 2), "routed-inception": (20, 2), "cnn": (512, 1)}
WORDS, COLUMNS, TOKENS, PAD = 30, 20, 9, 2


def encoder(kind, seed=1, columns=COLUMNS, tokens=TOKENS):
    draw = np.random.default_rng(5)
    vectors = draw.normal(size=(WORDS, columns)).astype(np.float32)
    idf = draw.uniform(1, 5, WORDS).astype(np.float32)
    idf[PAD] = 0
    return make_word_encoder(kind, vectors, idf, PAD, tokens, seed)


def awake(made):
    """Let every part be felt: those that start at nothing, and running means that start at 0 and 1."""
    draw = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if name.endswith(("gamma", "bias")) or "running" in name:
                tensor.copy_(0.2 + torch.rand(tensor.shape, generator=draw))
    return made.eval()


def batch(lengths=(7, 1, 4), width=7):
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    ids = torch.randint(3, WORDS, mask.shape, generator=torch.Generator().manual_seed(2))
    return ids.where(mask, PAD), mask


def layers(made):
    return list(range(1, made.depth + 1))


@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind):
    made = encoder(kind)
    assert (made.width, made.depth) == WIDTHS[kind]
    assert made.depth == encoder_kind(kind).depth
    vectors = made(*batch(), layers(made))
    assert [vector.shape for vector in vectors] == [(3, made.width)] * made.depth
    assert torch.equal(made.eval()(*batch(), [made.depth])[0], made(*batch(), layers(made))[-1])


@pytest.mark.parametrize(("columns", "width"), [(300, 480), (100, 480), (384, 483)])
def test_width_of_inception_by_the_paper(columns, width):
    assert encoder("inception", columns=columns).width == width
    assert encoder("routed-inception", columns=columns).width == columns


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_influence(kind):
    made = awake(encoder(kind)).double()
    ids, mask = batch()
    expected = made(ids, mask, layers(made))
    wider = torch.full((3, TOKENS), PAD), torch.zeros(3, TOKENS, dtype=torch.bool)
    wider[0][:, :7], wider[1][:, :7] = ids, mask
    junk = ids.where(mask, 5), mask
    for other in (
        made(*wider, layers(made)),
        made(wider[0], None, layers(made)),
        made(*junk, layers(made)),
    ):
        for a, b in zip(expected, other, strict=True):
            torch.testing.assert_close(a, b)
    alone = made(ids[2:, :4], None, layers(made))
    for a, b in zip(expected, alone, strict=True):
        torch.testing.assert_close(a[2:], b)


@pytest.mark.parametrize("kind", KINDS)
def test_words_and_but_for_the_bag_their_order_are_felt(kind):
    made = awake(encoder(kind))
    ids = torch.tensor([[3, 4, 5], [4, 3, 5], [3, 4, 6]])
    for vector in made(ids, None, layers(made)):
        assert torch.allclose(vector[0], vector[1], atol=1e-5) == (kind == "bag")
        assert not torch.allclose(vector[0], vector[2], atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_words_and_a_batch_of_one(kind):
    made = encoder(kind)
    empty = torch.full((1, 1), PAD)
    for mode in (True, False):
        made.train(mode)
        for mask in (None, torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)):
            assert all(vector.isfinite().all() for vector in made(empty, mask, layers(made)))
    if kind == "bag":
        assert not made(empty, None, [1])[0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision(kind):
    made = awake(encoder(kind))
    exact = made(*batch(), layers(made))
    with torch.autocast("cpu", torch.bfloat16):
        cast = made.train()(*batch(), layers(made))
        sum(vector.float().sum() for vector in cast).backward()
        cast = made.eval()(*batch(), layers(made))
    half = copy.deepcopy(made).bfloat16()(*batch(), layers(made))
    for a, b, c in zip(made(*batch(), layers(made)), cast, half, strict=True):
        assert torch.linalg.norm(b.float() - a) < 0.03 * torch.linalg.norm(a)
        assert torch.linalg.norm(c.float() - a) < 0.03 * torch.linalg.norm(a)
    assert exact[0].dtype == torch.float32
    assert {parameter.dtype for parameter in made.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", KINDS)
def test_no_value_is_waited_for(kind):
    """A CUDA graph records no step that depends on values; on «meta», which has none, such a step fails."""
    made = copy.deepcopy(encoder(kind)).to("meta")
    ids, mask = (tensor.to("meta") for tensor in batch())
    for mode in (True, False):
        vectors = made.train(mode)(ids, mask, layers(made))
        assert [vector.shape for vector in vectors] == [(3, made.width)] * made.depth


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind):
    made = awake(encoder(kind, columns=16, tokens=4)).double()
    ids, mask = (
        torch.tensor([[3, 4, 5], [6, PAD, PAD]]),
        torch.tensor([[True] * 3, [True, False, False]]),
    )
    towards = torch.randn(
        3, made.width, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
    )

    def scalar(rows):
        weight = made.embedding.weight.detach().index_copy(0, torch.tensor([3, 4, 5, 6]), rows)
        vectors = torch.func.functional_call(
            made, {"embedding.weight": weight}, (ids, mask, layers(made))
        )
        return sum((vector * towards[at]).sum() for at, vector in enumerate(vectors))

    rows = made.embedding.weight.detach()[3:7].clone().requires_grad_()
    assert torch.autograd.gradcheck(scalar, (rows,), atol=1e-6, fast_mode=True)
    sum(
        (vector * towards[at]).sum() for at, vector in enumerate(made(ids, mask, layers(made)))
    ).backward()
    still = {
        name
        for name, parameter in made.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    }
    assert not still  # everything learns
    assert not made.embedding.weight.grad[PAD].any()


def test_bag_is_the_weighted_sum():
    made = awake(encoder("bag")).double()
    with torch.no_grad():
        made.residual.map.parametrizations.weight.original.copy_(torch.randn(COLUMNS, COLUMNS))
    ids, mask = batch()
    E, idf, R = made.embedding.weight, made.idf, made.residual.map
    for row in range(3):
        own = ids[row][mask[row]]
        v = torch.relu(sum(idf[t] * E[t] for t in own) / sum(idf[t] ** 2 for t in own) ** 0.5)
        first, second = (vector[row] for vector in made(ids, mask, [1, 2]))
        torch.testing.assert_close(first, v)
        torch.testing.assert_close(second, v + torch.relu(R.weight @ v + R.bias))


def test_bag_starts_at_twice_the_sum():
    first, second = encoder("bag").eval()(*batch(), [1, 2])
    torch.testing.assert_close(second, 2 * first)


def test_enhancement_is_self_attention_over_words_and_numbers():
    made = EmbeddingEnhancement(TOKENS, COLUMNS).double().eval()
    x = torch.randn(2, 5, COLUMNS, dtype=torch.float64)
    torch.testing.assert_close(made(x), x)  # γ starts at 0
    with torch.no_grad():
        made.gamma.copy_(torch.tensor([0.3, 0.7], dtype=torch.float64))
    for row in range(2):
        padded = torch.zeros(TOKENS, COLUMNS, dtype=torch.float64)
        padded[:5] = x[row]
        h_x = 0.3 * padded @ padded.T @ (made.over_words.weight @ padded) + padded
        h_sa = 0.7 * (h_x.T @ padded) @ (made.over_numbers.weight @ h_x.T) + h_x.T
        torch.testing.assert_close(made(x)[row], h_sa.T[:5])
        assert not h_sa.T[5:].any()


def test_maps_are_bounded_by_the_spectral_norm():
    made = SpectralResidual(12, 8, torch.nn.GELU(), 0.0)
    with torch.no_grad():
        made.map.parametrizations.weight.original.mul_(50)
        for _ in range(50):
            made.map(torch.zeros(1, 12))  # each is a step of the power iteration
    assert torch.linalg.matrix_norm(made.eval().map.weight.detach(), 2).item() == pytest.approx(
        1, abs=1e-3
    )


def test_wide_residuals_are_averaged():
    made = SpectralResidual(12, 6, torch.nn.GELU(), 0.5).double().eval()
    x = torch.randn(3, 12, dtype=torch.float64)
    expected = gelu(x @ made.map.weight.T + made.map.bias) + (x[:, ::2] + x[:, 1::2]) / 2
    torch.testing.assert_close(made(x), expected)


@pytest.mark.parametrize("kind", ["inception", "routed-inception"])
def test_inception_by_its_equations(kind):
    made = awake(encoder(kind)).double()
    ids, _ = batch((7, 7, 7))
    h_sa = torch.zeros(3, TOKENS, COLUMNS, dtype=torch.float64)
    h_sa[:, :7] = made.enhancement(made.embedding(ids))
    h0 = made.first_norm(gelu(conv1d(h_sa, made.first.weight[:, :, None], made.first.bias)))
    maps = []
    for width, own in zip((4, 8, 16), made.convolutions, strict=True):
        around = torch.arange(-(width - 4) // 2, COLUMNS + (width - 4) // 2) % COLUMNS
        maps.append(conv1d(h0[:, :, around], own.weight, own.bias, stride=4))
    if kind == "inception":
        h1 = made.norm(gelu(torch.cat(maps, 1)))
    else:
        r = (h0.mean(2) @ made.route.weight.T + made.route.bias).softmax(1)
        h1 = made.norm(gelu(torch.einsum("be,ebcn->bcn", r, torch.stack(maps)))) + h0.unflatten(
            2, (-1, 4)
        ).mean(3)
    for number, vector in enumerate(made(ids, None, layers(made))):
        own = (
            0 if kind == "inception" else number
        )  # one second convolution for both tasks, or one each
        second = made.second[own]
        h_f = made.second_norm[own](gelu(conv1d(h1, second.weight, second.bias, stride=4))).flatten(
            1
        )
        torch.testing.assert_close(vector, made.hidden[number](h_f))


def trained_by(made, layer, **options):
    """Return the names of the parameters that ``layer``, of both, gives a gradient."""
    made.zero_grad()
    vectors = dict(zip(layers(made), made(*batch(), layers(made), **options), strict=True))
    if vectors[layer].requires_grad:
        vectors[layer].square().sum().backward()
    return {
        name for name, own in made.named_parameters() if own.grad is not None and own.grad.any()
    }


@pytest.mark.parametrize(("kind", "own"), [
    ("inception", ["hidden.1."]),
    ("routed-inception", ["second.1.", "second_norm.1.", "hidden.1."]),
    ("bag", ["residual."]),
])  # fmt: skip
def test_a_detached_layer_trains_its_own_parameters_alone(kind, own):
    made = awake(encoder(kind))
    names = {name for name, _ in made.named_parameters()}
    of_labels = {name for name in names if name.startswith(tuple(own))}
    of_clusters = tuple(part.replace("1", "0") for part in own)
    shared = names - of_labels - {name for name in names if name.startswith(of_clusters)}
    assert trained_by(made, 2, detached=[2]) == of_labels
    assert trained_by(made, 2) == of_labels | shared
    assert trained_by(made, 1, detached=[2]) == names - of_labels
    for plain, detached in zip(made(*batch(), [1, 2]), made(*batch(), [1, 2], [2]), strict=True):
        assert torch.equal(plain, detached)


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_words_stay_where_the_only_layer_is_detached(kind):
    made = awake(encoder(kind))
    assert "embedding.weight" in trained_by(made, 1)
    assert "embedding.weight" not in trained_by(made, 1, detached=[1])


def one_layer(folder):
    """Write an InceptionXML encoder of one task layer as version 0.1 did, and return its vectors."""
    made = awake(
        InceptionEncoder(torch.rand(WORDS, COLUMNS), torch.ones(WORDS), PAD, TOKENS, task_layers=1)
    )
    made.save(folder)
    about = json.loads((folder / "config.json").read_text())
    assert about.pop("task_layers") == 1
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n")
    return made(*batch(), [1])


def test_inception_of_version_0_1_has_one_task_layer(tmp_path):
    (expected,) = one_layer(tmp_path)
    found = WordEncoder.load(tmp_path).eval()
    assert found.depth == 1
    assert torch.equal(found(*batch(), [1])[0], expected)
    found.save(tmp_path / "again")
    assert WordEncoder.load(tmp_path / "again").depth == 1


def test_routing_is_a_mean_by_instance():
    made = awake(encoder("routed-inception")).double()
    h0 = torch.randn(4, 32, COLUMNS, dtype=torch.float64)
    weights = made.routing(h0)
    assert weights.shape == (4, 3)
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))
    assert (weights[0] != weights[1]).all()
    maps = [torch.randn(4, 32, 5, dtype=torch.float64) for _ in range(3)]
    equal = torch.full((4, 3), 1 / 3, dtype=torch.float64)
    torch.testing.assert_close(mixture(equal, maps), torch.stack(maps).mean(0))
    torch.testing.assert_close(
        mixture(weights, maps)[1], sum(weights[1, e] * maps[e][1] for e in range(3))
    )


def test_vectors_of_few_numbers_are_refused():
    with pytest.raises(UsageError, match="found vectors of 8 numbers; expected 16 or more"):
        encoder("inception", columns=8)


@pytest.mark.parametrize(("m", "p"), [(12, 4), (9, 8), (10, 3), (5, 5)])
def test_dynamic_max_pool(m, p):
    c = torch.randn(2, 3, m)
    chunks = [c[:, :, i * m // p : -(-(i + 1) * m // p)].amax(2) for i in range(p)]
    assert torch.equal(dynamic_max_pool(c, p), torch.stack(chunks, 2))


def test_cnn_by_its_equations():
    made = awake(encoder("cnn")).double()
    ids, mask = batch()
    e = torch.zeros(3, TOKENS + 7, COLUMNS, dtype=torch.float64)
    e[:, :7] = made.embedding(ids)
    pooled = []
    for h, own in zip((2, 4, 8), made.filters, strict=True):
        windows = torch.stack([e[:, i : i + h] for i in range(TOKENS)], 1)  # (B, m, h, D)
        c = torch.einsum("bmhd,fdh->bfm", windows, own.weight) + own.bias[:, None]
        pooled.append(dynamic_max_pool(c, 8).relu())
    expected = torch.relu(
        torch.cat(pooled, 1).flatten(1) @ made.bottleneck.weight.T + made.bottleneck.bias
    )
    torch.testing.assert_close(made(ids, mask, [1])[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_weights(kind):
    before = torch.get_rng_state()
    one, two, other = (encoder(kind, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert torch.equal(one["embedding.weight"], other["embedding.weight"])
    assert kind == "bag" or any(
        not torch.equal(one[name], other[name]) for name in one if name.endswith("weight")
    )
    assert not one["embedding.weight"][PAD].any()


def test_given_vectors_are_not_changed():
    vectors = np.ones((4, COLUMNS), np.float32)
    made = make_word_encoder("bag", vectors, np.ones(4, np.float32), 0, 4, 0)
    with torch.no_grad():
        made.embedding.weight.add_(1)
    assert (vectors == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_decay_is_for_maps_alone(kind):
    made = encoder(kind)
    decayed, plain = made.decay_groups()
    assert len(decayed) + len(plain) == len(list(made.parameters()))
    assert any(parameter is made.embedding.weight for parameter in plain)
    assert all(parameter.ndim > 1 for parameter in decayed)
    assert all(parameter.ndim == 1 for parameter in plain if parameter is not made.embedding.weight)


@pytest.mark.parametrize("kind", [*KINDS, "lstm"])
def test_saved_and_loaded_vectors_are_the_same(kind, tmp_path):
    made = awake(encoder(kind)).train()
    made(*batch(), layers(made))  # running means and power iterations go on
    made.eval().save(tmp_path / "encoder")
    before = torch.get_rng_state()
    loaded = WordEncoder.load(tmp_path / "encoder").eval()
    assert torch.equal(before, torch.get_rng_state())
    assert type(loaded) is type(made)
    for a, b in zip(made(*batch(), layers(made)), loaded(*batch(), layers(made)), strict=True):
        assert torch.equal(a, b)
    made.save(tmp_path / "again")
    loaded.save(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "encoder" / name).read_bytes() == (
            tmp_path / "again" / name
        ).read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_go_on_to_the_same_weights(kind):
    """As a run that stopped does: state_dict has all that a step depends on, beside chance."""
    made = encoder(kind)
    made.train()(*batch(), layers(made))
    other = encoder(kind, seed=7).train()
    other.load_state_dict(made.state_dict())
    states = []
    for network in (made, other):
        torch.manual_seed(3)
        sum(vector.sum() for vector in network(*batch(), layers(made))).backward()
        states.append(
            {**network.state_dict(), **{name: p.grad for name, p in network.named_parameters()}}
        )
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def norms(network):
    return [name for name, module in network.named_modules() if is_parametrized(module)]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("kind", ["bag", "inception", "routed-inception"])
def test_without_norms_vectors_are_the_same(kind, half):
    network = LastLayer(awake(encoder(kind)))
    network = network.in_half() if half else network
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    before = torch.get_rng_state()
    plain = without_norms(network)
    assert torch.equal(before, torch.get_rng_state())
    assert norms(network)
    assert not norms(plain)
    assert torch.equal(network.vectors(*batch())[0], plain.vectors(*batch())[0])
    assert plain.encoder.embedding.weight is network.encoder.embedding.weight
    found = network.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_networks_that_have_no_norms_are_left_alone(kind):
    network = LastLayer(encoder(kind))
    assert without_norms(network) is network


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_frozen_networks_compute_no_norms_and_are_written_the_same(kind, precision, tmp_path):
    texts = ["one two three", "four", "", "two five"]
    embedder = Embedder(
        word_tokeniser([texts], TOKENS, 1), LastLayer(awake(encoder(kind)).train()), precision
    )
    embedder.network.encoder.save(tmp_path / "before")
    before = embedder.embed(texts)
    for _ in range(2):  # the second time changes nothing
        embedder.freeze()
        assert not norms(embedder._running)
        np.testing.assert_array_equal(embedder.embed(texts), before)
    embedder.network.encoder.save(tmp_path / "after")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "before" / name).read_bytes() == (tmp_path / "after" / name).read_bytes()


def changed(**fields):
    def change(folder):
        about = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(about | fields))

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "found no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), "found no JSON"),
        (lambda folder: (folder / "config.json").write_text("[]"), "found another kind of model"),
        (changed(model_type="bert"), "found another kind of model"),
        (changed(kind="bagg"), "unknown kind of encoder 'bagg'; did you mean 'bag'"),
        (changed(kind="cnn"), "found weights that do not fit .*expected those of cnn"),
        (changed(vocabulary=31), "expected 31 words of 20 numbers"),
        (changed(dimensions=True), "found 'True' as dimensions; expected 1 or more"),
        (changed(pad=WORDS), "found 30 as the id of padding; expected less than 30"),
        (changed(pad=-1), "found '-1' as pad"),
        (lambda folder: (folder / "model.safetensors").unlink(), "found no model.safetensors"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12"), "is cut short"),
    ],
)
def test_damage_is_refused(tmp_path, damage, message):
    encoder("bag").save(tmp_path)
    damage(tmp_path)
    with pytest.raises(UsageError, match=message):
        WordEncoder.load(tmp_path)


def test_another_number_of_task_layers_is_refused(tmp_path):
    encoder("inception").save(tmp_path)
    changed(task_layers=3)(tmp_path)
    with pytest.raises(UsageError, match="found '3' as task_layers; expected 1 or 2"):
        WordEncoder.load(tmp_path)


def test_unknown_kinds_are_refused():
    with pytest.raises(
        UsageError, match="unknown kind of encoder 'incepton'; did you mean 'inception'"
    ):
        encoder("incepton")
