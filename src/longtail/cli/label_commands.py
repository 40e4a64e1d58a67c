"""Commands for labels: the vocabulary, which labels go together, and new ones for a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from longtail.cli.options import (
    Device,
    Fields,
    Force,
    Format,
    Json,
    Labels,
    LabelsColumn,
    LabelSeparator,
    ModelFolder,
    Separator,
    SetOptions,
    SkipBad,
    Split,
    TextColumn,
    Threads,
    app,
    overrides,
    read_data,
    say,
)
from longtail.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy import sparse

    from longtail.config import Config
    from longtail.data.dataset import Dataset
    from longtail.data.labels import Labels as Vocabulary

__all__ = ["extend", "labels"]


@app.command(epilog="Example: longtail labels train.jsonl --neighbours Birds -k 9")
def labels(
    path: Annotated[str, typer.Argument(metavar="DATA|MODEL", help="Data, or a model folder.")],
    neighbours: Annotated[
        str | None, typer.Option(metavar="NAME", help="Label whose neighbours are shown.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Labels shown, at most.")] = 10,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the neighbours (.png, .svg, .pdf).")
    ] = None,
    vocabulary: Labels = None,
    format: Format = None,
    label_separator: LabelSeparator = ";",
    separator: Separator = None,
    text_column: TextColumn = None,
    labels_column: LabelsColumn = None,
    fields: Fields = None,
    split: Split = "train",
    skip_bad: SkipBad = 0,
    set_: SetOptions = None,
    json: Json = False,
) -> None:
    """Show the labels of data or of a model, or the labels that go with one: its neighbours in the
    label graph.
    """
    from longtail.report.picture_files import picture_suffix

    if figure:
        picture_suffix(figure)
        if neighbours is None:
            raise UsageError(
                "--figure draws the neighbours of a label; expected --neighbours NAME beside it"
            )
    config = _config(set_)
    if Path(path, "manifest.json").exists():
        if vocabulary:
            say("--labels has no effect on a model, which has its own")
        source = _of_model(Path(path), neighbours is not None)
    else:
        documents = read_data(
            path,
            format=format,
            labels=vocabulary,
            fields=fields,
            split=split,
            skip_bad=skip_bad,
            label_separator=label_separator,
            separator=separator,
            text_column=text_column,
            labels_column=labels_column,
        )
        source = _of_data(documents, config, neighbours is not None)
    if neighbours is None or source.graph is None:
        _show_vocabulary(source, k, json)
        return
    own, rows = _neighbours(source, source.graph, neighbours, k)
    _show_neighbours(own, rows, config.label_features.graph_max_documents, json)
    if figure:
        from longtail.report.label_figures import draw_neighbours

        draw_neighbours(own["name"], [(row["name"], row["value"]) for row in rows], figure)
        say(f"{figure}: written")


@app.command(epilog="Example: longtail extend model new-labels.tsv -o larger")
def extend(
    model: ModelFolder,
    labels: Annotated[
        Path, typer.Argument(metavar="LABELS", help="Label file (JSONL, TSV, SKOS).")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="Model folder to write.")
    ],
    force: Force = False,
    skip_bad: SkipBad = 0,
    threads: Threads = 0,
    device: Device = "auto",
) -> None:
    """Give a model labels that it was never trained on, by their words: inceptionxml-lf, decaf,
    eclare.
    """
    from longtail.extending import extend_to_folder

    extend_to_folder(
        model, labels, output, force=force, skip_bad=skip_bad, threads=threads, device=device
    )
    say(f"{output}: written")


class _Source(NamedTuple):
    """Labels, the documents of each, and where neighbours are asked for, the normalised label
    graph.
    """

    labels: Vocabulary
    counts: NDArray[np.int64]
    graph: sparse.csr_array | None


def _config(set_: list[str] | None) -> Config:
    from longtail.config import resolve

    return resolve(*overrides(None, set_))


def _of_data(documents: Dataset, config: Config, with_graph: bool) -> _Source:
    from longtail.steps.trees import label_graph_of
    from longtail.steps.work import Work

    graph = label_graph_of(documents, config, Work()) if with_graph else None
    return _Source(documents.labels, documents.label_counts, graph)


def _of_model(path: Path, with_graph: bool) -> _Source:
    from longtail.models.model_folder import load_model

    model = load_model(path, "cpu")
    graph = model.label_graph
    if with_graph and graph is None:
        raise UsageError(
            f"{path}: this model was trained without a label graph; give its training data instead"
        )
    return _Source(model.labels, model.label_counts, graph)


def _show_vocabulary(source: _Source, k: int, json: bool) -> None:
    import numpy as np

    from longtail.cli.terminal import print_json, print_table

    vocabulary = source.labels
    counts = source.counts
    used = np.flatnonzero(counts)
    often = used[np.argsort(-counts[used], kind="stable")]
    texts, names = (_filled(column) for column in (vocabulary.texts, vocabulary.names))
    parts = {"most_frequent": often[:k], "rarest": often[::-1][:k]}
    shown = {part: [_row(source, int(at)) for at in rows] for part, rows in parts.items()}
    if json:
        facts = {
            "labels": len(vocabulary),
            "used": len(used),
            "with_text": texts,
            "with_name": names,
        }
        print_json(facts | shown)
        return
    print(
        f"{len(vocabulary):,} labels, {len(used):,} of them used; {texts:,} have a text, {names:,} a name"
    )
    for part, rows in shown.items():
        print()
        heads = [part.replace("_", " "), "documents"]
        print_table(heads, [[row["name"], f"{row['documents']:,}"] for row in rows])


def _filled(column: Any) -> int:
    if column is None:
        return 0
    return int((column.lengths > 0).sum())


def _row(source: _Source, at: int) -> dict[str, Any]:
    from longtail.errors import printable

    name = printable(source.labels.name(at))
    return {"id": source.labels.ids[at], "name": name, "documents": int(source.counts[at])}


def _neighbours(
    source: _Source, graph: sparse.csr_array, label: str, k: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what to show of a label, and of its neighbours, nearest first."""
    from longtail.features.label_graph import neighbours

    own = _row(source, source.labels.find(label))
    found = neighbours(graph, source.labels, label, k)
    return own, [
        _row(source, source.labels.columns[near.id]) | {"value": near.value} for near in found
    ]


def _show_neighbours(
    own: dict[str, Any], rows: list[dict[str, Any]], most: int, json: bool
) -> None:
    from longtail.cli.terminal import print_json, print_table

    if json:
        print_json(own | {"neighbours": rows})
        return
    print(f"{own['name']}: {own['documents']:,} documents")
    if rows:
        cells = [[row["name"], f"{row['value']:.3f}", f"{row['documents']:,}"] for row in rows]
        print()
        print_table(["neighbour", "value", "documents"], cells)
    else:
        many = f"more documents than the {most:,} of label_features.graph_max_documents"
        alone = "no document together with another label"
        say(f"no neighbours: it has {many if own['documents'] > most > 0 else alone}")
