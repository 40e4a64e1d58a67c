"""Runs of a head that must come out the same on every device and path."""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch

from longtail.networks.heads import triton_launch
from longtail.networks.heads.head import Head
from longtail.networks.heads.updates import BETA1, EPSILON
from longtail.networks.losses import BinaryCrossEntropy

OPTIMISERS = ("sgd", "row-adam", "adamw")
KINDS = ("candidates", "all nodes", "full loss")
LOSS = BinaryCrossEntropy()


def shortlists(rng, documents, slots, n_nodes):
    """Candidates in runs, with nodes shared by documents, some padding, and in the first document
    nothing else.
    """
    starts = rng.integers(0, n_nodes, (documents, slots // 3 + 1))
    nodes = ((starts[:, :, None] + np.arange(3)) % n_nodes).reshape(documents, -1)[:, :slots]
    nodes[rng.random(nodes.shape) < 0.2] = -1
    nodes[0] = -1
    return torch.from_numpy(nodes.astype(np.int32))


def positives(rng, documents, most, n_nodes):
    """True nodes, distinct in a document, with soft targets."""
    nodes = np.stack([rng.permutation(n_nodes)[:most] for _ in range(documents)]).astype(np.int32)
    nodes[rng.random(nodes.shape) < 0.3] = -1
    return torch.from_numpy(nodes), torch.from_numpy(rng.random(nodes.shape).astype(np.float32))


def trained(kind, *, device="cpu", kernels=True, dtype=torch.float32, optimiser="row-adam", n_nodes=30, width=20,
            documents=5, slots=17, steps=2, beta1=(BETA1, BETA1), epsilon=EPSILON):  # fmt: skip
    """Logits, gradients of x and all arrays of a head after some steps of two micro-batches each."""
    rng = np.random.default_rng(7)
    settings = {"optimiser": optimiser, "dtype": dtype, "weight_decay": 0.1, "epsilon": epsilon}
    head = Head(n_nodes, width, std=0.5, seed=3, **settings).to(device)
    results = {}
    serves = triton_launch.serves if kernels else lambda weight: False
    with mock.patch.object(triton_launch, "serves", serves):
        for step in range(steps):
            for part in range(2):
                x = torch.from_numpy(
                    rng.normal(size=(documents + part, width)).astype(np.float32)
                ).to(device)
                x.requires_grad_()
                output = _output(head, kind, x, rng, slots + part)
                (output * torch.linspace(-1, 2, output.shape[-1], device=device)).sum().backward()
                results[f"output {step}.{part}"] = output.detach().cpu().numpy()
                results[f"gradient {step}.{part}"] = x.grad.cpu().numpy()
            head.step(0.05, seed=step, beta1=beta1[step])
    return results | head.to_arrays()


def _output(head, kind, x, rng, slots):
    if kind == "candidates":
        return head.scores(x, shortlists(rng, len(x), slots, len(head.weight)).to(x.device))
    if kind == "all nodes":
        return head.scores(x, None)
    return head.full_loss(
        x, *(part.to(x.device) for part in positives(rng, len(x), 4, len(head.weight))), LOSS
    )


def assert_alike(result, expected, dtype, tolerance=2e-4):
    """Equal up to the order of sums; bf16 weights may each differ by the last bit where a sum did,
    most must not.
    """
    assert result.keys() == expected.keys()
    for name in expected:
        if name == "weight" and dtype == torch.bfloat16:
            np.testing.assert_allclose(
                _values(result[name]), _values(expected[name]), rtol=2**-6, atol=2e-3
            )
            assert np.mean(result[name] == expected[name]) > 0.9
        else:
            loose = 0.02 if dtype == torch.bfloat16 else tolerance
            np.testing.assert_allclose(
                result[name], expected[name], rtol=loose, atol=loose, err_msg=name
            )


def _values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)
