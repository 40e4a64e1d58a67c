"""Losses of networks.

With p the score of a node, σ the logistic function and y ∈ [0, 1] the node's target, the loss of a
document is

    bce                Σ −y·log σ(p) − (1 − y)·log(1 − σ(p))
    squared-hinge      Σ y·max(0, 1 − p)² + [y = 0]·max(0, 1 + p)²
    focal              Σ −y·(1 − σ(p))^γ·log σ(p) − (1 − y)·σ(p)^γ·log(1 − σ(p))
    asymmetric         Σ −y·(1 − σ(p))^γ₊·log σ(p) − (1 − y)·q^γ₋·log(1 − q),  q = max(σ(p) − m, 0)
    decoupled-softmax  Σ −y·log(eᵖ / (eᵖ + Z)),  Z = Σ eᵖ over the nodes with y = 0

over the nodes that are scored for it, padding left out. ``bce`` with 0 < y < 1 is the cross-entropy
with a soft target.

Focal: Lin et al. 2017, Focal Loss for Dense Object Detection. Asymmetric: Ridnik et al. 2021,
Asymmetric Loss for Multi-Label Classification. Decoupled softmax: Gupta et al. 2024, Dual-Encoders
for Extreme Multi-Label Classification.

Each module but ``base.py`` has the loss that the setting ``training.loss`` calls by the module's
name, with ``-`` for ``_``. A new loss is one more file."""

from __future__ import annotations

from longtail.networks.losses.asymmetric import Asymmetric
from longtail.networks.losses.base import (
    ChunkTargets,
    Loss,
    NodeLoss,
    PointwiseLoss,
    UserLoss,
    loss_named,
    loss_of,
)
from longtail.networks.losses.bce import BinaryCrossEntropy
from longtail.networks.losses.decoupled_softmax import DecoupledSoftmax
from longtail.networks.losses.focal import Focal
from longtail.networks.losses.squared_hinge import SquaredHinge

__all__ = [
    "Asymmetric",
    "BinaryCrossEntropy",
    "ChunkTargets",
    "DecoupledSoftmax",
    "Focal",
    "Loss",
    "NodeLoss",
    "PointwiseLoss",
    "SquaredHinge",
    "UserLoss",
    "loss_named",
    "loss_of",
]
