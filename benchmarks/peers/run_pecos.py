"""PECOS XR-Linear at its defaults: «pecos» from text, «pecos-features» from ready-made features.

Its own `Tfidf` (word 1-grams, no limits of document frequency, idf smoothed, without add-one, l2),
PIFA, hierarchical k-means (nr_splits 16, max_leaf_size 100, seed 0, 20 iterations),
`XLinearModel.train` (L2-loss SVC dual, Cp = Cn = 1, threshold 0.1, TFN). Models are loaded for
prediction only, in both of PECOS's layouts of the weights that are made for speed; the faster one
is reported, for the batch and for the single document apart. With ready-made features its trees and
classifiers can be told from its vectoriser.
"""

from __future__ import annotations

import protocol
from pecos.utils.featurization.text.vectorizers import Vectorizer
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel

LAYOUTS = ("BINARY_SEARCH_CHUNKED", "HASH_CHUNKED")  # the first is PECOS's default


def train(settings):
    texts, labels = protocol.documents(settings.data, "train")
    names, y = protocol.label_matrix(labels)
    protocol.save_labels(settings, names)
    del labels, names
    loaded = protocol.resident_mb()
    clock = protocol.Clock()
    threads = settings.threads
    x = vectorise(settings, texts, clock)
    with clock("tree"):
        label_features = LabelEmbeddingFactory.create(y, x, method="pifa", threads=threads)
        tree = Indexer.gen(label_features, threads=threads)
    with clock("train"):
        model = XLinearModel.train(x, y.tocsc(), C=tree, threads=threads)
    with clock("save"):
        model.save(str(settings.model / "ranker"))
    return {
        "seconds": clock,
        "loaded_mb": loaded,
        "peak_mb": protocol.peak_mb(),
        "text_mb": protocol.text_mb(texts),
        "model_mb": protocol.folder_mb(settings.model),
        "vectoriser_mb": protocol.folder_mb(settings.model / "vectorizer"),
        "features": x.shape[1],
        "feature_nonzeros": int(x.nnz),
        "levels": [int(level.shape[0]) for level in tree],
        "weights": int(sum(layer.W.nnz for layer in model.model.model_chain)),
    }


def vectorise(settings, texts, clock):
    """Return the training features; where they are made here, the vectoriser is saved beside the
    model.
    """
    if settings.features:
        return protocol.load_features(settings, "train")
    with clock("vectorise"):
        vectorizer = Vectorizer.train(
            texts, {"type": "tfidf", "kwargs": {"threads": settings.threads}}
        )
        x = vectorizer.predict(texts, threads=settings.threads)
    vectorizer.save(str(settings.model / "vectorizer"))
    return x


def predict(settings):
    if settings.features:
        features = protocol.load_features(settings, "test")
        documents = list(range(features.shape[0]))
    else:
        features = None
        documents = protocol.documents(settings.data, "test")[0]
    names = protocol.load_labels(settings)
    loaded = protocol.resident_mb()
    batch = {}
    single = {}
    load = {}
    peak = 0.0
    for layout in LAYOUTS:
        clock = protocol.Clock()
        with clock("load"):
            answer = load_model(settings, layout, features)
        with clock("batch"):
            predicted = answer(documents, settings.threads)
        if layout == LAYOUTS[0]:
            peak = protocol.peak_mb()  # of its default; the other one comes on top
            protocol.write_predictions(settings, names, protocol.pairs_of(predicted))
        load[layout] = clock["load"]
        batch[layout] = round(len(documents) / clock["batch"], 1)
        single[layout] = protocol.single_ms(
            lambda document, answer=answer: answer([document], 1), documents
        )
    return {
        "loaded_mb": loaded,
        "peak_mb": peak,
        "load_s": load[LAYOUTS[0]],
        "documents_per_s": max(batch.values()),
        "batch_layout": max(batch, key=batch.get),
        "single_ms": min(single.values()),
        "single_layout": min(single, key=single.get),
        "documents_per_s_by_layout": batch,
        "single_ms_by_layout": single,
    }


def load_model(settings, layout, features):
    """Return a function from documents (texts, or rows of the given features) and threads to
    predictions.
    """
    ranker = str(settings.model / "ranker")
    model = XLinearModel.load(ranker, is_predict_only=True, weight_matrix_type=layout)
    vectorizer = Vectorizer.load(str(settings.model / "vectorizer")) if features is None else None

    def answer(documents, threads):
        x = (
            vectorizer.predict(documents, threads=threads)
            if features is None
            else features[documents]
        )
        return model.predict(x, only_topk=protocol.TOP, beam_size=protocol.BEAM, threads=threads)

    return answer


if __name__ == "__main__":
    protocol.main(train, predict)
