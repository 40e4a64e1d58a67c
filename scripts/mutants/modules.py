"""Which modules are broken, and which tests should see it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EQUIVALENT", "GOAL", "ROOT", "TESTS"]

ROOT = Path(__file__).resolve().parent.parent.parent
EQUIVALENT = ROOT / "scripts" / "equivalent_mutants.json"  # mutants that make no difference, each with a reason
GOAL = 0.85  # share of the others that tests see

_STORE = ("test_store", "test_store_stages")
_STORE_FAULTS = (*_STORE, "../faults/test_store_faults")
_ANALYSIS = ("metrics/test_analysis", "metrics/test_closer_analysis")
_FEATURES = ("features/test_label_features", "features/test_label_graph")
# The test files of each module, below tests/unit where they say nothing else.
TESTS = {
    "kernels/chunk_check": ("../security/test_chunk_check",),
    "kernels/chunks": ("kernels/test_chunks", "search/test_beam"),
    "kernels/code_points": ("kernels/test_ngrams",),
    "kernels/dense_block": ("kernels/test_dense_block",),
    "kernels/forest": ("kernels/test_forest_kernels", "linear/test_forest"),
    "kernels/forest_search": ("kernels/test_forest_kernels", "linear/test_forest"),
    "kernels/forest_split": ("kernels/test_forest_kernels", "linear/test_forest"),
    "kernels/fusion": ("search/test_ensemble", "search/test_ensemble_weights"),
    "kernels/interning": ("data/test_plain_json",),
    "kernels/json_lines": ("data/test_plain_json",),
    "kernels/kmeans": ("kernels/test_kmeans", "tree/test_cluster"),
    "kernels/mean_separation": ("kernels/test_newton",),
    "kernels/neighbours": ("kernels/test_neighbour_kernels",),
    "kernels/newton": ("kernels/test_newton",),
    "kernels/newton_step": ("kernels/test_newton",),
    "kernels/ngrams": ("kernels/test_ngrams",),
    "kernels/node_training": ("kernels/test_node_training",),
    "kernels/pool": ("kernels/test_pool",),
    "kernels/proximal": ("kernels/test_proximal",),
    "kernels/proximal_steps": ("kernels/test_proximal",),
    "kernels/ranked_lists": ("search/test_shards",),
    "kernels/ranking": ("metrics/test_ranking_kernel", "metrics/test_ranking"),
    "kernels/search": ("search/test_beam", "search/test_exact"),
    "kernels/sibling_blocks": ("kernels/test_solvers",),
    "kernels/solvers": ("kernels/test_solvers",),
    "kernels/sparse": (*_FEATURES, "kernels/test_walks"),
    "kernels/splitmix": ("kernels/test_splitmix",),
    "kernels/string_order": ("kernels/test_ngrams",),
    "kernels/text": ("kernels/test_text_kernel",),
    "kernels/tfidf_rows": ("features/test_tfidf",),
    "kernels/walks": ("kernels/test_walks",),
    "search/beam": ("search/test_beam", "search/test_exact", "search/test_shards"),
    "search/calibration": ("search/test_calibration",),
    "search/chunks": ("search/test_chunk_storage", "search/test_shards", "kernels/test_chunks"),
    "search/ensemble": ("search/test_ensemble", "search/test_ensemble_weights"),
    "search/ensemble_weights": ("search/test_ensemble_weights",),
    "search/exact": ("search/test_exact", "search/test_shards"),
    "search/level_arrays": ("search/test_chunk_storage", "../security/test_chunk_check"),
    "search/partial_predictions": ("../contract/test_sharded_models",),
    "search/predictions": ("search/test_predictions",),
    "search/shard_files": ("../contract/test_sharded_models",),
    "search/shards": ("search/test_shards",),
    "search/weight_codes": ("search/test_chunk_storage", "kernels/test_dense_block"),
    "metrics/analysis": _ANALYSIS,
    "metrics/bootstrap": _ANALYSIS,
    "metrics/evaluation": ("metrics/test_ranking",),
    "metrics/layout": ("metrics/test_ranking", "metrics/test_analysis"),
    "metrics/propensity": ("metrics/test_propensity",),
    "metrics/ranking": ("metrics/test_ranking", "metrics/test_closer_analysis"),
    "metrics/statistics": ("metrics/test_ranking", *_ANALYSIS),
    "store/durable": _STORE_FAULTS,
    "store/hashing": _STORE,
    "store/manifest": _STORE,
    "store/reading": _STORE_FAULTS,
    "store/refusal": _STORE,
    "store/stages": ("test_store_stages",),
    "store/tensors": _STORE,
    "store/writing": _STORE_FAULTS,
}
