"""Writes the golden model folder. Run it only for a new format version, into a new folder beside the older ones:

python tests/contract/make_golden.py tests/contract/golden/v2
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from longtail import store

CONFIG = {"method": "xr-linear", "seed": 0, "tree": {"branching": 32, "depth": None}, "threshold": 0.1}
LABELS = '{"id":"1","name":"Wind power"}\n{"id":"2","name":"Größe"}\n{"id":"3","name":"索引"}\n'.encode()
METRICS = {"precision": [0.5, 1 / 3, 0.25], "n_documents": 3}
README = b"# A small model folder\n\nIt must stay readable by every later version.\n"
TREE = {
    "parents": np.array([0, 0, 1], dtype=np.uint32),
    "indptr": np.array([0, 2, 3], dtype=np.int64),
    "empty": np.zeros((0, 4), dtype=np.float32),
}
RANKER = {
    dtype: (np.arange(6).reshape(2, 3) * 5 - 3).astype(dtype)
    for dtype in ("bool", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
RANKER |= {dtype: np.arange(250, 256).astype(dtype) for dtype in ("uint8", "uint16", "uint32", "uint64", "complex64")}
RANKER |= {"bias": np.array(-0.0), "specials": np.array([np.nan, np.inf, -np.inf, 5e-324])}
METADATA = {"level": "1", "büchse": "文"}


def write_golden(path: Path) -> None:
    """Write the golden folder to ``path``: the same bytes on every machine and by every version."""
    with store.write_folder(path, config_hash=store.content_hash(CONFIG), version="0.1.0") as folder:
        folder.write_json("config.json", CONFIG)
        folder.write_bytes("labels.jsonl", LABELS)
        folder.write_arrays("tree.safetensors", TREE)
        folder.write_arrays("ranker.safetensors", RANKER, METADATA)
        folder.path("encoder/vocab.txt").write_bytes(b"wind\nsolar\n")
        folder.write_bytes("encoder/empty", b"")
        folder.write_json("metrics.json", METRICS)
        folder.write_bytes("README.md", README)


if __name__ == "__main__":
    write_golden(Path(sys.argv[1]))
