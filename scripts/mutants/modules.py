"""Which modules are broken, and which tests should see it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EQUIVALENT", "GOAL", "ROOT", "TESTS"]

ROOT = Path(__file__).resolve().parent.parent.parent
EQUIVALENT = (
    ROOT / "scripts" / "equivalent_mutants.json"
)  # mutants that make no difference, each with a reason
GOAL = 0.85  # share of the others that tests see

_STORE = tuple(f"store/test_store{suffix}" for suffix in ("", "_arrays", "_replacing", "_stages"))
_STORE_FAULTS = (*_STORE, "../faults/test_store_faults")
_DAMAGE = "../faults/test_damaged_folders"
_ANALYSIS = ("metrics/test_analysis", "metrics/test_closer_analysis")
_FEATURES = ("features/test_label_features", "features/test_label_graph")
# The test files of each module, below tests/unit where they say nothing else.
TESTS = {
    "kernels/chunk_check": ("../security/test_chunk_check",),
    "kernels/kmeans": ("kernels/test_kmeans", "tree/test_cluster"),
    "kernels/newton": ("kernels/test_newton",),
    "kernels/ranked_lists": (
        "search/test_shards",
        "search/test_ensemble",
        "search/test_ensemble_weights",
    ),
    "kernels/ranking": ("metrics/test_ranking_kernel", "metrics/test_ranking"),
    "kernels/solvers": ("kernels/test_solvers",),
    "kernels/sparse": (*_FEATURES, "kernels/test_walks"),
    "kernels/splitmix": ("kernels/test_splitmix",),
    "kernels/string_order": ("kernels/test_ngrams",),
    "kernels/text": ("kernels/test_text_kernel",),
    "kernels/tfidf_rows": ("features/test_tfidf",),
    "kernels/walks": ("kernels/test_walks",),
    "search/beam": ("search/test_beam", "search/test_exact", "search/test_shards"),
    "search/calibration": ("search/test_calibration",),
    "search/chunks": (
        "search/test_chunk_storage",
        "search/test_shards",
        "kernels/test_chunks",
        "../security/test_chunk_check",
    ),
    "search/ensemble": ("search/test_ensemble", "search/test_ensemble_weights"),
    "search/predictions": ("search/test_predictions",),
    "search/shards": ("search/test_shards",),
    "search/weight_codes": ("search/test_chunk_storage", "kernels/test_dense_block"),
    "metrics/analysis": _ANALYSIS,
    "metrics/bootstrap": _ANALYSIS,
    "metrics/evaluation": ("metrics/test_ranking",),
    "metrics/layout": ("metrics/test_text_tables",),
    "metrics/propensity": ("metrics/test_propensity",),
    "metrics/ranking": ("metrics/test_ranking", "metrics/test_closer_analysis"),
    "metrics/statistics": ("metrics/test_ranking", *_ANALYSIS),
    "store/durable": _STORE_FAULTS,
    "store/hashing": _STORE,
    "store/manifest": (*_STORE, _DAMAGE),
    "store/reading": (*_STORE_FAULTS, _DAMAGE),
    "store/refusal": _STORE,
    "store/stages": ("store/test_store_stages",),
    "store/tensors": (*_STORE, _DAMAGE),
    "store/writing": _STORE_FAULTS,
}
