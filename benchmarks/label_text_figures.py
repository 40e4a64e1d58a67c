"""Pictures and tables of the lines that label_text.py wrote.

    python benchmarks/label_text_figures.py LINES.jsonl… [--steps FIGURE5.svg] [--share FIGURE6.svg]
        [--table]

``--steps`` draws P@1 and PSP@5 against training steps, with and without Gandalf (lines of
``--curve``; figure 5 of the paper), ``--share`` against the share of labels whose texts are trained
on, random ones or rare ones first (figure 6), where lines without Gandalf are the share 0. A row of
each picture is a method on a dataset; lines are means over seeds and bands reach one standard
deviation to both sides. ``--table`` prints a Markdown table a dataset, mean ± standard deviation
where there are several seeds. Of lines of the same run the last counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.figure import Figure

from longtail.report.picture_files import picture_suffix, save_picture

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5")
DRAWN = ("P@1", "PSP@5")
NAMES = {"random": "labels at random", "tail": "rare labels first"}
BLUE = "#1f5f8b"
RED = "#b04a2f"
HEAD = ("method", *METRICS, "seeds", "training, min", "GPU, GiB", "one document, ms", "documents/s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--steps", type=Path, metavar="FIGURE5.svg")
    parser.add_argument("--share", type=Path, metavar="FIGURE6.svg")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    lines = read_lines(arguments.files)
    for path, rows, across in (
        (arguments.steps, step_rows(lines), "training steps"),
        (arguments.share, share_rows(lines), "labels whose texts are trained on, %"),
    ):
        if path is not None:
            picture_suffix(path)
            draw(rows, across, path)
    if arguments.table:
        print("\n\n".join(tables(lines)))


def read_lines(files):
    """Return the lines of label_text.py, of each run and step the last one."""
    latest = {}
    for file in files:
        for line in map(json.loads, filter(str.strip, file.read_text().splitlines())):
            if line.get("benchmark") in ("label_text", "label_text_curve"):
                latest[(line["benchmark"], *setup(line), line["seed"], line.get("step"))] = line
    return list(latest.values())


def setup(line):
    """Return what sets of lines are about: they differ by seed only."""
    setting = tuple(line["set"]), line.get("vectors", "")
    return (
        line["data"],
        line["method"],
        setting,
        line["gandalf"],
        line.get("share", 0.0),
        line.get("sample", ""),
    )


def step_rows(lines):
    """Return {title: {name: {step: lines}}} of the runs that were measured after each epoch."""
    rows = {}
    for line in lines:
        if line["benchmark"] == "label_text_curve" and line.get("share", 1.0) == 1.0:
            name = "with Gandalf" if line["gandalf"] else "without"
            add(rows, title(line), name, line["step"], line)
    return rows


def share_rows(lines):
    """Return {title: {name: {percent: lines}}}; nothing and all are on both lines, as there is
    nothing to choose.
    """
    rows = {}
    for line in lines:
        if line["benchmark"] == "label_text":
            share = line.get("share", 0.0)
            for name in ("random", "tail"):
                if share in (0.0, 1.0) or line["sample"] == name:
                    add(rows, title(line), name, 100 * share, line)
    chosen = {
        row: curves
        for row, curves in rows.items()
        if any(0 < at < 100 for at in set().union(*curves.values()))
    }
    return {row: {NAMES[name]: at for name, at in curves.items()} for row, curves in chosen.items()}


def add(rows, row, name, position, line):
    rows.setdefault(row, {}).setdefault(name, {}).setdefault(position, []).append(line)


def title(line):
    """Return the name of a row: the method, the data, and what was set."""
    return ", ".join(filter(None, (line["method"], line["data"], settings(line))))


def draw(rows, across, path):
    """Draw a row of panels for each of ``rows``, a panel a metric."""
    if not rows:
        raise SystemExit(
            f"{path}: found no lines to draw; expected those of label_text.py --curve, or --share"
        )
    figure = Figure(figsize=(9, 0.6 + 2.9 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(DRAWN), squeeze=False)
    for row, (name, curves) in zip(panels, rows.items(), strict=True):
        for axes, metric in zip(row, DRAWN, strict=True):
            for (curve, places), colour in zip(sorted(curves.items()), (BLUE, RED), strict=False):
                draw_curve(axes, curve, places, metric, colour)
            axes.set_ylabel(f"{metric}, %")
            axes.grid(True, alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_title(name, loc="left")
        row[0].legend(frameon=False, loc="lower right")
    for axes in panels[-1]:
        axes.set_xlabel(across)
    save_picture(figure, path)


def draw_curve(axes, name, places, metric, colour):
    """Draw the mean over seeds, and a band of one standard deviation where there are several."""
    at = sorted(places)
    values = [mean_and_deviation([line[metric] for line in places[position]]) for position in at]
    axes.plot(at, [mean for mean, _ in values], color=colour, linewidth=2, marker=".", label=name)
    low = [mean - spread for mean, spread in values]
    high = [mean + spread for mean, spread in values]
    axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)


def mean_and_deviation(values):
    return fmean(values), stdev(values) if len(values) > 1 else 0.0


def tables(lines):
    """Yield a Markdown table per dataset: a row per method, without Gandalf and with it."""
    runs = {}
    for line in lines:
        if line["benchmark"] == "label_text":
            runs.setdefault(line["data"], {}).setdefault(setup(line)[1:], []).append(line)
    for data, rows in runs.items():
        # methods in the order of the lines
        methods = {key[:2]: position for position, key in reversed(list(enumerate(rows)))}
        ordered = sorted(rows.items(), key=lambda row: (methods[row[0][:2]], *row[0][2:]))
        about = {settings(runs_of_row[0]) for runs_of_row in rows.values()} - {""}
        head = f"{data}:"
        same = len(about) == 1
        if same:  # above the table instead of in each row
            head = f"{data}, {about.pop()}:"
        body = [f"| {' | '.join(cells(runs_of_row, not same))} |" for _, runs_of_row in ordered]
        yield "\n".join(
            [head, "", f"| {' | '.join(HEAD)} |", f"|---|{'--:|' * (len(HEAD) - 1)}", *body]
        )


def cells(lines, with_settings):
    """Return the row of a table for the lines of all seeds."""
    minutes = fmean(line["seconds"] for line in lines) / 60
    memory = max(line["gpu_gib"] for line in lines)
    single, speed = (
        fmean(line[name] for line in lines) for name in ("single_ms", "documents_per_s")
    )
    metrics = [shown([line[metric] for line in lines]) for metric in METRICS]
    return [
        row_name(lines[0], with_settings),
        *metrics,
        str(len(lines)),
        f"{minutes:.1f}",
        f"{memory:.1f}",
        f"{single:.2f}",
        f"{speed:,.0f}",
    ]


def row_name(line, with_settings):
    name = line["method"]
    if line["gandalf"]:
        name += " + Gandalf"
    share = line.get("share", 0.0)
    if 0 < share < 1:
        name += f" of {share:.0%}, {line['sample']}"
    if with_settings and settings(line):
        name += f" ({settings(line)})"
    return name


def settings(line):
    """Return the word vectors and what was set, for people."""
    return ", ".join(filter(None, (line.get("vectors", ""), *line["set"])))


def shown(values):
    mean, deviation = mean_and_deviation(values)
    return f"{mean:.2f} ± {deviation:.2f}" if len(values) > 1 else f"{mean:.2f}"


if __name__ == "__main__":
    main()
