"""longtail's XR-Transformer beside PECOS's: accuracy, seconds of training, and milliseconds of a
single document.

    python benchmarks/xr_transformer_vs_peer.py FOLDER… --peer-python PATH [--encoder minilm]
        [--device cpu]
        [--threads 2] [--set training.epochs=5 …] [--peer-options '{"epochs": 5, "batch_size":
            256}']

A FOLDER holds train.jsonl and test.jsonl, or .gz. PATH is the Python of an environment with
libpecos and transformers; where they lie in a folder of their own, --peer-path FOLDER puts it
before the peer's other packages. Both start from the same encoder and the same texts, and train and
predict in a process each, on as many cores as threads, torch and transformers imported before the
clock starts. A single document is timed from its text: tf-idf, encoder and rankers. Ours runs once
before, uncounted, so that its kernels are compiled. Prints a JSON line a system and a table with
ours / peer, and the differences of precision.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

from linear_vs_peers import (
    METRICS,
    SCRIPTS,
    both_halves,
    data_file,
    environment,
    evaluation,
    laid_out,
    shown,
)
from peers import protocol

OURS = "longtail-xr-transformer"
PEER = "pecos-xr-transformer"
COLUMNS = {  # name in the result → heading of the table
    "vectorise_tree_train_s": "train s",
    "documents_per_s": "docs/s",
    "single_ms": "single ms",
    "single_p95_ms": "95 % ms",
    "model_mb": "MB",
}


def main():
    if len(sys.argv) == 3 and sys.argv[1] in ("train", "predict"):
        protocol.main(train_ours, predict_ours)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument(
        "--peer-path", type=Path, help="a folder for the front of the peer's PYTHONPATH"
    )
    parser.add_argument(
        "--peer-options",
        type=json.loads,
        default={},
        metavar="JSON",
        help="see OPTIONS of its runner",
    )
    parser.add_argument(
        "--encoder", default="minilm", help="minilm, or a folder in the layout of Hugging Face"
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="a setting of ours"
    )
    parser.add_argument("--systems", default=f"{OURS},{PEER}")
    parser.add_argument(
        "--keep", type=Path, help="a folder for models and predictions; otherwise they are removed"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = (arguments.keep or Path(scratch)).absolute()
        if OURS in arguments.systems.split(
            ","
        ):  # once uncounted: compiled kernels are kept on disk, as the peer's are
            run(OURS, arguments.folders[0], root / "first", arguments)
        rows = [
            row
            for folder in arguments.folders
            for row in compare(folder, arguments, root / folder.name)
        ]
    print(table(rows))


def compare(folder, arguments, work):
    """Run the systems on one data set and return a row for each."""
    evaluate = evaluation(folder)
    rows = []
    for system in arguments.systems.split(","):
        result = {
            **run(system, folder, work / system, arguments),
            **evaluate(work / system / "predictions.jsonl"),
        }
        rows.append({"data": folder.name, "system": system, "device": arguments.device, **result})
        print(
            json.dumps(
                {"benchmark": "xr_transformer_vs_peer", "threads": arguments.threads, **rows[-1]}
            ),
            flush=True,
        )
    return rows


def run(system, folder, output, arguments):
    """Run a system by ``both_halves``, with what the two have in common: encoder and device."""
    from longtail.features.encoder_folder import encoder_folder

    options = {"system": system, "threads": arguments.threads, "device": arguments.device}
    options |= {
        "encoder": str(encoder_folder(arguments.encoder)),
        "set": arguments.set,
        "options": arguments.peer_options,
    }
    return both_halves(
        program(system, arguments), folder, output, options, process_environment(system, arguments)
    )


def program(system, arguments):
    if system == OURS:
        return [sys.executable, __file__]
    return [str(arguments.peer_python), str(SCRIPTS / "run_pecos_transformer.py")]


def process_environment(system, arguments):
    """Return the environment of a system's process: its threads, and for the peer its packages,
    which ours lacks.
    """
    variables = {**environment(arguments.threads), "HF_HUB_OFFLINE": "1"}
    if system == PEER and arguments.peer_path:
        path = os.environ.get("PYTHONPATH")
        variables["PYTHONPATH"] = os.pathsep.join(
            [str(arguments.peer_path.absolute()), *([path] if path else [])]
        )
    return variables


def train_ours(settings):
    """Train longtail's xr-transformer; its stages are timed together."""
    import longtail as lt
    from longtail.config import parse_assignment
    from longtail.kernels import pool
    from longtail.methods import configure
    from longtail.models.model_folder import save_model
    from longtail.pipeline import train

    run = json.loads((settings.work / "settings.json").read_text())
    encoder = {"encoder": {"name": run["encoder"]}}
    config = configure("xr-transformer", None, encoder, *map(parse_assignment, run["set"]))
    documents = lt.read(data_file(settings.data, "train"))
    import_libraries()
    loaded = protocol.resident_mb()
    clock = protocol.Clock()
    with pool.threads(settings.threads):
        with clock("train"):
            model = train(documents, config, device=run["device"])
        with clock("save"):
            save_model(model, settings.model)
    return {
        "seconds": clock,
        "loaded_mb": loaded,
        "text_mb": protocol.text_mb(documents.texts),
        "model_mb": protocol.folder_mb(settings.model),
        "settings": run["set"],
    }


def predict_ours(settings):
    """Load longtail's model and predict in a batch and one at a time, from text."""
    sys.path.append(str(SCRIPTS))  # where the peer's runner finds what it shares with the others
    from run_pecos_transformer import TOP, latency

    import longtail as lt

    run = json.loads((settings.work / "settings.json").read_text())
    clock = protocol.Clock()
    texts, _ = protocol.documents(settings.data, "test")
    import_libraries()
    loaded = protocol.resident_mb()
    with clock("load"):
        model = lt.load(settings.model, threads=settings.threads, device=run["device"])
        model.predict(texts[:10], k=TOP)  # loads the compiled kernels
    with clock("batch"):
        predictions = model.predict(texts, k=TOP)
    peak = protocol.peak_mb()
    protocol.write_predictions(
        settings, predictions.labels.ids, protocol.pairs_of(predictions.matrix)
    )
    return {
        "loaded_mb": loaded,
        "peak_mb": peak,
        "load_s": clock["load"],
        "documents_per_s": round(len(texts) / clock["batch"], 1),
        **latency(lambda text: model.predict([text], k=TOP), texts),
    }


def import_libraries():
    """Import what the peer's program has imported when its clock starts; ours would do so inside,
    when it is needed.
    """
    importlib.import_module("torch")
    importlib.import_module("transformers.models.bert.modeling_bert")


def table(rows):
    """Lay out a line a system, and under the peer the ratios ours / peer and the differences of
    precision.
    """
    precisions = METRICS[:3]
    lines = [["data", "system", *COLUMNS.values(), *precisions]]
    ours = {row["data"]: row for row in rows if row["system"] == OURS}
    for row in rows:
        cells = [shown(row.get(name)) for name in COLUMNS]
        lines.append(
            [row["data"], row["system"], *cells, *(f"{row[name]:.2f}" for name in precisions)]
        )
        if row["system"] == PEER and row["data"] in ours:
            our_row = ours[row["data"]]
            ratios = [f"{our_row[name] / row[name]:.2f}×" for name in COLUMNS]
            lines.append(
                [
                    "",
                    "  ours / peer",
                    *ratios,
                    *(f"{our_row[name] - row[name]:+.2f}" for name in precisions),
                ]
            )
    return laid_out(lines)


if __name__ == "__main__":
    main()
