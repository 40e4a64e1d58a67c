"""InceptionXML-LF's training step beside a plain torch one of the same network with gathered heads.

    python benchmarks/inception_step.py --labels 131072 --clusters 8192 --batch 256 --tokens 32
        --vocabulary 40000

Ours runs the steps of the real loop. The plain one has the same encoder and makes the same
shortlists; for every document and candidate it sums the label's words and those of its neighbours
(B·S bags), applies Φ_l, Φ_g and 𝒜 to them and a gathered row w_l, multiplies by bmm, and trains all
by torch's fused AdamW. Both start at the same weights and see the same batches, from host memory,
in the same arithmetic; first their losses and gradients of E are compared in float32, as shares of
their size. They are timed in turns, each built anew. Data is random, words and labels with Zipf's
tail. ``slots`` are the candidates of a batch, ``different_labels`` how many of them differ. Prints
one JSON line; the goal is a ratio of 3. On a CPU: --labels 8192 --clusters 512 --batch 64
--shortlist 32 --tokens 16 --vocabulary 8000 --width 64 --steps 12.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from cascade_step import samples_per_s
from scipy import sparse
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce

from longtail.config import parse_assignment
from longtail.features.tokens import Tokens
from longtail.kernels import pool
from longtail.methods import configure
from longtail.networks.batches import Batches
from longtail.networks.cascade import CascadeXML
from longtail.networks.device import allow_tf32, arithmetic, choose_device, pool_threads
from longtail.networks.encoders.word_encoder import make_word_encoder
from longtail.networks.heads.initial_rows import centroid_rows, prior_logit
from longtail.networks.heads.label_text import LabelText, _Bags, label_words
from longtail.networks.heads.text_head import TextHead
from longtail.networks.training.schedule import Schedule
from longtail.networks.training.stepper import Stepper
from longtail.tree.tree import LabelTree

PAD = 0
LABEL_WORDS = (2, 8)  # fewest and most words of a label


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--clusters", type=int, default=8192)
    parser.add_argument("--shortlist", type=int, default=64, help="clusters kept")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32, help="most of a document")
    parser.add_argument("--vocabulary", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=300, help="numbers of a word's vector (D)")
    parser.add_argument("--positives", type=int, default=3, help="labels of a document")
    parser.add_argument("--neighbours", type=int, default=8, help="of a label in the label graph")
    parser.add_argument(
        "--steps", type=int, default=40, help="of a repeat, the first quarter to warm up"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    with pool.threads(arguments.threads), pool_threads():
        result = compared(arguments, device)
    print(
        json.dumps(
            {"benchmark": "inception_step", **vars(arguments), "device": device.type, **result}
        ),
        flush=True,
    )


def compared(arguments, device):
    """Return how far the two are apart, and the rate and memory of each."""
    data = random_data(arguments)
    config = settings(arguments)
    start = weights_with_clusters(data, config, arguments, device)
    result = differences(data, config, start, arguments, device)
    rates = {"ours": [], "plain": []}
    peaks = {"ours": [], "plain": []}
    for _ in range(arguments.repeats):
        for name, stepper in (("ours", our_step), ("plain", plain_step)):
            rate, peak = timed(stepper, data, config, start, arguments, device)
            rates[name].append(rate)
            peaks[name].append(peak)
    for name, values in rates.items():
        result |= {
            f"{name}_samples_per_s": round(statistics.median(values), 1),
            f"{name}_runs": values,
        }
        result[f"{name}_peak_gib"] = round(max(peaks[name]), 2)
    return result | {
        "ratio": round(result["ours_samples_per_s"] / result["plain_samples_per_s"], 2)
    }


def settings(arguments):
    """Return the settings of the method, whose batch is on the device at once, as that of the plain
    network is.
    """
    training = {"batch_size": arguments.batch, "micro_batch": arguments.batch}
    cascade = {"shortlist": [arguments.shortlist], "rescale": False, "detach_epochs": 0}
    changes = {"cascade": cascade, "training": training, "seed": arguments.seed}
    return configure("inceptionxml-lf", None, changes, *map(parse_assignment, arguments.set))


class Data(NamedTuple):
    """Documents and what labels say of themselves; labels are in the tree's order."""

    batches: Batches
    positives: sparse.csr_array  # (N, L)
    tree: LabelTree
    vectors: np.ndarray  # (V, D)
    idf: np.ndarray  # (V,)
    texts: sparse.csr_array  # (L, V) z⁰
    graph: sparse.csr_array  # (L, L) G


def random_data(arguments):
    """Return documents whose words are half those of their labels."""
    random = np.random.default_rng(arguments.seed)
    n = arguments.batch * arguments.steps
    n_labels = arguments.labels
    words = zipf(arguments.vocabulary - 1)  # of ids from 1 on
    ends = np.append(0, np.cumsum(random.integers(LABEL_WORDS[0], LABEL_WORDS[1] + 1, n_labels)))
    label_ids = 1 + random.choice(len(words), ends[-1], p=words)
    labels = random.permutation(n_labels)[
        random.choice(n_labels, (n, arguments.positives), p=zipf(n_labels))
    ]
    positives = sparse.csr_array(
        (
            np.ones(labels.size, np.float32),
            np.sort(labels, 1).ravel(),
            np.arange(n + 1) * arguments.positives,
        ),
        (n, n_labels),
    )
    positives.sum_duplicates()
    positives.data[:] = 1
    tokens = random_tokens(random, label_ids, ends, labels, words, arguments)
    batches = Batches(tokens, positives, arguments.batch, arguments.seed, by_length=False)
    borders = np.linspace(0, n_labels, arguments.clusters + 1).astype(np.int64)
    tree = LabelTree.from_borders(np.arange(n_labels), [borders])
    idf = np.append(0, -np.log(words)).astype(np.float32)
    texts = label_words(Tokens(label_ids.astype(np.uint32), ends, PAD, False), idf)
    graph = random_graph(random, n_labels, arguments.neighbours)
    vectors = random.normal(
        0, arguments.width**-0.5, (arguments.vocabulary, arguments.width)
    ).astype(np.float32)
    return Data(batches, positives, tree, vectors, idf, texts, graph)


def zipf(count):
    """Return probabilities (count,) that fall with the rank."""
    weights = 1 / np.arange(3, count + 3)
    return weights / weights.sum()


def random_tokens(random, label_ids, ends, labels, words, arguments):
    """Return texts of a quarter of ``tokens`` to all of them; ``own`` and ``ends`` are the words of
    the labels.
    """
    lengths = random.integers(max(arguments.tokens // 4, 1), arguments.tokens + 1, len(labels))
    rows = np.repeat(np.arange(len(labels)), lengths)
    drawn = labels[rows, random.integers(0, labels.shape[1], len(rows))]
    positions = ends[drawn] + (random.random(len(rows)) * (ends[drawn + 1] - ends[drawn])).astype(
        np.int64
    )
    noise = 1 + random.choice(len(words), len(rows), p=words)
    ids = np.where(random.random(len(rows)) < 0.5, label_ids[positions], noise)
    return Tokens(
        ids.astype(np.uint32), np.append(0, np.cumsum(lengths)), PAD, False, arguments.tokens
    )


def random_graph(random, n_labels, neighbours):
    """Return a label graph (L, L): each label itself, by 1, and others near it in the tree."""
    near = (
        np.arange(n_labels)[:, None] + random.integers(-32, 33, (n_labels, neighbours))
    ) % n_labels
    members = np.concatenate([np.arange(n_labels)[:, None], near], 1)
    values = np.concatenate([np.ones((n_labels, 1)), random.uniform(0.1, 0.9, near.shape)], 1)
    ends = np.arange(n_labels + 1) * (neighbours + 1)
    return sparse.csr_array(
        (values.astype(np.float32).ravel(), members.ravel(), ends), (n_labels, n_labels)
    )


def network_of(data, config, start, arguments, device):
    """Return our network, at the weights ``start`` if they are given."""
    seed = arguments.seed
    encoder = make_word_encoder(
        "routed-inception", data.vectors, data.idf, PAD, arguments.tokens, seed
    ).to(device)
    label_text = config.label_text
    text = LabelText(
        encoder.embedding, data.texts, data.graph, label_text.parts, label_text.combine, seed
    )
    training = config.training
    dtype = getattr(torch, training.head_weights)
    of_labels = TextHead(
        text,
        optimiser=training.head_optimiser,
        dtype=dtype,
        weight_decay=training.head_decay,
        seed=seed,
    )
    network = CascadeXML(
        encoder, data.tree, config.cascade, training, seed, device, label_head=of_labels
    )
    if start is not None:
        network.load_arrays(start)
    return network.train()


@torch.no_grad()
def weights_with_clusters(data, config, arguments, device):
    """Return first weights whose clusters tell documents apart, as those of a trained network do.

    At random ones most documents of a batch would have the same shortlist, of which ours makes the
    rows once.
    """
    network = network_of(data, config, None, arguments, device)
    clusters = data.tree.coarsen(data.positives)[0]
    vectors = np.zeros((len(data.batches.tokens), arguments.width), np.float32)
    for batch in data.batches.epoch(0):
        moved = batch.to(device)
        vectors[batch.rows] = network.vectors(moved.ids, moved.mask)[0].cpu()
    rows = centroid_rows(vectors, clusters, prior_logit(clusters, clusters.shape[1]))
    network.heads[0].set_rows(rows.weights, rows.bias)
    network.heads[1].set_bias(prior_logit(data.positives, network.slots[-1]))
    return network.to_arrays()


class Plain(nn.Module):
    """The network as its equations are written, with the weights of one of ours."""

    def __init__(self, ours, data):
        super().__init__()
        self.encoder = deepcopy(ours.encoder)
        self.tables = deepcopy(ours.tables)
        self.kept = ours.kept[0]
        self.dropouts = deepcopy(ours.dropouts)
        of_labels = ours.heads[1]
        of_clusters = ours.heads[0]
        text = of_labels.text
        self.phi_l, self.phi_g, self.attention = deepcopy((text.phi_l, text.phi_g, text.attention))
        self.clusters = nn.Linear(of_clusters.weight.shape[1], of_clusters.weight.shape[0])
        self.free = nn.Embedding(*text.shape)
        self.bias = nn.Embedding(text.shape[0], 1)
        with torch.no_grad():
            self.clusters.weight.copy_(of_clusters.weight)
            self.clusters.bias.copy_(of_clusters.bias)
            self.free.weight.copy_(of_labels.free.weight)
            self.bias.weight.copy_(of_labels.bias[:, None])
        # z⁰, G z⁰
        self.texts = _Bags(data.texts)
        self.graph_texts = _Bags(sparse.csr_array(data.graph @ data.texts))
        self.to(of_labels.bias.device)

    def shortlist(self, theta, batch):
        """Return the scores of the clusters, their targets, and the labels of the best ones with
        the true labels.
        """
        nodes, values = self.tables.cover(0, batch.positives, batch.values)
        p = self.clusters(self.dropouts[0](theta[0]))
        top = p.detach().topk(self.kept, sorted=False).indices.int()
        clusters = self.tables.all_nodes(0, nodes, values)
        return p, clusters, self.tables.refine_with(0, top, batch.positives, batch.values)

    def loss(self, batch):
        """Return L_meta + L_ext, each the mean over what is scored for a document."""
        theta = self.encoder(batch.ids, batch.mask, (1, 2))
        meta, clusters, labels = self.shortlist(theta, batch)
        x = self.dropouts[1](theta[1])
        # (B, S)
        slots = labels.nodes.clamp(min=0).long()
        counted = labels.nodes >= 0
        rows = self.rows(slots.flatten()).view(*slots.shape, -1)  # (B, S, D)
        p = torch.bmm(rows, x.to(rows.dtype)[:, :, None])[:, :, 0] + self.bias(slots)[:, :, 0]
        extreme = (bce(p.float(), labels.targets, reduction="none") * counted).sum(1) / counted.sum(
            1
        )
        return bce(meta.float(), clusters.targets) + extreme.mean()

    def rows(self, labels):
        """Return W_e (B·S, D), of a label as often as it is a candidate."""
        E = self.encoder.embedding.weight
        parts = (
            self.phi_l(self.texts(E, labels)),
            self.phi_g(self.graph_texts(E, labels)),
            self.free(labels),
        )
        alpha = self.attention(torch.cat(parts, 1)).softmax(1)
        text, graph, free = (alpha[:, at, None] * part for at, part in enumerate(parts))
        return text + graph + free


def differences(data, config, start, arguments, device):
    """Return loss and gradient of E of one batch: how far those of ours are from the plain ones;
    and its sizes.
    """
    network = network_of(data, config, start, arguments, device)
    plain = Plain(network, data).train()
    batch = next(data.batches.epoch(0)).to(device)
    torch.manual_seed(arguments.seed)
    ours = sum(network.losses(batch).values())
    torch.manual_seed(arguments.seed)
    theirs = plain.loss(batch)
    ours.backward()
    theirs.backward()
    gradients = network.encoder.embedding.weight.grad, plain.encoder.embedding.weight.grad
    with torch.no_grad():
        nodes = plain.shortlist(plain.encoder(batch.ids, batch.mask, (1, 2)), batch)[2].nodes
    loss = (ours - theirs).abs() / theirs
    gradient = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    return {
        "loss": round(theirs.item(), 6),
        "loss_difference": loss.item(),
        "gradient_difference": gradient.item(),
        "same": loss.item() < 1e-5 and gradient.item() < 1e-2,  # a GPU's convolutions round to TF32
        "slots": int((nodes >= 0).sum()),
        "different_labels": int(nodes[nodes >= 0].unique().numel()),
    }


def our_step(data, config, start, arguments, device):
    network = network_of(data, config, start, arguments, device)
    training = config.training
    return Stepper(network, training, Schedule.of(training, len(data.batches)), arguments.seed).step


def plain_step(data, config, start, arguments, device):
    network = Plain(network_of(data, config, start, arguments, device), data).train()
    training = config.training
    adamw = torch.optim.AdamW(network.parameters(), lr=training.encoder_rate, fused=True)

    def step(batch, _):
        with allow_tf32(training.precision, device):
            with arithmetic(training.precision, device):
                loss = network.loss(batch.to(device))
            loss.backward()
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    return step


def timed(make, data, config, start, arguments, device):
    """Return samples a second, and the most GPU memory in GiB, of a network's steps alone; 0 on a
    CPU.
    """
    step = make(data, config, start, arguments, device)
    gc.collect()  # what is left of the network before
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rate = samples_per_s(step, data.batches, arguments.batch, device)
    return rate, torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


if __name__ == "__main__":
    main()
