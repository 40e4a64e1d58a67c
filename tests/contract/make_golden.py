"""Writes golden folders: one whose every byte is known, and a tiny model of every method with its
predictions.

A folder that is there is a promise and is left as it is, and so is what it predicts; run this for a
new method, or into a new folder for a new format version:

PYTHONPATH=src:tests python tests/contract/make_golden.py folder tests/contract/golden/v2
PYTHONPATH=src:tests python tests/contract/make_golden.py models tests/contract/golden/models
"""

from __future__ import annotations

import json
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np

import longtail as lt
from longtail import store
from longtail.methods import METHODS

CONFIG = {
    "method": "xr-linear",
    "seed": 0,
    "tree": {"branching": 32, "depth": None},
    "threshold": 0.1,
}
LABELS = (
    '{"id":"1","name":"Wind power"}\n{"id":"2","name":"Größe"}\n{"id":"3","name":"索引"}\n'.encode()
)
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
RANKER |= {
    dtype: np.arange(250, 256).astype(dtype)
    for dtype in ("uint8", "uint16", "uint32", "uint64", "complex64")
}
RANKER |= {"bias": np.array(-0.0), "specials": np.array([np.nan, np.inf, -np.inf, 5e-324])}
METADATA = {"level": "1", "büchse": "文"}


def write_golden(path: Path) -> None:
    """Write the golden folder to ``path``: the same bytes on every machine and by every version."""
    with store.write_folder(
        path, config_hash=store.content_hash(CONFIG), version="0.1.0"
    ) as folder:
        folder.write_json("config.json", CONFIG)
        folder.write_bytes("labels.jsonl", LABELS)
        folder.write_arrays("tree.safetensors", TREE)
        folder.write_arrays("ranker.safetensors", RANKER, METADATA)
        folder.path("encoder/vocab.txt").write_bytes(b"wind\nsolar\n")
        folder.write_bytes("encoder/empty", b"")
        folder.write_json("metrics.json", METRICS)
        folder.write_bytes("README.md", README)


N_DOCUMENTS = 48
N_TEXTS = 8
CHARACTERS = 160
K = 5
THIN = 2048  # numbers of an array that are kept
MODELS = Path(__file__).parent / "golden" / "models"
EXPECTED = "expected.json"  # texts, and of each model their labels and scores
ENSEMBLE = "ensemble"

# Small; and what one method is trained with no other has, so that together they hold every kind of
# file and array.
_TEXT = {"tfidf": [{"max_features": 160}], "calibration": {"share": 0.2}}
_TREE = {"tree": {"branching": 3, "leaf_size": 4}}
_NETWORK = {
    "training": {
        "epochs": 8,
        "batch_size": 16,
        "encoder_rate": 1e-2,
        "head_rate": 5e-2,
        "warmup_epochs": 0,
    },
    "calibration": {"method": "none"},  # whose steps would give labels the same score
}
_TRANSFORMER = {"encoder": {"name": "encoder", "max_tokens": 16}, **_TEXT, **_NETWORK}
_WORDS = {"encoder": {"width": 16, "max_tokens": 16, "min_count": 4}, **_NETWORK}
SETTINGS: dict[str, dict[str, Any]] = {
    "xr-linear": {
        **_TEXT,
        **_TREE,
        "label_features": {"kind": "graph"},
        "calibration": {"method": "logistic"},
    },
    "parabel": {
        **_TEXT,
        "tree": {"branching": 2, "leaf_size": 4},
        "ranker": {"trees": 2, "weights": "int8"},
    },
    "bonsai": {
        **_TEXT,
        **_TREE,
        "tree": {"branching": 4, "leaf_size": 4},
        "ranker": {"trees": 2, "weights": "float32"},
    },
    "plt": {
        **_TEXT,
        "tfidf": [{"max_features": 120}, {"unit": "char", "ngram_max": 2, "max_features": 80}],
        "tree": {"leaf_size": 6},
        "ranker": {"shard_labels": 12},
    },
    "extremetext": {
        **_TEXT,
        "tree": {"leaf_size": 6},
        "extremetext": {"dimensions": 8, "epochs": 40},
        "calibration": {"method": "none"},
    },
    "dismec": _TEXT,
    "proxml": _TEXT,
    "fastxml": {**_TEXT, "forest": {"trees": 3, "leaf_size": 8}},
    "pfastrexml": {**_TEXT, "forest": {"trees": 3, "leaf_size": 8}},
    "annexml": {
        **_TEXT,
        "neighbours": {"learners": 2, "part_size": 16, "dimensions": 6, "voters": 4},
    },
    "cascadexml": {**_TRANSFORMER, "cascade": {"combine": "always"}, "ranker": {"trees": 1}},
    "lightxml": _TRANSFORMER,
    "xr-transformer": {**_TRANSFORMER, **_TREE, "ranker": {"trees": 1}},
    "x-transformer": {**_TRANSFORMER, **_TREE, "ranker": {"trees": 1, "weights": "int8"}},
    **dict.fromkeys(
        ["xml-cnn", "attentionxml", "inceptionxml", "inceptionxml-lf", "astec", "decaf", "eclare"],
        _WORDS,
    ),
}


def write_models(path: Path) -> None:
    """Write NAME.zip with a model of each method, an ensemble of two, and what they predict; what
    is there stays.
    """
    path.mkdir(parents=True, exist_ok=True)
    texts = [text[:CHARACTERS] for text in list(lt.sample()[1].texts)[:N_TEXTS]]
    file = path / EXPECTED
    known = json.loads(file.read_text())["models"] if file.exists() else {}
    promised = {name: rows for name, rows in known.items() if (path / f"{name}.zip").exists()}
    with TemporaryDirectory() as scratch:
        for name in METHODS:
            if not (path / f"{name}.zip").exists():
                _trained(name).save(Path(scratch) / "trained")
                _pack(
                    _thinned(Path(scratch) / "trained", Path(scratch) / name), path / f"{name}.zip"
                )
        folders = {name: unpack(path, name, Path(scratch)) for name in METHODS}
        if not (path / f"{ENSEMBLE}.zip").exists():
            lt.ensemble([folders["dismec"], folders["parabel"]]).save(Path(scratch) / ENSEMBLE)
            _pack(Path(scratch) / ENSEMBLE, path / f"{ENSEMBLE}.zip")
        folders[ENSEMBLE] = unpack(path, ENSEMBLE, Path(scratch))
        models = {
            name: promised.get(name) or predicted(lt.load(folder, device="cpu"), texts)
            for name, folder in folders.items()
        }
    file.write_text(json.dumps({"texts": texts, "models": models}, indent=0) + "\n")


def unpack(path: Path, name: str, into: Path) -> Path:
    """Return the model folder that ``NAME.zip`` holds, written into ``into``."""
    with ZipFile(path / f"{name}.zip") as archive:
        archive.extractall(into / name)
    return into / name


def _pack(folder: Path, archive: Path) -> None:
    with ZipFile(archive, "w", ZIP_DEFLATED, compresslevel=9) as packed:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = ZipInfo(file.relative_to(folder).as_posix())  # of 1980, as all
            entry.compress_type = ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, file.read_bytes())


def _thinned(folder: Path, thin: Path) -> Path:
    """Write the folder again with most numbers of large arrays 0: the sizes of some networks are
    fixed, not small.
    """
    whole = store.open_folder(folder)
    with store.write_folder(thin, config_hash=whole.manifest.config_hash) as written:
        for name in whole.files:
            if not name.endswith(".safetensors"):
                written.write_bytes(name, whole.read_bytes(name))
                continue
            arrays = {key: np.array(array) for key, array in whole.arrays(name).items()}
            for array in arrays.values():
                if array.size > THIN and array.dtype == np.float32:
                    step = array.size // THIN
                    array[np.arange(array.size).reshape(array.shape) % step > 0] = 0
                    array *= np.float32(step**0.5)  # so that sums stay as large as they were
            written.write_arrays(name, arrays, whole.array_metadata(name))
    return thin


def predicted(model: Any, texts: list[str]) -> list[dict[str, Any]]:
    """Return the labels and scores of each text, best first."""
    return [
        {
            "labels": [label.id for label in row],
            "scores": [float(np.float32(label.score)) for label in row],
        }
        for row in model.predict(texts, K)
    ]


def _trained(method: str) -> lt.Longtail:
    # The encoder is found by a relative path: what a folder says must not depend on where it was
    # made.
    from tiny_encoder import write_encoder

    documents = _documents()
    with TemporaryDirectory() as scratch, chdir(scratch):
        write_encoder(Path("encoder"), documents.texts, width=8, depth=3, vocabulary=160)
        return lt.Longtail(method, seed=0, threads=1, device="cpu", **SETTINGS[method]).fit(
            documents
        )


def _documents() -> lt.Dataset:
    """Return the beginnings of a few documents of the sample, with the labels that two or more of
    them have.
    """
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "documents.jsonl"
        lt.write(lt.sample()[0].take(np.arange(N_DOCUMENTS)), file)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        ids = [label for row in rows for label in row["labels"]]
        for row in rows:
            kept = [label for label in row["labels"] if ids.count(label) > 1]
            row |= {"text": row["text"][:CHARACTERS], "labels": kept or row["labels"][:1]}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return lt.read(file)


if __name__ == "__main__":
    {"folder": write_golden, "models": write_models}[sys.argv[1]](Path(sys.argv[2]))
