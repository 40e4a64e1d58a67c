"""Models side by side for people: one picture, and the numbers as CSV."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longtail.data.output import check_output
from longtail.errors import UsageError
from longtail.report.analysis_figures import Table, prepare_folder, tidy, write_csv
from longtail.report.colours import ON_WHITE
from longtail.report.picture_files import save_picture
from longtail.report.pictures import shown, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from longtail.comparison import ComparedModel, Comparison

__all__ = ["comparison_files", "write_comparison"]

_FILES = (".png", ".svg", ".pdf", ".csv")
_SIZE = (10.0, 5.0)  # inches


def comparison_files(output: Path) -> list[Path]:
    """Return the files that go to ``output``, a folder that is made or a file; asked before long
    work, it refuses.
    """
    if output.suffix in _FILES and not output.is_dir():
        check_output(output)
        return [output]
    if re.fullmatch(r"\.[a-z]{2,4}", output.suffix) and not output.is_dir():
        known = ", ".join(_FILES)
        raise UsageError(
            f"{output}: found {output.suffix}; expected a folder, or a file that ends in one of {known}"
        )
    prepare_folder(output)
    return [output / "compare.png", output / "compare.csv"]


def write_comparison(comparison: Comparison, output: Path) -> list[Path]:
    """Write compare.png and compare.csv into the folder ``output``, or the one file it names."""
    files = comparison_files(output)
    for file in files:
        if file.suffix == ".csv":
            rows = [list(row) for row in comparison.rows]
            write_csv(Table(["model", "metric", "bin", "value"], rows), file)
        else:
            _write_picture(comparison, file)
    return files


def _write_picture(comparison: Comparison, path: Path) -> None:
    from matplotlib.figure import Figure  # no pyplot: no display, no global state

    figure = Figure(figsize=_SIZE, layout="constrained")
    _draw(figure, comparison)
    save_picture(figure, path)


def _draw(figure: Figure, comparison: Comparison) -> None:
    panels = figure.subplot_mosaic([["P", "R"], ["PSP", "R"]], width_ratios=[4, 5])
    _draw_metric(panels["P"], comparison, "P", "precision, P@k")
    _draw_metric(panels["PSP"], comparison, "PSP", "propensity-scored precision, PSP@k")
    _draw_recall(panels["R"], comparison)
    tidy(panels.values())
    handles, names = panels["R"].get_legend_handles_labels()
    figure.legend(
        handles, names, frameon=False, loc="outside lower center", ncols=min(len(names), 4)
    )


def _style(at: int) -> dict[str, Any]:
    # a mark at 0 is seen whole
    return {**style(at, ON_WHITE, "white"), "markersize": 6, "clip_on": False}


def _draw_metric(axes: Axes, comparison: Comparison, metric: str, title: str) -> None:
    """Draw a mark a model, side by side at each k."""
    n_models = len(comparison.models)
    ks = comparison.ks
    step = min(0.16, 0.8 / n_models)
    for at, model in enumerate(comparison.models):
        places = [x + (at - (n_models - 1) / 2) * step for x in range(len(ks))]
        values = [100 * model.measured.evaluation[f"{metric}@{k}"] for k in ks]
        axes.plot(places, values, **{**_style(at), "linestyle": "none"})
    axes.set_xticks(range(len(ks)), [f"{metric}@{k}" for k in ks])
    axes.set(ylabel="%", xlim=(-0.5, len(ks) - 0.5))
    axes.margins(y=0.12)
    axes.set_title(title, loc="left", fontsize=10)


def _draw_recall(axes: Axes, comparison: Comparison) -> None:
    """Draw a line a model over the bins that the test data has labels of."""
    bins = comparison.models[0].by_frequency.bins
    tested = [at for at, part in enumerate(bins) if part.n_positives]
    for at, model in enumerate(comparison.models):
        axes.plot(
            range(len(tested)),
            _recalls(model, tested),
            label=shown(model.name),
            linewidth=1.6,
            **_style(at),
        )
    axes.set_xticks(
        range(len(tested)), [f"{bins[at].name}\n{bins[at].n_positives:,}" for at in tested]
    )
    axes.set(ylabel="found, %", ylim=(0, None), xlim=(-0.3, max(len(tested) - 0.7, 0.3)))
    axes.set_xlabel("training documents of a label; below: their pairs in the test data")
    axes.set_title(f"recall by label frequency, R@{comparison.ks[-1]}", loc="left", fontsize=10)


def _recalls(model: ComparedModel, tested: list[int]) -> list[float]:
    return [100 * (model.by_frequency.bins[at].recall[-1] or 0.0) for at in tested]
