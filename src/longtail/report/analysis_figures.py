"""Figures of a network's analysis: PNG files, their numbers as CSV, and tables of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longtail.data.output import open_output
from longtail.errors import UsageError
from longtail.report.colours import BLUE, RED
from longtail.report.picture_files import save_picture
from longtail.store.writing import check_outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.networks.analysis import Analysis

__all__ = ["Table", "prepare_folder", "summary", "tidy", "write_analysis", "write_csv"]

_COLOURS = {"trained": BLUE, "untuned": RED}
_MARKS = {"trained": "o-", "untuned": "s--"}
_PANEL = (4.8, 3.6)  # inches


class Table(NamedTuple):
    """Column heads and rows."""

    heads: list[str]
    rows: list[list[Any]]


def prepare_folder(folder: Path) -> None:
    """Create the folder for results, or refuse it; to be called before long work."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: found a file; expected a folder, or an unused name")
    check_outside(folder)
    folder.mkdir(parents=True, exist_ok=True)


def write_analysis(analysis: Analysis, folder: Path) -> list[Path]:
    """Write NAME.csv and NAME.png of each measurement; the same numbers give the same bytes.

    Files of these names from an earlier analysis are deleted if this one has no numbers for them.
    """
    prepare_folder(folder)
    written = []
    for name, (table, draw) in _PARTS.items():
        numbers = table(analysis)
        data = folder / f"{name}.csv"
        picture = folder / f"{name}.png"
        if not numbers.rows:
            data.unlink(missing_ok=True)
            picture.unlink(missing_ok=True)
            continue
        write_csv(numbers, data)
        _write_png(draw, analysis, picture)
        written += [data, picture]
    return written


def summary(analysis: Analysis) -> list[Table]:
    """Return tables: attention per layer, similarity per pair of levels, recall per level."""
    by_layer = [
        [
            str(layer),
            _levels_at(analysis, layer),
            *_each(analysis, layer, "self_mean", "self_max", "entropy_share"),
        ]
        for layer in range(1, len(analysis.attention["trained"]) + 1)
    ]
    heads = [
        f"{quantity}{_encoder_suffix(name)}"
        for quantity in ("to itself", "maximum", "entropy")
        for name in analysis.attention
    ]
    tables = [Table(["layer", "level", *heads], by_layer)]
    if analysis.likeness:
        pairs = zip(*analysis.likeness.values(), strict=True)
        rows = [
            [_pair(both[0].levels), *(_percent(each.similarity) for each in both)] for both in pairs
        ]
        random = [_percent(pair.chance) for pair in analysis.likeness["trained"]]
        rows = [[*row, value] for row, value in zip(rows, random, strict=True)]
        names = [f"PWCCA{_encoder_suffix(name)}" for name in analysis.likeness]
        tables.append(Table(["levels", *names, "random vectors"], rows))
    if analysis.shortlist_recall:
        recalls = [
            [str(level), _percent(recall)]
            for level, recall in enumerate(analysis.shortlist_recall, 1)
        ]
        tables.append(Table(["level", "shortlist recall"], recalls))
    return tables


def _each(analysis: Analysis, layer: int, *fields: str) -> list[str]:
    return [
        _percent(getattr(layers[layer - 1], field))
        for field in fields
        for layers in analysis.attention.values()
    ]


def _encoder_suffix(name: str) -> str:
    if name == "trained":
        return ""
    return f", {name}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _pair(levels: tuple[int, int]) -> str:
    return f"{levels[0]}–{levels[1]}"


def _levels_at(analysis: Analysis, layer: int) -> str:
    """Return the levels that read a layer, such as «1, 2»."""
    levels = [level for level, read in enumerate(analysis.layers, 1) if read == layer]
    return ", ".join(map(str, levels))


def _self_attention_table(analysis: Analysis) -> Table:
    return _layer_table(analysis, ["mean", "maximum"], ["self_mean", "self_max"])


def _entropy_table(analysis: Analysis) -> Table:
    return _layer_table(analysis, ["nats", "share_of_log_tokens"], ["entropy", "entropy_share"])


def _layer_table(analysis: Analysis, heads: list[str], fields: list[str]) -> Table:
    rows = [
        [
            name,
            layer.layer,
            _levels_at(analysis, layer.layer),
            *(getattr(layer, field) for field in fields),
        ]
        for name, layers in analysis.attention.items()
        for layer in layers
    ]
    return Table(["encoder", "layer", "levels", *heads], rows)


def _likeness_table(analysis: Analysis) -> Table:
    heads = ["encoder", "level", "other_level", "layer", "other_layer", "similarity", "chance"]
    rows = [
        [name, *pair.levels, *pair.layers, pair.similarity, pair.chance]
        for name, pairs in analysis.likeness.items()
        for pair in pairs
    ]
    return Table(heads, rows)


def _recall_table(analysis: Analysis) -> Table:
    return Table(
        ["level", "recall"],
        [[level, recall] for level, recall in enumerate(analysis.shortlist_recall, 1)],
    )


def _draw_self_attention(figure: Figure, analysis: Analysis) -> None:
    for axes, field, title in _panels(figure, ("self_mean", "mean"), ("self_max", "maximum")):
        _draw_layers(axes, analysis, field, 100)
        axes.set(ylabel="attention, %", ylim=(0, None))
        axes.set_title(f"{title} over heads and documents", loc="left", fontsize=10)
    _name_curves(figure, "Attention of the [CLS] token to itself")


def _draw_entropy(figure: Figure, analysis: Analysis) -> None:
    for axes, field, title in _panels(
        figure, ("entropy", "in nats"), ("entropy_share", "as a share of ln(tokens)")
    ):
        if field == "entropy_share":
            _draw_layers(axes, analysis, field, 100)
            axes.set(ylabel="entropy, %", ylim=(0, 105))
        else:
            _draw_layers(axes, analysis, field, 1)
            axes.set(ylabel="entropy, nats", ylim=(0, None))
        axes.set_title(title, loc="left", fontsize=10)
    _name_curves(figure, "Entropy of the attention from [CLS] to the tokens")


def _panels(figure: Figure, *parts: tuple[str, str]) -> list[tuple[Axes, str, str]]:
    """Return axes side by side, each with its field and title."""
    figure.set_size_inches(len(parts) * _PANEL[0], _PANEL[1])
    return [(axes, *part) for axes, part in zip(figure.subplots(1, len(parts)), parts, strict=True)]


def _name_curves(figure: Figure, title: str) -> None:
    figure.suptitle(title)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), frameon=False, loc="outside right upper"
    )


def _draw_layers(axes: Axes, analysis: Analysis, field: str, scale: float) -> None:
    """Draw a curve over the layers per encoder; mark the layers that levels read."""
    for name, measured in analysis.attention.items():
        values = [scale * getattr(layer, field) for layer in measured]
        axes.plot(
            [layer.layer for layer in measured],
            values,
            _MARKS[name],
            color=_COLOURS[name],
            markersize=4,
            label=name,
        )
    layers = [measured.layer for measured in analysis.attention["trained"]]
    for layer in set(analysis.layers):
        axes.axvline(layer, color="black", alpha=0.25, linewidth=1, linestyle=":")
    axes.set_xticks(layers, [_layer_name(analysis, layer) for layer in layers])
    axes.set(xlabel="layer (L: level of the label tree that reads it)")


def _layer_name(analysis: Analysis, layer: int) -> str:
    levels = _levels_at(analysis, layer)
    if levels:
        return f"{layer}\nL{levels}"
    return f"{layer}"


def _draw_likeness(figure: Figure, analysis: Analysis) -> None:
    pairs = next(iter(analysis.likeness.values()))
    figure.set_size_inches(max(_PANEL[0], 2 + 1.1 * len(pairs)), _PANEL[1])
    axes = figure.subplots()
    width = 0.38
    for at, (name, measured) in enumerate(analysis.likeness.items()):
        offset = (at - (len(analysis.likeness) - 1) / 2) * width
        centres = [x + offset for x in range(len(measured))]
        axes.bar(
            centres,
            [pair.similarity for pair in measured],
            width * 0.94,
            color=_COLOURS[name],
            label=name,
        )
        left, right = ([centre + side * width / 2 for centre in centres] for side in (-1, 1))
        random = [pair.chance for pair in measured]
        label = "" if at else "random vectors"
        axes.hlines(random, left, right, color="black", linewidth=1.2, label=label)
    names = [f"{_pair(pair.levels)}\nlayers {pair.layers[0]}, {pair.layers[1]}" for pair in pairs]
    axes.set_xticks(range(len(pairs)), names)
    axes.set(xlabel="levels", ylabel="PWCCA", ylim=(0, 1), xlim=(-0.6, len(pairs) - 0.4))
    axes.set_title("Similarity of the vectors that levels read", loc="left")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_recall(figure: Figure, analysis: Analysis) -> None:
    figure.set_size_inches(_PANEL)
    axes = figure.subplots()
    recalls = [100 * recall for recall in analysis.shortlist_recall]
    levels = range(1, len(recalls) + 1)
    bars = axes.bar(levels, recalls, 0.6, color=_COLOURS["trained"])
    axes.bar_label(bars, [f"{recall:.1f}" for recall in recalls])
    axes.set_xticks(levels)
    axes.set_yticks(range(0, 101, 20))
    axes.set(
        xlabel="level",
        ylabel="true nodes kept, mean over documents, %",
        ylim=(0, 110),
        xlim=(0.4, len(recalls) + 0.6),
    )
    axes.set_title("Recall of the shortlists", loc="left")


_PARTS: dict[str, tuple[Callable[[Analysis], Table], Callable[[Figure, Analysis], None]]] = {
    "cls_self_attention": (_self_attention_table, _draw_self_attention),
    "attention_entropy": (_entropy_table, _draw_entropy),
    "pwcca": (_likeness_table, _draw_likeness),
    "shortlist_recall": (_recall_table, _draw_recall),
}


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV, its heads first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.heads, *table.rows])
    with open_output(path) as file:
        file.write(text.getvalue().encode())


def _write_png(draw: Callable[[Figure, Analysis], None], analysis: Analysis, path: Path) -> None:
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(layout="constrained")
    draw(figure, analysis)
    tidy(figure.axes)
    save_picture(figure, path)


def tidy(all_axes: Iterable[Axes]) -> None:
    """Draw faint grid lines behind the data, and no frame above and on the right."""
    for axes in all_axes:
        axes.grid(True, axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
