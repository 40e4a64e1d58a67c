"""Writes docs/reproducing.md from the data files of ``longtail.reproduction`` and the presets.

python scripts/reproducing_page.py > docs/reproducing.md; a test sees that the page is what this gives.
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

`longtail reproduce` runs a published experiment again, from the files as their authors publish them to the row of the
paper: it trains the models that the row has, joins them as the authors do, measures them with the constants of the
dataset's propensities and its filter file, and prints each published number beside the measured one.

    longtail reproduce cascadexml/amazon-670k Amazon-670K -o out --encoder-folder encoders

`longtail reproduce --list` shows every experiment with its published numbers, and what it would take on this machine.
Settings come from the [presets](methods.md), which are the papers' recipes; `longtail methods cascadexml --preset
amazon-670k` prints one with the source of every value.

| option | what it does |
|---|---|
| `--single` | trains the first model of an ensemble only; it stands beside the rows of single models |
| `--seeds 3` | repeats the experiment with other seeds: mean ± standard deviation |
| `--share 0.01` | takes this share of the documents and all labels, for a quick look at the whole way; \
the numbers mean nothing |
| `--set training.micro_batch=64` | changes a setting; the result says that this is another recipe, \
unless the setting has no effect on the model |
| `--list --json` | the list for other programs |

The folder `out` gets a model folder for each model (`member-NAME`), its labels of the test documents
(`predictions-NAME`), and the result as `result.json` and `result.txt`. A run that was interrupted goes on where it
stopped when the same command is given again: finished models are not trained again. A folder takes one experiment on
one set of documents; anything else is refused. From Python:

```python
from longtail.reproduction import reproduce

result = reproduce(
    "cascadexml/amazon-670k", "Amazon-670K", "out", encoder_folder="encoders", single=True
)
```
"""

_DATA = """
## What to download, and where to put it

Nothing is downloaded by Longtail. Each dataset is a folder with the files of its authors, as they lie in the archive,
`.gz` and `.zst` included; its name is free, but a folder of titles should keep its name. Sizes are compared with the
published ones, and differences are named in the result.

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
features; no tf-idf, so a method that reads tf-idf makes its own, and the result says that it is not comparable |
| bag of words | `train.txt` and `test.txt`, or `trn_X_Xf.txt`, `trn_X_Y.txt`, `tst_X_Xf.txt`, `tst_X_Y.txt` | \
the same repository, BoW features; for linear methods only, and its features are not the papers' tf-idf |

The two first layouts hold the same documents, features and split; either will do.

Encoders are folders in the layout of Hugging Face (`config.json`, `model.safetensors`, the files of the tokeniser)
under the names of the recipes, such as `encoders/bert-base-uncased`; `--encoder-folder encoders` says where. Without it
the cache of Hugging Face on this machine is searched. Vectors of words are text files (GloVe, fastText) in the same
folder. What is missing is refused before any document is read.
"""


_TYPE = """
## What to type

The first column is the experiment: `longtail reproduce EXPERIMENT FOLDER -o OUT`. Numbers are in percent, as published;
*in* names the table, `xr-transformer-2` being table 2 of XR-Transformer, and *models* how many were joined there.
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
    for name, own in published_datasets().items():
        a, b = own.propensity
        counts = [f"{count:,}" for count in (own.train, own.test, own.labels, own.features)]
        yield [f"{own.title} (`{name}`)", *counts, f"{a:g}, {b:g}"]


def _encoders() -> Iterator[list[str]]:
    """Yield each encoder or file of word vectors with the methods that read it."""
    found: dict[str, list[str]] = {}
    for entry in experiments().values():
        for member in entry.members:
            config = entry.config(member)
            if uses_encoder(config) and config.encoder.name != "learned":
                found.setdefault(config.encoder.name, []).append(f"`{entry.method}`")
    for name, methods in found.items():
        yield [f"`{name}`", ", ".join(dict.fromkeys(methods))]


def _of_dataset(name: str, dataset: PublishedDataset) -> str:
    """Return the section of a dataset: what to type, and a line for each published row."""
    own = [entry for entry in experiments().values() if entry.dataset == name]
    example = own[0].name
    command = f"    longtail reproduce {example} {dataset.title} -o out --encoder-folder encoders"
    published = [row for entry in own for row in entry.published_rows() if _metrics(row)]
    lines = [f"\n### {dataset.title}\n", command, ""]
    if not published:
        names = ", ".join(f"`{entry.name}`" for entry in own)
        lines.append(
            f"No number of the tables that come with Longtail is on this dataset. Experiments: {names}."
        )
        return "\n".join(lines)
    shown = [metric for metric in _METRICS if any(metric in row.values for row in published)]
    rows = [cells for entry in own for cells in _rows(entry, shown)]
    lines.append(_table(["experiment", "in", "system", "models", *shown], rows))
    return "\n".join(lines)


def _metrics(row: PublishedRow) -> list[str]:
    return [metric for metric in _METRICS if metric in row.values]


def _rows(entry: Experiment, shown: list[str]) -> Iterator[list[str]]:
    name = f"`{entry.name}`"
    for row in entry.published_rows():
        if not _metrics(row):
            continue  # hours of training alone
        system = f"{row.system}, {row.setting}" if row.setting else row.system
        digits = (
            1
            if all(round(row.values[metric], 1) == row.values[metric] for metric in _metrics(row))
            else 2
        )
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
        "All other experiments are of one model. A label that a list does not have counts 0. The fusions are those of "
        "the authors' published code; they join scores, not calibrated probabilities. The row of a single model is "
        "compared with the first one.\n",
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
    remarks += ["not yet"] if member.missing else []
    return f"{member.name} ({', '.join(remarks)})" if remarks else member.name


def _deviations() -> str:
    """Return what the recipes have and this software has not, by method."""
    lines = []
    for method, entry in METHODS.items():
        found: dict[str, list[str]] = {}
        for name, preset in entry.presets.items():
            for deviation in preset.deviations:
                found.setdefault(deviation, []).append(name)
        for deviation, names in found.items():
            where = "" if len(names) == len(entry.presets) else f" ({', '.join(names)})"
            lines.append(f"- `{method}`{where}: {deviation}")
    head = "\n## Where this differs from the authors' recipes\n\n"
    return head + "\n".join(lines or ["Nothing is known of."])


def _sources() -> str:
    """Return the papers with the remarks on their tables, and what of them is not run again."""
    lines = ["\n## The published tables\n"]
    for name, paper in read_papers().items():
        lines.append(
            f"**{paper.title}** ({paper.authors}; {paper.published}). Tables here: {paper.tables}. {paper.left_out}"
        )
        notes = [
            (table, note)
            for table in read_tables().values()
            if table.paper == name
            for note in table.notes
        ]
        lines.append("")
        lines += [f"- Table {table.number}: {note}" for table, note in notes]
        lines += [""] if notes else []
    lines.append("Rows that no experiment stands beside:\n")
    for own in left_out():
        systems = f", {' and '.join(own.systems)}" if own.systems else ""
        lines.append(f"- {', '.join(own.tables)}{systems}: {own.reason}.")
    return "\n".join(lines) + "\n"


def _table(heads: list[str], rows: Iterator[list[str]] | list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(reproducing_page())
