"""NapkinXC's probabilistic label tree at its defaults, from ready-made features.

Hierarchical 2-means with at most 100 leaves a node, LIBLINEAR's logistic regression (dual, C = 10,
eps 0.1), weights below 0.1 dropped, exact search. Tree, classifiers and writing the model to disk
are one call, all under «train».
"""

from __future__ import annotations

import protocol
from napkinxc.models import PLT


def train(settings):
    _, labels = protocol.documents(settings.data, "train")
    names, y = protocol.label_matrix(labels)
    protocol.save_labels(settings, names)
    x = protocol.load_features(settings, "train")
    rows = [
        y.indices[start:end].tolist()
        for start, end in zip(y.indptr[:-1], y.indptr[1:], strict=True)
    ]
    del labels, names, y
    loaded = protocol.resident_mb()
    clock = protocol.Clock()
    model = PLT(str(settings.model), seed=0, threads=settings.threads)
    with clock("train"):
        model.fit(x, rows)
    return {
        "seconds": clock,
        "loaded_mb": loaded,
        "peak_mb": protocol.peak_mb(),
        "model_mb": protocol.folder_mb(settings.model),
        "features": x.shape[1],
        "feature_nonzeros": int(x.nnz),
    }


def predict(settings):
    x = protocol.load_features(settings, "test")
    names = protocol.load_labels(settings)
    clock = protocol.Clock()
    loaded = protocol.resident_mb()
    with clock("load"):
        model = PLT(str(settings.model), threads=settings.threads)
        model.load()
    with clock("batch"):
        ranked = model.predict_proba(x, top_k=protocol.TOP)
    protocol.write_predictions(settings, names, ranked)
    return {
        "loaded_mb": loaded,
        "load_s": clock["load"],
        "documents_per_s": round(x.shape[0] / clock["batch"], 1),
        "single_ms": protocol.single_ms(
            lambda row: model.predict_proba(row, top_k=protocol.TOP), x
        ),
    }


if __name__ == "__main__":
    protocol.main(train, predict)
