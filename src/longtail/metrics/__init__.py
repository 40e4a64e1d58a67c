"""How good predictions are: the field's metrics, their confidence intervals, and where the hits
come from.
"""

from __future__ import annotations

from longtail.metrics.analysis import (
    FrequencyBin,
    FrequencyTable,
    LabelTable,
    by_frequency,
    per_label,
)
from longtail.metrics.evaluation import Evaluation
from longtail.metrics.propensity import (
    Constants,
    Propensity,
    choose_constants,
    inverse_propensities,
    propensity_constants,
)
from longtail.metrics.ranking import (
    coverage_at_k,
    evaluate,
    macro_f1_at_k,
    ndcg_at_k,
    precision_at_k,
    psndcg_at_k,
    psp_at_k,
    recall_at_k,
)

__all__ = [
    "Constants",
    "Evaluation",
    "FrequencyBin",
    "FrequencyTable",
    "LabelTable",
    "Propensity",
    "by_frequency",
    "choose_constants",
    "coverage_at_k",
    "evaluate",
    "inverse_propensities",
    "macro_f1_at_k",
    "ndcg_at_k",
    "per_label",
    "precision_at_k",
    "propensity_constants",
    "psndcg_at_k",
    "psp_at_k",
    "recall_at_k",
]
