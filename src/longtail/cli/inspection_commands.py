"""Commands that inspect data and models: labels with their neighbours, and networks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from longtail.cli.options import (
    Data,
    Device,
    Fields,
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
    app,
    overrides,
    print_note,
    read_data,
)
from longtail.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy import sparse

    from longtail.config import Config
    from longtail.data.dataset import Dataset
    from longtail.data.labels import Labels as Vocabulary

__all__ = ["analyze", "labels"]


@app.command(epilog="Example: longtail labels train.jsonl --neighbours Birds -k 9")
def labels(
    path: Annotated[str, typer.Argument(metavar="DATA|MODEL", help="Data, or a model folder.")],
    neighbours: Annotated[
        str | None, typer.Option(metavar="NAME", help="Label whose neighbours to show.")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Largest number of labels to show.")] = 10,
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
    """Show the labels of data or a model, or a label's neighbours in the label graph."""
    from longtail.report.picture_files import picture_suffix

    if figure:
        picture_suffix(figure)
        if neighbours is None:
            raise UsageError(
                "--figure draws the neighbours of a label; expected --neighbours NAME with it"
            )
    config = _config(set_)
    if Path(path, "manifest.json").exists():
        if vocabulary:
            print_note("--labels has no effect on a model, which contains its labels")
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
    label, rows = _neighbours(source, source.graph, neighbours, k)
    _show_neighbours(label, rows, config.label_features.graph_max_documents, json)
    if figure:
        from longtail.report.label_figures import draw_neighbours

        draw_neighbours(label["name"], [(row["name"], row["value"]) for row in rows], figure)
        print_note(f"{figure}: written")


@app.command(epilog="Example: longtail analyze model test.jsonl -o figures")
def analyze(
    model: ModelFolder,
    data: Data,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for figures and numbers.")
    ],
    documents: Annotated[
        int,
        typer.Option(
            min=1, help="Random documents to measure; PWCCA takes at least 5 per dimension."
        ),
    ] = 1000,
    format: Format = None,
    fields: Fields = None,
    skip_bad: SkipBad = 0,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Analyse a network: attention of [CLS], similarity of levels (PWCCA), recall of shortlists."""
    from longtail.cli.terminal import print_json, print_table
    from longtail.models.model_folder import load_model
    from longtail.report.analysis_figures import prepare_folder, summary, write_analysis

    prepare_folder(output)
    trained = load_model(model, "cpu")  # where the encoder stays in float32
    ranker = trained.neural_ranker
    if ranker is None:
        raise UsageError(
            f"{model}: found no network that ranks labels; expected a model that has one"
        )
    from longtail.networks.analysis import analyse, transformer_of, untuned_encoder
    from longtail.networks.device import choose_device

    ranker.network.to(choose_device(device))
    dataset = read_data(
        data,
        format=format,
        no_features=True,
        fields=fields,
        split="test",
        labelled=False,
        skip_bad=skip_bad,
    )
    known = dataset.with_labels(trained.labels, unknown="drop")
    untuned = untuned_encoder(trained.config.encoder, transformer_of(ranker))
    analysis = analyse(ranker, untuned, known, documents, trained.config.seed)
    write_analysis(analysis, output)
    if json:
        print_json(analysis)
    else:
        print(f"{analysis.documents:,} documents, {analysis.vector_documents:,} for PWCCA")
        for table in summary(analysis):
            print()
            print_table(*table)
    print_note(f"{output}: written")


# Labels and their neighbours


class _Source(NamedTuple):
    """Labels with their frequencies, and the label graph if neighbours are requested."""

    labels: Vocabulary
    counts: NDArray[np.int64]  # (labels,) documents
    graph: sparse.csr_array | None  # normalised


def _config(set_: list[str] | None) -> Config:
    from longtail.config import resolve

    return resolve(*overrides(None, set_))


def _of_data(documents: Dataset, config: Config, with_graph: bool) -> _Source:
    from longtail.steps.trees import label_graph_of
    from longtail.steps.work import Work

    graph = None
    if with_graph:
        graph = label_graph_of(documents, config, Work())
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
    by_frequency = used[np.argsort(-counts[used], kind="stable")]
    texts = _filled(vocabulary.texts)
    names = _filled(vocabulary.names)
    parts = {"most_frequent": by_frequency[:k], "rarest": by_frequency[::-1][:k]}
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
        f"{len(vocabulary):,} labels, {len(used):,} of them used; "
        f"{texts:,} have a text, {names:,} a name"
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
    """Return a label and its neighbours, nearest first, as they are shown."""
    from longtail.features.label_graph import neighbours

    centre = _row(source, source.labels.find(label))
    rows = []
    for near in neighbours(graph, source.labels, label, k):
        row = _row(source, source.labels.columns[near.id])
        rows.append(row | {"value": near.value})
    return centre, rows


def _show_neighbours(
    label: dict[str, Any], rows: list[dict[str, Any]], most: int, json: bool
) -> None:
    from longtail.cli.terminal import print_json, print_table

    if json:
        print_json(label | {"neighbours": rows})
        return
    print(f"{label['name']}: {label['documents']:,} documents")
    if rows:
        cells = [[row["name"], f"{row['value']:.3f}", f"{row['documents']:,}"] for row in rows]
        print()
        print_table(["neighbour", "value", "documents"], cells)
    elif label["documents"] > most > 0:
        limit = f"the {most:,} of label_features.graph_max_documents"
        print_note(f"no neighbours: it has more documents than {limit}")
    else:
        print_note("no neighbours: it has no document together with another label")
