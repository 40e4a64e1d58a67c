"""Omikuji's Parabel (its defaults) and Bonsai (unbalanced, k = 100, depth 3: its README), from
ready-made features.

Its trees and classifiers are made in one call, so there is no time of the tree alone. Loading its
input file is not counted. Its Python binding predicts a document at a time; weights are densified
as its command line does.
"""

from __future__ import annotations

import numpy as np
import protocol
from omikuji import Model, ffi, lib

MAX_SPARSE_DENSITY = 0.1  # `omikuji test` by default


def train(settings):
    _, labels = protocol.documents(settings.data, "train")
    names, y = protocol.label_matrix(labels)
    protocol.save_labels(settings, names)
    x = protocol.load_features(settings, "train")
    file = settings.work / "train.txt"
    write_input(file, x, y)
    shape = {"features": x.shape[1], "feature_nonzeros": int(x.nnz)}
    del labels, names, x, y
    clock = protocol.Clock()
    pool = ffi.gc(lib.init_omikuji_thread_pool(settings.threads), lib.free_omikuji_thread_pool)
    data = ffi.gc(lib.load_omikuji_data_set(str(file).encode(), pool), lib.free_omikuji_data_set)
    loaded = protocol.resident_mb()
    with clock("train"):
        model = Model(lib.train_omikuji_model(data, hyper_parameters(settings.system), pool))
    with clock("save"):
        model.save(str(settings.model))
    file.unlink()
    return {
        "seconds": clock,
        "loaded_mb": loaded,
        "peak_mb": protocol.peak_mb(),
        "model_mb": protocol.folder_mb(settings.model),
        **shape,
    }


def hyper_parameters(system):
    chosen = Model.default_hyper_param()
    if system == "omikuji-bonsai":
        chosen.cluster_balanced = False
        chosen.cluster_k = 100
        chosen.max_depth = 3
    return chosen


def write_input(file, x, y):
    """Write the Extreme Classification Repository's format: a header of three counts, then `labels
    feature:value …`.

    Omikuji refuses a file with a document without features; such documents are left out.
    """
    rows = np.flatnonzero(np.diff(x.indptr))
    with file.open("w") as out:
        out.write(f"{len(rows)} {x.shape[1]} {y.shape[1]}\n")
        for row in rows:
            labels = y.indices[y.indptr[row] : y.indptr[row + 1]]
            out.write(",".join(map(str, labels.tolist())) + " ")
            out.write(" ".join(f"{column}:{value:.9g}" for column, value in pairs(x, row)) + "\n")


def predict(settings):
    x = protocol.load_features(settings, "test")
    x.sort_indices()
    names = protocol.load_labels(settings)
    clock = protocol.Clock()
    loaded = protocol.resident_mb()
    with clock("load"):
        model = Model.load(str(settings.model))
        model.init_prediction_thread_pool(settings.threads)
        model.densify_weights(MAX_SPARSE_DENSITY)
    with clock("batch"):
        ranked = [answer(model, pairs(x, row)) for row in range(x.shape[0])]
    protocol.write_predictions(settings, names, ranked)
    return {
        "loaded_mb": loaded,
        "load_s": clock["load"],
        "documents_per_s": round(x.shape[0] / clock["batch"], 1),
        "single_ms": protocol.single_ms(
            lambda row: answer(model, pairs(x, row)), list(range(x.shape[0]))
        ),
    }


def pairs(x, row):
    span = slice(x.indptr[row], x.indptr[row + 1])
    return list(zip(x.indices[span].tolist(), x.data[span].tolist(), strict=True))


def answer(model, document):
    return model.predict(document, beam_size=protocol.BEAM, top_k=protocol.TOP)


if __name__ == "__main__":
    protocol.main(train, predict)
