"""PECOS XR-Transformer from text: its own tf-idf, trees, fine-tuning level by level and rankers.

Beside the settings of every system (protocol.py), SETTINGS.json has `encoder`, a BERT in a Hugging
Face folder, `device` (cpu or cuda) and `options`, which replace some of OPTIONS. Those are the
shared part of the settings that PECOS's authors published for Wiki10-31K and Amazon-670K; `steps`
or, where it is null, `epochs`, and `warmup`, a share of the steps, are for each level, as a number
or a list. Models are loaded for prediction only. A single document is timed as PECOS predicts by
default, with four processes that make batches, and without them; `single_ms` is the faster.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import math
import sys
import time

import numpy as np
import protocol

TOP = 20
SINGLE = 200
DEFAULT_WORKERS = 4
STAGES = {
    "Constructed instance feature matrix": "refined_tree",
    "Start training ranker": "ranker",
}  # log line → stage
OPTIONS = {
    "tfidf": {},  # keyword arguments of its Tfidf
    "preliminary": {"nr_splits": 16, "min_codes": 128, "max_leaf_size": 16},
    "refined": {"nr_splits": 16, "max_leaf_size": 16},
    "truncate_length": 128,
    "batch_size": 32,
    "steps": None,
    "epochs": 5,
    "warmup": 0.1,
    "learning_rate": 1e-4,
    "negative_sampling": "tfn+man",
    "matcher_topk": 20,  # nodes that a level hands to the next as matcher-aware negatives
    "loss_function": "weighted-squared-hinge",
    "bootstrap_method": "linear",
    "ensemble_method": "concat-only",
    "max_match_clusters": 32768,
    "rel_mode": "induce",  # cost-sensitive rankers
    "rel_norm": "l1",
    "threshold": 1e-3,
    "Cp": 1.0,
    "Cn": 1.0,
    "beam": 50,
    "post_processor": "l3-hinge",
    "last_post_processor": "noop",
    "seed": 0,
}


def train(settings):
    run = further(settings)
    modernise()
    from pecos.utils.featurization.text.vectorizers import Vectorizer
    from pecos.utils.torch_util import set_seed
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xtransformer.model import XTransformer
    from pecos.xmc.xtransformer.module import MLProblemWithText

    texts, labels = protocol.documents(settings.data, "train")
    names, y = protocol.label_matrix(labels)
    protocol.save_labels(settings, names)
    loaded = protocol.resident_mb()
    clock = protocol.Clock()
    options = run["options"]
    set_seed(options["seed"])
    with clock("vectorise"):
        kwargs = {"threads": settings.threads, **options["tfidf"]}
        vectorizer = Vectorizer.train(texts, {"type": "tfidf", "kwargs": kwargs})
        x = vectorizer.predict(texts, threads=settings.threads)
    with clock("tree"):
        kwargs = {"threads": settings.threads, "seed": options["seed"], **options["preliminary"]}
        tree = Indexer.gen(
            LabelEmbeddingFactory.create(y, x, method="pifa", threads=settings.threads), **kwargs
        )
    stages = StageClock()
    with clock("train"):
        model = XTransformer.train(
            MLProblemWithText(texts, y, X_feat=x),
            clustering=tree,
            train_params=XTransformer.TrainParams.from_dict(
                train_settings(settings, run, tree, y.shape), True
            ),
            pred_params=XTransformer.PredParams.from_dict(
                predict_settings(run, tree, y.shape[1]), True
            ),
        )
    parts = stages.seconds()
    with clock("save"):
        vectorizer.save(str(settings.model / "vectorizer"))
        model.save(str(settings.model / "model"))
    return {
        "seconds": {**clock, **parts},
        "loaded_mb": loaded,
        "text_mb": protocol.text_mb(texts),
        "model_mb": protocol.folder_mb(settings.model),
        "levels": [int(level.shape[0]) for level in tree],
        "steps": steps(run, tree, len(texts)),
        "weights": int(sum(layer.W.nnz for layer in model.concat_model.model.model_chain)),
        "options": options,
    }


def further(settings):
    """Return the encoder, the device and the options of the settings' file, which protocol.py does
    not know.
    """
    content = json.loads((settings.work / "settings.json").read_text())
    options = content.get("options", {})
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise SystemExit(
            f"options: found {', '.join(unknown)}; expected some of {', '.join(OPTIONS)}"
        )
    return {
        "encoder": content["encoder"],
        "cuda": content["device"] == "cuda",
        "options": OPTIONS | options,
    }


def modernise():
    """Give PECOS 1.2.8 what it takes from numpy 1, scipy 1.13 and transformers 4, and later
    versions have no more.
    """
    import torch
    from pecos.utils import smat_util
    from scipy.sparse import _sputils, csr_matrix, sputils
    from transformers import modeling_utils, tokenization_utils_base

    sputils.get_index_dtype = _sputils.get_index_dtype
    sputils.upcast = _sputils.upcast
    if (
        np.lib.NumpyVersion(np.__version__) >= "2.0.0"
    ):  # which refuses copy=False where a copy is needed
        for function in (smat_util.csr_matrix, smat_util.csc_matrix):
            function.__defaults__ = (None, None, None)
    rows = csr_matrix.__getitem__  # which took a torch tensor once
    csr_matrix.__getitem__ = lambda self, key: rows(
        self, key.numpy() if isinstance(key, torch.Tensor) else key
    )
    for kind in ("bert", "roberta", "xlm_roberta", "xlnet", "distilbert"):
        module = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        for part in ("INPUTS", "START"):  # texts for its docstrings
            setattr(module, f"{kind.upper()}_{part}_DOCSTRING", "")
    modeling_utils.SequenceSummary = torch.nn.Module  # of XLNet alone, which is not measured
    tokeniser = tokenization_utils_base.PreTrainedTokenizerBase
    tokeniser.batch_encode_plus = lambda self, batch_text_or_text_pairs, **kwargs: self(
        batch_text_or_text_pairs, **kwargs
    )
    # the last step, as the imports above may have replaced the module; transformers' AdamW had no
    # decay by default
    sys.modules["transformers"].AdamW = functools.partial(torch.optim.AdamW, weight_decay=0.0)

    from pecos.xmc.xtransformer.network import BertForXMC

    made = BertForXMC.__init__

    def make(self, config):
        made(self, config)
        self.post_init()  # without which transformers 5 loads no weights into a model

    BertForXMC.__init__ = make


def train_settings(settings, run, tree, shape):
    """Return XTransformer.TrainParams as a dictionary, with the settings of each level written out."""
    options = run["options"]
    names = (
        "batch_size",
        "learning_rate",
        "negative_sampling",
        "loss_function",
        "bootstrap_method",
    )
    shared = {name: options[name] for name in (*names, "threshold")}
    shared |= {
        "model_shortcut": run["encoder"],
        "use_gpu": run["cuda"],
        "cost_sensitive_ranker": True,
    }
    shared["batch_gen_workers"] = min(16, settings.threads)
    # a level ends with the model that was last saved, so it is saved once, at its end
    matchers = [
        {**shared, "max_steps": n, "save_steps": n, "warmup_steps": int(options["warmup"] * n)}
        for n in steps(run, tree, shape[0])
    ]
    depth = ranker_depth(options["refined"], shape[1])
    classifier = {name: options[name] for name in ("threshold", "Cp", "Cn")} | {
        "threads": settings.threads
    }
    mining = ["tfn"] * (depth - 1) + ["tfn+man" if depth > 1 else "tfn"]
    return {
        "refined_indexer_params": {
            "threads": settings.threads,
            "seed": options["seed"],
            **options["refined"],
        },
        "matcher_params_chain": matchers,
        "ranker_params": {
            "rel_mode": options["rel_mode"],
            "rel_norm": options["rel_norm"],
            "hlm_args": {"neg_mining_chain": mining, "model_chain": [classifier] * depth},
        },
        "max_match_clusters": options["max_match_clusters"],
    }


def predict_settings(run, tree, n_labels):
    """Return XTransformer.PredParams as a dictionary."""
    options = run["options"]
    matcher = {"only_topk": options["matcher_topk"], "post_processor": options["post_processor"]}
    matcher |= {
        "ensemble_method": options["ensemble_method"],
        "truncate_length": options["truncate_length"],
    }
    level = {"only_topk": options["beam"], "post_processor": options["post_processor"]}
    last = {"only_topk": TOP, "post_processor": options["last_post_processor"]}
    chain = [level] * (ranker_depth(options["refined"], n_labels) - 1) + [last]
    return {
        "matcher_params_chain": [matcher] * fine_tuned(options, tree),
        "ranker_params": {"hlm_args": {"model_chain": chain}},
    }


def steps(run, tree, n_documents):
    """Return the steps of each level on which the encoder is fine-tuned."""
    options = run["options"]
    levels = fine_tuned(options, tree)
    asked = options["steps"] or options["epochs"]
    each = asked if isinstance(asked, list) else [asked] * levels
    if len(each) != levels:
        raise SystemExit(
            f"steps or epochs: found {len(each)} values; expected {levels}, one a level, or a "
            "number"
        )
    an_epoch = 1 if options["steps"] else math.ceil(n_documents / options["batch_size"])
    return [max(1, round(value * an_epoch)) for value in each]


def fine_tuned(options, tree):
    return sum(level.shape[0] <= options["max_match_clusters"] for level in tree)


def ranker_depth(indexer, n_labels):
    """Return the number of levels of the refined tree, which depends on the number of labels alone."""
    from pecos.utils.cluster_util import ClusterChain
    from pecos.xmc.base import HierarchicalKMeans

    params = HierarchicalKMeans.TrainParams.from_dict(indexer)
    if params.max_leaf_size >= n_labels:
        return 1
    depth = params.infer_binary_tree_depth(n_labels)
    codes = HierarchicalKMeans.convert_codes_to_csc_matrix(np.arange(n_labels) % 2**depth, depth)
    chain = ClusterChain.from_partial_chain(
        codes, params.min_codes or params.nr_splits, params.nr_splits
    )
    return len(chain)


class StageClock(logging.Handler):
    """Tells the stages of PECOS's training apart by what it logs when the next one begins."""

    def __init__(self):
        super().__init__(logging.INFO)
        self.began = {"fine_tune": time.perf_counter()}
        logger = logging.getLogger("pecos.xmc.xtransformer.model")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record):
        """Note the time if a stage begins."""
        for begin, stage in STAGES.items():
            if record.getMessage().startswith(begin):
                self.began[stage] = time.perf_counter()

    def seconds(self):
        """Return the seconds of each stage; the last one ends now."""
        times = [*self.began.values(), time.perf_counter()]
        return {
            stage: round(float(taken), 4)
            for stage, taken in zip(self.began, np.diff(times), strict=True)
        }


def predict(settings):
    run = further(settings)
    clock = protocol.Clock()
    modernise()
    texts, _ = protocol.documents(settings.data, "test")
    names = protocol.load_labels(settings)
    loaded = protocol.resident_mb()
    with clock("load"):
        answer = load_model(settings, run["cuda"])
        answer(texts[:1], 0)
    with clock("batch"):
        predicted = answer(texts, min(16, settings.threads))
    peak = protocol.peak_mb()
    protocol.write_predictions(settings, names, protocol.pairs_of(predicted))
    by_workers = {
        str(workers): latency(lambda text, workers=workers: answer([text], workers), texts)
        for workers in (0, DEFAULT_WORKERS)
    }
    return {
        "loaded_mb": loaded,
        "peak_mb": peak,
        "load_s": clock["load"],
        "documents_per_s": round(len(texts) / clock["batch"], 1),
        **min(by_workers.values(), key=lambda times: times["single_ms"]),
        "latency_by_workers": by_workers,
    }


def load_model(settings, cuda):
    """Return a function from texts and the number of processes that make batches to predictions."""
    from pecos.utils.featurization.text.vectorizers import Vectorizer
    from pecos.xmc.xtransformer.model import XTransformer

    vectorizer = Vectorizer.load(str(settings.model / "vectorizer"))
    model = XTransformer.load(str(settings.model / "model"), is_predict_only=True)

    def answer(texts, workers):
        x = vectorizer.predict(texts, threads=1 if len(texts) == 1 else settings.threads)
        options = {"batch_size": 256 if cuda else 32, "batch_gen_workers": workers, "use_gpu": cuda}
        return model.predict(texts, x, threads=settings.threads, **options)

    return answer


def latency(predict_one, texts):
    """Return the milliseconds of single documents: the median and the 95th of 100, of SINGLE after
    ten to warm up.
    """
    taken = []
    for text in [*texts[:10], *texts[:SINGLE]]:
        began = time.perf_counter()
        predict_one(text)
        taken.append(1e3 * (time.perf_counter() - began))
    median, high = np.percentile(taken[10:], [50, 95])
    return {"single_ms": round(float(median), 4), "single_p95_ms": round(float(high), 4)}


if __name__ == "__main__":
    protocol.main(train, predict)
