"""Runs ``longtail reproduce`` on a synthetic corpus of the published size, and prints time and
memory of each stage.

    python benchmarks/rehearsal.py amazon-670k --set training.epochs=1
    python benchmarks/rehearsal.py wiki-500k --share 0.25 --set training.epochs=1
    python benchmarks/rehearsal.py amazon-670k --share 0.002 --depth 12 --width 32      # the way
        alone, on a laptop

The corpus has the layout and the sizes of the authors' download (``synthetic_corpus.py``), the
encoder is BERT-base with random weights, so the accuracy says nothing; what is measured is whether
the recipe runs at this size, how long each stage takes, and how much memory it takes beside what
the forecast said. A JSON line for each stage, and one for the whole run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

FOLDERS = {
    "amazon-670k": "Amazon-670K",
    "wiki-500k": "Wiki-500K",
    "amazon-3m": "Amazon-3M",
    "wiki10-31k": "Wiki10-31K",
    "amazoncat-13k": "AmazonCat-13K",
    "eurlex-4k": "Eurlex-4K",
    "lf-amazontitles-131k": "LF-AmazonTitles-131K",
    "lf-wikiseealsotitles-320k": "LF-WikiSeeAlsoTitles-320K",
    "lf-wikititles-500k": "LF-WikiTitles-500K",
    "lf-amazontitles-1.3m": "LF-AmazonTitles-1.3M",
}


def main() -> None:
    """Write the corpus and the encoder, run the experiment, and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", choices=FOLDERS)
    parser.add_argument(
        "--experiment", help="cascadexml/DATASET, or inceptionxml/DATASET for titles, otherwise"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the documents; labels are always all"
    )
    parser.add_argument(
        "--test-share", type=float, default=1.0, help="further share of the test documents"
    )
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", default="0")
    parser.add_argument("--depth", type=int, default=12, help="layers of the encoder")
    parser.add_argument("--width", type=int, default=768, help="numbers of its vectors")
    parser.add_argument("--folder", type=Path, default=Path("rehearsal"))
    parser.add_argument(
        "--keep", action="store_true", help="leave what was written; a second call goes on with it"
    )
    parser.add_argument(
        "--ignore-memory", action="store_true", help="train whatever the forecast says"
    )
    arguments = parser.parse_args()
    folder = arguments.folder / FOLDERS[arguments.dataset]
    corpus_seconds = written(arguments, folder)
    begin = time.perf_counter()
    output = arguments.folder / f"{arguments.dataset}-run"
    status, peak = reproduced(arguments, folder, output)
    seconds = time.perf_counter() - begin
    stages = [line for log in sorted(output.glob("*.run.jsonl")) for line in stage_lines(log)]
    for stage in stages:
        print(
            json.dumps({"benchmark": "rehearsal", "dataset": arguments.dataset, **stage}),
            flush=True,
        )
    total = {
        "benchmark": "rehearsal",
        "dataset": arguments.dataset,
        "experiment": experiment_of(arguments),
        "share": arguments.share,
        "settings": arguments.settings,
        "cores": os.cpu_count(),
        "corpus_s": round(corpus_seconds, 1),
        "all_s": round(seconds, 1),
        "peak_gb": round(peak / 1e9, 2),
        "status": status,
    }
    print(json.dumps(total), flush=True)
    if not arguments.keep:
        shutil.rmtree(arguments.folder)
    sys.exit(status)


def written(arguments: argparse.Namespace, folder: Path) -> float:
    """Write the corpus and the encoder, unless an earlier call kept them; return the seconds of
    that.
    """
    if folder.exists():
        print(f"{folder}: is there, and not written again", file=sys.stderr)
        return 0.0
    begin = time.perf_counter()
    command = [
        *(
            sys.executable,
            str(Path(__file__).parent / "synthetic_corpus.py"),
            arguments.dataset,
            str(folder),
        ),
        *("--share", str(arguments.share), "--test-share", str(arguments.test_share)),
        *("--encoder", str(arguments.folder / "encoders" / "bert-base-uncased")),
        *("--depth", str(arguments.depth), "--width", str(arguments.width)),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)  # its memory is not that of the run
    return time.perf_counter() - begin


def experiment_of(arguments: argparse.Namespace) -> str:
    """Return the experiment asked for, else the one that the dataset was made for."""
    method = "cascadexml"
    if arguments.dataset.startswith("lf-"):
        method = "inceptionxml"
    elif arguments.dataset == "eurlex-4k":
        method = "xr-transformer"  # the CascadeXML paper has no row of this dataset
    return arguments.experiment or f"{method}/{arguments.dataset}"


def reproduced(arguments: argparse.Namespace, folder: Path, output: Path) -> tuple[int, int]:
    """Run the experiment in a process of its own; return its exit status and its largest memory in
    bytes.
    """
    command = [
        *(sys.executable, "-m", "longtail", "reproduce", experiment_of(arguments), str(folder)),
        *(
            "--output",
            str(output),
            "--single",
            "--device",
            arguments.device,
            "--threads",
            arguments.threads,
        ),
        *("--encoder-folder", str(arguments.folder / "encoders")),
        *(word for setting in arguments.settings for word in ("--set", setting)),
        *(["--ignore-memory"] if arguments.ignore_memory else []),
    ]
    process = subprocess.Popen(command, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def stage_lines(log: Path) -> list[dict[str, object]]:
    """Return the forecast and the stages of a run log, and of a network the last step of each
    epoch.
    """
    events = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    lines = []
    for event in events:
        if event.get("event") == "stage":
            facts = {"stage": event["name"], "s": event["seconds"], "facts": event["facts"]}
            lines.append({**facts, "peak_gb": round(event["memory_mb"] / 1e3, 2)})
        elif event.get("event") == "epoch":
            kept = {
                name: event[name] for name in ("number", "seconds", "samples_per_s", "peak_gib")
            }
            lines.append({"stage": "epoch", **kept})
        elif event.get("event") == "forecast":
            lines.append(
                {"stage": "forecast", **{key: event[key] for key in event if key != "event"}}
            )
    return lines


if __name__ == "__main__":
    main()
