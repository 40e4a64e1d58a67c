"""Networks of AttentionXML for tests: small levels in float64, a slow reference of their equations, and a problem of
training.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import torch

import longtail as lt
from longtail.config import Attention, Training
from longtail.features.tokens import Tokeniser
from longtail.methods import configure
from longtail.networks.attention import AttentionLevel
from longtail.networks.attention_fitting import fit_attention
from longtail.networks.base import NetworkRun
from longtail.networks.batches import Batch
from longtail.networks.embedder import Embedder, LastLayer
from longtail.networks.encoders.word_encoder import make_word_encoder
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


def encoder_of(vectors, pad=0, hidden=4, seed=0):
    """Return an LSTM that drops nothing."""
    idf = np.ones(len(vectors), np.float32)
    return make_word_encoder("lstm", vectors, idf, pad, 16, seed, {"hidden": hidden})


def level_of(t=2, layers=(6,), tree=TREE, level_shortlists=(), **training):
    """Return a level in float64 and training mode that drops nothing, whose attention and scores are far from even."""
    vectors = np.random.default_rng(t).normal(size=(V, D)).astype(np.float32)
    encoder = encoder_of(vectors, seed=t)
    settings = Training(head_optimiser="sgd", head_decay=0, **training)
    attending = Attention(
        dropout=0.0, shortlist=2, layers=layers, level_shortlists=level_shortlists
    )
    level = AttentionLevel(encoder, tree, t, attending, settings, seed=5, std=8.0)
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


def sample_problem():
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


def trained(problem, work=None, valid=None, log_file=None, settings=SETTINGS, more_trees=()):
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
        return fit_attention(NetworkRun(*given, work or Work(), valid, more_trees=more_trees))


def arrays_of(ranker):
    return {
        (level.level, name): array
        for level in ranker.network.levels
        for name, array in level.to_arrays().items()
    }
