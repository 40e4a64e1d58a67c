"""The linear methods beside PECOS, omikuji and napkinXC: seconds, memory, size and accuracy on the
same data.

    python benchmarks/linear_vs_peers.py FOLDER… --peer-python PATH [--threads 2] [--repeat 3]
        [--systems a,b,…]

A FOLDER holds train.jsonl and test.jsonl, or .gz. PATH is the Python of an environment with
libpecos, omikuji and napkinxc. Each system trains in a fresh process and predicts in another, on as
many cores as threads; systems take turns, and every number is the median of the repeats. Documents
lie in memory as a list of strings before the clock starts; reading files is counted for nobody.
PECOS and longtail start from text; omikuji, napkinXC and «pecos-features» get longtail's tf-idf
ready-made: their seconds and sizes are without a vectoriser, and the ratio of times beside them is
of tree and training alone. Kernels are compiled before the first run. Prints a JSON line a run, one
a median, and a table with the ratios ours / peer.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from peers import protocol
from scipy import sparse

SCRIPTS = Path(__file__).with_name("peers")
PEERS = {  # ours → whom it is measured against
    "longtail-xr-linear": "pecos",
    "longtail-parabel": "omikuji-parabel",
    "longtail-bonsai": "omikuji-bonsai",
    "longtail-plt": "napkinxc-plt",
}
SYSTEMS = [name for pair in PEERS.items() for name in pair] + ["pecos-features"]
FROM_FEATURES = ("omikuji", "napkinxc", "pecos-features")
RATIOS = {  # ours / peer: name in the result → heading of the table
    "vectorise_tree_train_s": "time",
    "vectorise_mb_per_s": "tf-idf MB/s",
    "documents_per_s": "docs/s",
    "single_ms": "single ms",
    "model_mb": "size",
    "train_peak_mb": "peak",
}
FROM_TEXT_ONLY = ("documents_per_s", "single_ms")  # no ratio to a system that starts from features
METRICS = ("P@1", "P@3", "P@5", "nDCG@1", "nDCG@3", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def main():
    if len(sys.argv) == 3 and sys.argv[1] in ("train", "predict"):
        protocol.main(train_ours, predict_ours)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--peer-python", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument(
        "--keep", type=Path, help="a folder for models and predictions; otherwise they are removed"
    )
    arguments = parser.parse_args()
    systems = arguments.systems.split(",")
    unknown = sorted(set(systems) - set(SYSTEMS))
    if unknown:
        parser.error(f"--systems: found {', '.join(unknown)}; expected some of {','.join(SYSTEMS)}")
    with tempfile.TemporaryDirectory() as scratch:
        root = (arguments.keep or Path(scratch)).absolute()
        compile_kernels([name for name in systems if name in PEERS], root, arguments)
        medians = [
            row for folder in arguments.folders for row in compare(folder, systems, arguments, root)
        ]
    print(table(medians))


def compile_kernels(systems, root, arguments):
    """Run ours on the bundled sample first: compiled kernels are kept on disk, and are compiled
    once a machine.
    """
    from longtail.data.sample import FOLDER

    for name in systems:
        run(name, FOLDER, root / "sample", arguments)


def compare(folder, systems, arguments, root):
    """Run all systems on one data set in turns and return a row of medians for each."""
    evaluate = evaluation(folder)
    work = root / folder.name
    if any(name.startswith(FROM_FEATURES) for name in systems):
        make_features(folder, work / "features")
    runs = {name: [] for name in systems}
    for repeat in range(arguments.repeat):
        for name in systems:
            result = {
                **run(name, folder, work, arguments),
                **evaluate(work / name / "predictions.jsonl"),
            }
            runs[name].append(result)
            report(
                kind="run",
                data=folder.name,
                system=name,
                repeat=repeat,
                threads=arguments.threads,
                **result,
            )
    rows = [
        {"data": folder.name, "system": name, **median(results)} for name, results in runs.items()
    ]
    for row in rows:
        report(kind="median", repeats=arguments.repeat, threads=arguments.threads, **row)
    return rows


def run(system, folder, work, arguments):
    """Run a system by ``both_halves``, with longtail's features where it starts from these."""
    options = {"system": system, "threads": arguments.threads}
    if system.startswith(FROM_FEATURES):
        options["features"] = str(work / "features")
    return both_halves(
        program(system, arguments), folder, work / system, options, environment(arguments.threads)
    )


def both_halves(command, folder, output, options, variables):
    """Train and predict, each in a fresh process of the system's own Python, and return what they
    measured.
    """
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    settings = output / "settings.json"
    settings.write_text(
        json.dumps({"data": str(folder.absolute()), "work": str(output), **options})
    )
    for half in ("train", "predict"):
        with (output / f"{half}.log").open("w") as log:
            done = subprocess.run(
                [*command, half, settings], stdout=log, stderr=subprocess.STDOUT, env=variables
            )
        if done.returncode:
            raise SystemExit(
                f"{options['system']}, {half} on "
                f"{folder}:\n{(output / f'{half}.log').read_text()[-2000:]}"
            )
    return in_one(
        json.loads((output / "train.json").read_text()),
        json.loads((output / "predict.json").read_text()),
    )


def program(system, arguments):
    if system in PEERS:
        return [sys.executable, __file__]
    return [str(arguments.peer_python), str(SCRIPTS / f"run_{system.split('-')[0]}.py")]


def environment(threads):
    pools = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    )
    return {**os.environ, **dict.fromkeys(pools, str(threads))}


def in_one(train, predict):
    """Return the measurements of both halves as one flat result."""
    seconds = train.pop("seconds")
    parts = [seconds.get(stage) for stage in ("vectorise", "tree", "train")]
    result = {"vectorise_tree_train_s": round(sum(part or 0 for part in parts), 3)}
    result["tree_train_s"] = round(sum(part or 0 for part in parts[1:]), 3)
    result |= {f"{stage}_s": value for stage, value in seconds.items()}
    if seconds.get("vectorise"):
        result["vectorise_mb_per_s"] = round(train["text_mb"] / seconds["vectorise"], 2)
    for half, measured in (("train", train), ("predict", predict)):
        result |= {
            f"{half}_{name}": measured.pop(name) for name in ("loaded_mb", "peak_mb")
        } | measured
    return result


def evaluation(folder):
    """Return a function from a file of predictions to the metrics in percent, the same code for
    every system.
    """
    import longtail as lt

    train = lt.read(data_file(folder, "train"))
    test = lt.read(data_file(folder, "test"), labels=train.labels, unknown="add")
    counts = np.zeros(test.n_labels, np.int64)
    counts[: train.n_labels] = train.label_counts

    def metrics(file):
        ranked = lt.read_predictions(file, test.labels, n_documents=len(test)).matrix
        measured = lt.metrics.evaluate(
            ranked, test.label_matrix, label_counts=counts, n_train=len(train)
        )
        return {name: round(100 * measured[name], 3) for name in METRICS}

    return metrics


def data_file(folder, split):
    plain = folder / f"{split}.jsonl"
    return plain if plain.exists() else folder / f"{split}.jsonl.gz"


def make_features(folder, target):
    """Write longtail's features of both splits, those of its own methods, for systems that have no
    vectoriser.
    """
    from longtail.features.tfidf import TfIdf
    from longtail.methods import configure

    target.mkdir(parents=True, exist_ok=True)
    vectoriser, features = TfIdf.fit_transform(
        protocol.documents(folder, "train")[0], configure("xr-linear").tfidf
    )
    sparse.save_npz(target / "train.npz", features, compressed=False)
    features = vectoriser.transform(protocol.documents(folder, "test")[0])
    sparse.save_npz(target / "test.npz", features, compressed=False)


class StageClock(logging.Handler):
    """Adds up the seconds that longtail logs for each stage: «features», «tree», «level 1 of 3», …"""

    def __init__(self):
        super().__init__(logging.INFO)
        self.seconds = {}

    def emit(self, record):
        """Take the line if it is (stage, facts, seconds)."""
        if len(record.args or ()) == 3 and isinstance(record.args[2], float):
            stage, _, seconds = record.args
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds


def train_ours(settings):
    """Train one of longtail's methods.

    Whatever is not in the stages «features» and «tree» counts as training.
    """
    import longtail as lt

    data = lt.read(data_file(settings.data, "train"))
    loaded = protocol.resident_mb()
    clock = protocol.Clock()
    stages = StageClock()
    model = lt.Longtail(settings.system.removeprefix("longtail-"), seed=0, threads=settings.threads)
    logging.getLogger("longtail").setLevel(logging.INFO)
    logging.getLogger("longtail").addHandler(stages)
    with clock("fit"):
        model.fit(data)
    with clock("save"):
        model.save(settings.model)
    seconds = {"vectorise": stages.seconds["features"], "tree": stages.seconds["tree"]}
    seconds["train"] = clock["fit"] - sum(seconds.values())
    return {
        "seconds": {
            **{name: round(value, 4) for name, value in seconds.items()},
            "save": clock["save"],
        },
        "loaded_mb": loaded,
        "peak_mb": protocol.peak_mb(),
        "text_mb": protocol.text_mb(data.texts),
        "model_mb": protocol.folder_mb(settings.model),
    }


def predict_ours(settings):
    """Load longtail's model and predict in a batch and one at a time, from text."""
    import longtail as lt

    texts, _ = protocol.documents(settings.data, "test")
    clock = protocol.Clock()
    loaded = protocol.resident_mb()
    with clock("load"):
        model = lt.load(settings.model, threads=settings.threads)
        model.predict(texts[:10], k=protocol.TOP)  # loads the compiled kernels
    with clock("batch"):
        predictions = model.predict(texts, k=protocol.TOP)
    peak = protocol.peak_mb()
    protocol.write_predictions(
        settings, predictions.labels.ids, protocol.pairs_of(predictions.matrix)
    )
    return {
        "loaded_mb": loaded,
        "peak_mb": peak,
        "load_s": clock["load"],
        "documents_per_s": round(len(texts) / clock["batch"], 1),
        "single_ms": protocol.single_ms(lambda text: model.predict([text], k=protocol.TOP), texts),
    }


def median(results):
    """Return the median of every number; of what is no number, the first."""
    first = results[0]
    return {name: middle([result[name] for result in results]) for name in first}


def middle(values):
    if len(set(map(str, values))) == 1 or not isinstance(values[0], int | float):
        return values[0]
    return round(statistics.median(values), 4)


def report(**fields):
    print(json.dumps({"benchmark": "linear_vs_peers", **fields}), flush=True)


def table(rows):
    """Lay out a line a system, and under each of ours the ratios ours / peer and the differences of
    precision.
    """
    by_name = {(row["data"], row["system"]): row for row in rows}
    lines = [
        ["data", "system", "vect s", "tree s", "train s", *RATIOS.values(), "P@1", "P@3", "P@5"]
    ]
    for row in rows:
        stages = [shown(row.get(name)) for name in ("vectorise_s", "tree_s", "train_s")]
        cells = [shown(row.get(name)) for name in RATIOS]
        lines.append(
            [
                row["data"],
                row["system"],
                *stages,
                *cells,
                *(f"{row[f'P@{k}']:.2f}" for k in (1, 3, 5)),
            ]
        )
        peer = by_name.get((row["data"], PEERS.get(row["system"])))
        if peer:
            ratios = [ratio(row, peer, name) for name in RATIOS]
            gains = [f"{row[f'P@{k}'] - peer[f'P@{k}']:+.2f}" for k in (1, 3, 5)]
            lines.append(["", f"  / {peer['system']}", "", "", "", *ratios, *gains])
    return laid_out(lines)


def laid_out(lines):
    """Return lines of cells as text, in columns."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shown(value):
    if value is None:
        return "–"
    return f"{value:.4g}"


def ratio(ours, peer, name):
    """Return ours / peer, of what both have done."""
    if peer["system"].startswith(FROM_FEATURES):
        name = {"vectorise_tree_train_s": "tree_train_s"}.get(name, name)
        if name in FROM_TEXT_ONLY:
            return "–"
    if not ours.get(name) or not peer.get(name):
        return "–"
    return f"{ours[name] / peer[name]:.2f}×"


if __name__ == "__main__":
    main()
