"""Writes docs/reproducing.md from the data files of ``longtail.reproduction`` and the presets.

python scripts/reproducing_page.py > docs/reproducing.md; a test sees that the page is what this
gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from longtail.methods import METHODS, uses_encoder
from longtail.reproduction.experiments import Experiment, PublishedRow, experiments, left_out
from longtail.reproduction.published import (
    PublishedDataset,
    published_datasets,
    read_papers,
    read_tables,
)

__all__ = ["reproducing_page"]

_METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "R@1", "R@3", "R@5")
_FUSIONS = {
    "mean": "the mean of the scores",
    "sigmoid": "the mean of σ(score)",
    "softmax": "the mean of the softmax over each list",
    "rank": "the mean of ranks",
}

_HEAD = """# Reproduce the papers

<!-- Made by scripts/reproducing_page.py from the data files of longtail.reproduction; change these, not the page. -->

`longtail reproduce` repeats a published experiment, from the published files of a dataset to a row of a table: it
trains the models of the row, combines them as the authors do, computes the metrics with the propensity constants and
filter file of the dataset, and prints each published number beside the measured one.

    longtail reproduce cascadexml/amazon-670k Amazon-670K -o out --encoder-folder encoders

`longtail reproduce --list` shows all experiments with their published numbers, and a forecast of time and memory.
Settings come from the [presets](methods.md), which are the papers' recipes; `longtail methods cascadexml --preset
amazon-670k` prints one with the source of every value.

| option | what it does |
|---|---|
| `--single` | trains only the first model of an ensemble; it is compared with the rows of single models |
| `--seeds 3` | repeats the experiment with other seeds: mean ± standard deviation |
| `--share 0.01` | uses this share of the documents and all labels, for a quick trial of all steps; \
the numbers cannot be compared |
| `--set training.micro_batch=64` | changes a setting; the result states that the recipe was changed, \
unless the setting has no effect on the model |
| `--list --json` | the list as JSON |

The folder `out` gets a model folder per model (`member-NAME`), its predictions for the test documents
(`predictions-NAME`), and the result as `result.json` and `result.txt`. The same command resumes an interrupted run;
finished models are not trained again. A folder belongs to one experiment on one set of documents; anything else is
refused. From Python:

```python
from longtail.reproduction import reproduce

result = reproduce(
    "cascadexml/amazon-670k", "Amazon-670K", "out", encoder_folder="encoders", single=True
)
```
"""

_DATA = """
## Downloads and folders

Longtail downloads nothing. Each dataset is a folder with the files of its authors as in the archive, also compressed
(`.gz`, `.zst`); its name is free, but a folder of titles should keep its name. Sizes are compared with the published
ones, and differences are listed in the result.

| layout | files | published at |
|---|---|---|
| AttentionXML | `train_raw_texts.txt`, `train_labels.txt`, `test_raw_texts.txt`, `test_labels.txt`, and the tf-idf \
features `train_v1.txt` (`train.txt`), `test.txt` | the page of [AttentionXML](https://github.com/yourh/AttentionXML), \
section Datasets |
| PECOS | `X.trn.txt`, `X.tst.txt`, `Y.trn.npz`, `Y.tst.npz`, and the same tf-idf features as \
`tfidf-attnxml/X.trn.npz`, `tfidf-attnxml/X.tst.npz` | the page of \
[PECOS](https://github.com/amzn/pecos) names the archive \
`xmc-base`, a file `DATASET.tar.gz` for each dataset |
| label features | `trn.json.gz`, `tst.json.gz`, `lbl.json.gz`, `filter_labels_test.txt` | the \
[Extreme Classification Repository](http://manikvarma.org/downloads/XC/XMLRepository.html), raw text; a set of titles \
is the titles of the set without "Titles" in its name |
| raw texts | `trn.raw.json.gz`, `tst.raw.json.gz`, `Yf.txt` | the same repository, raw text of the sets without label \
features; without tf-idf, so a method that reads tf-idf computes it, and the result is marked as not comparable |
| bag of words | `train.txt` and `test.txt`, or `trn_X_Xf.txt`, `trn_X_Y.txt`, `tst_X_Xf.txt`, `tst_X_Y.txt` | \
the same repository, BoW features; for linear methods only, and its features are not the papers' tf-idf |

The first two layouts have the same documents, features and split.

Encoders are folders in the layout of Hugging Face (`config.json`, `model.safetensors`, the files of the tokeniser)
under the names of the recipes, such as `encoders/bert-base-uncased`, in the folder of `--encoder-folder`. Without this
option the cache of Hugging Face on this machine is searched. Word vectors are text files (GloVe, fastText) in the same
folder. A missing encoder is refused before any document is read.
"""


_TYPE = """
## Experiments

The first column is EXPERIMENT in `longtail reproduce EXPERIMENT FOLDER -o OUT`. Numbers are in percent as published;
*in* is the table (`xr-transformer-2` is table 2 of XR-Transformer), and *models* the number of models in the ensemble.
"""


def reproducing_page() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        _DATA,
        _table(["looked for", "by the recipes of"], _encoders()),
        "",
        _table(["dataset", "to train on", "test", "labels", "features", "A, B"], _sizes()),
        _TYPE,
        *(_of_dataset(name, dataset) for name, dataset in published_datasets().items()),
        _members(),
        _deviations(),
        _sources(),
    ]
    return "\n".join(parts)


def _sizes() -> Iterator[list[str]]:
    for name, dataset in published_datasets().items():
        a, b = dataset.propensity
        counts = [
            f"{count:,}"
            for count in (dataset.train, dataset.test, dataset.labels, dataset.features)
        ]
        yield [f"{dataset.title} (`{name}`)", *counts, f"{a:g}, {b:g}"]


def _encoders() -> Iterator[list[str]]:
    """Yield each encoder or file of word vectors with the methods that read it."""
    by_encoder: dict[str, list[str]] = {}
    for entry in experiments().values():
        for member in entry.members:
            config = entry.config(member)
            if uses_encoder(config) and config.encoder.name != "learned":
                by_encoder.setdefault(config.encoder.name, []).append(f"`{entry.method}`")
    for name, methods in by_encoder.items():
        yield [f"`{name}`", ", ".join(dict.fromkeys(methods))]


def _of_dataset(name: str, dataset: PublishedDataset) -> str:
    """Return the section of a dataset: what to type, and a line for each published row."""
    of_dataset = [entry for entry in experiments().values() if entry.dataset == name]
    example = of_dataset[0].name
    command = f"    longtail reproduce {example} {dataset.title} -o out --encoder-folder encoders"
    published = [row for entry in of_dataset for row in entry.published_rows() if _metrics(row)]
    lines = [f"\n### {dataset.title}\n", command, ""]
    if not published:
        names = ", ".join(f"`{entry.name}`" for entry in of_dataset)
        lines.append(
            "No number of the tables that come with Longtail is on this dataset. Experiments: "
            f"{names}."
        )
        return "\n".join(lines)
    shown = [metric for metric in _METRICS if any(metric in row.values for row in published)]
    rows = [cells for entry in of_dataset for cells in _rows(entry, shown)]
    lines.append(_table(["experiment", "in", "system", "models", *shown], rows))
    return "\n".join(lines)


def _metrics(row: PublishedRow) -> list[str]:
    return [metric for metric in _METRICS if metric in row.values]


def _rows(entry: Experiment, shown: list[str]) -> Iterator[list[str]]:
    name = f"`{entry.name}`"
    for row in entry.published_rows():
        if not _metrics(row):
            continue  # hours of training alone
        system = row.system
        if row.setting:
            system += f", {row.setting}"
        digits = 2
        if all(round(row.values[metric], 1) == row.values[metric] for metric in _metrics(row)):
            digits = 1
        values = [
            f"{row.values[metric]:.{digits}f}" if metric in row.values else "" for metric in shown
        ]
        yield [name, row.table, system, str(row.models), *values]
        name = ""


def _members() -> str:
    """Return which models an experiment trains and how they are joined."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for entry in experiments().values():
        if len(entry.members) == 1:
            continue
        models = ", ".join(_member(entry, number) for number in range(len(entry.members)))
        joined = f"{_FUSIONS[entry.fusion]}, {entry.labels} labels each"
        rows.setdefault((models, joined), []).append(f"`{entry.name}`")
    text = [
        "\n## Which models, and how they are joined\n",
        "All other experiments are of one model. A label that a list does not have counts 0. The "
        "fusions are those of the authors' published code; they join scores, not calibrated "
        "probabilities. The row of a single model is compared with the first one.\n",
        _table(
            ["experiments", "models", "joined by"],
            ([", ".join(names), *row] for row, names in rows.items()),
        ),
    ]
    notes: dict[str, list[str]] = {}
    for entry in experiments().values():
        if entry.note:
            notes.setdefault(entry.note, []).append(f"`{entry.name}`")
    return "\n".join(
        [*text, "", *(f"- {', '.join(names)}: {note}" for note, names in notes.items())]
    )


def _member(entry: Experiment, number: int) -> str:
    member = entry.members[number]
    remarks = [f"`{path}={value}`" for path, value in member.settings.items()]
    if member.missing:
        remarks.append("not yet")
    if not remarks:
        return member.name
    return f"{member.name} ({', '.join(remarks)})"


def _deviations() -> str:
    """Return the deviations from the recipes by method."""
    lines = []
    for method, entry in METHODS.items():
        by_deviation: dict[str, list[str]] = {}
        for name, preset in entry.presets.items():
            for deviation in preset.deviations:
                by_deviation.setdefault(deviation, []).append(name)
        for deviation, names in by_deviation.items():
            presets = ""
            if len(names) < len(entry.presets):
                presets = f" ({', '.join(names)})"
            lines.append(f"- `{method}`{presets}: {deviation}")
    head = "\n## Where this differs from the authors' recipes\n\n"
    return head + "\n".join(lines or ["Nothing is known of."])


def _sources() -> str:
    """Return the papers with the notes on their tables, and the rows without an experiment."""
    lines = ["\n## The published tables\n"]
    for name, paper in read_papers().items():
        lines.append(
            f"**{paper.title}** ({paper.authors}; {paper.published}). Tables here: "
            f"{paper.tables}. {paper.left_out}"
        )
        notes = [
            (table, note)
            for table in read_tables().values()
            if table.paper == name
            for note in table.notes
        ]
        lines.append("")
        lines += [f"- Table {table.number}: {note}" for table, note in notes]
        if notes:
            lines.append("")
    lines.append("Rows without an experiment:\n")
    for rows in left_out():
        names = ", ".join(rows.tables)
        if rows.systems:
            names += f", {' and '.join(rows.systems)}"
        lines.append(f"- {names}: {rows.reason}.")
    return "\n".join(lines) + "\n"


def _table(heads: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(reproducing_page())
