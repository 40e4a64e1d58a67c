"""Models side by side: one measure for all of them, names that tell them apart, tables, and the
picture's numbers.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import sparse

import longtail as lt
from longtail import comparison
from longtail.comparison import ComparedModel, Comparison, compare
from longtail.errors import DataError, ModelFolderError, UsageError
from longtail.evaluation import Measured
from longtail.metrics import Evaluation, FrequencyTable, inverse_propensities
from longtail.metrics.analysis import FrequencyBin
from longtail.models.model import Facts, Model
from longtail.report.side_by_side import comparison_files, write_comparison
from shown_progress import shown_progress

COUNTS = {"often": 150, "some": 8, "few": 3, "once": 1}
TRUTH = [["often", "once"], ["often", "some"], ["few"], ["often", "new"]]
GOOD = [["once", "often"], ["often", "some"], ["few", "often"], ["often", "few"]]
DULL = [["often", "some"], ["often", "few"], ["often", "some"], ["often", "some"]]


@dataclass(frozen=True)
class Known(Model):
    """A model that gives each document the labels it was told to."""

    answers: list = field(default_factory=list)

    def raw_scores(self, documents, k, search, exclude=None):
        ranked = [
            (row, rank, name)
            for row, own in enumerate(self.answers)
            for rank, name in enumerate(own, 1)
        ]
        row, column, score = zip(
            *((row, self.labels.columns[name], 1 / rank) for row, rank, name in ranked), strict=True
        )
        return sparse.csr_array((score, (row, column)), shape=(len(self.answers), len(self.labels)))


def a_model(answers, counts=COUNTS, documents=200, method="xr-linear"):
    tagger = lt.Longtail(method)
    labels = lt.Labels.of(counts)
    facts = Facts(documents=documents, pairs=1, held_out=0, n_columns=1, dense_width=0)
    own = np.array([*counts.values()], np.int64)
    tagger._model = Known(tagger.config, labels, own, facts, None, (), answers=answers)
    return tagger


def documents(truth=TRUTH):
    return lt.Dataset.of(["text"] * len(truth), truth)


class TestNumbers:
    def test_by_hand(self):
        good, dull = compare(
            [a_model(GOOD), a_model(DULL, method="bonsai")], documents(), [2, 1]
        ).models
        assert (good.name, good.method, dull.name, dull.method) == (
            "xr-linear",
            "xr-linear",
            "bonsai",
            "bonsai",
        )
        assert good.measured.evaluation.ks == (1, 2)
        assert [good.measured.evaluation[name] for name in ("P@1", "P@2")] == [1, 6 / 8]
        assert [dull.measured.evaluation[name] for name in ("P@1", "P@2")] == [3 / 4, 3 / 8]
        recalls = [(part.name, part.n_positives, part.recall[1]) for part in good.by_frequency.bins]
        assert recalls == [
            ("0", 1, 0),
            ("1", 1, 1),
            ("2–5", 1, 1),
            ("6–20", 1, 1),
            ("21–100", 0, None),
            (">100", 3, 1),
        ]
        assert [part.recall[1] for part in dull.by_frequency.bins] == [0, 0, 0, 0, None, 1]

    def test_psp_has_the_constants_asked_for(self):
        (dull,) = compare([a_model(DULL)], documents(), [1], propensity=(0.6, 2.6)).models
        often, once, some, few, new = inverse_propensities(
            np.array([150, 1, 8, 3, 0]), 200, 0.6, 2.6
        )
        assert once > few > some > often
        assert dull.measured.evaluation["PSP@1"] == pytest.approx(
            3 * often / (once + some + few + new)
        )
        assert (dull.measured.evaluation.a, dull.measured.evaluation.b) == (0.6, 2.6)

    def test_one_measure_for_all(self):
        """The same answers are as good in a model of other data, which has other labels, in another
        order.
        """
        counts = {"more": 4, "once": 70, "few": 9, "some": 2, "often": 1}
        found = compare([a_model(GOOD), a_model(GOOD, counts, 900)], documents())
        one, other = found.models
        assert one.measured.evaluation == other.measured.evaluation
        assert [part.recall for part in one.by_frequency.bins] == [
            part.recall for part in other.by_frequency.bins
        ]
        assert found.notes == (
            "xr-linear (2): other training data than xr-linear (900 documents, 4 of the 4 labels); "
            "bins and propensities are xr-linear's",
        )
        assert str(found).endswith(f"\n\n{found.notes[0]}")

    def test_a_label_that_only_the_first_was_trained_on_keeps_its_bin(self):
        counts = {name: count for name, count in COUNTS.items() if name != "once"}
        one, other = compare([a_model(DULL), a_model(DULL, counts)], documents()).models
        assert [part.n_positives for part in other.by_frequency.bins] == [1, 1, 1, 1, 0, 3]
        assert one.measured.evaluation == other.measured.evaluation

    @pytest.mark.parametrize(
        ("counts", "documents_"),
        [({**COUNTS, "few": 4}, 200), (COUNTS, 201), (dict(reversed(COUNTS.items())), 200)],
    )
    def test_every_difference_is_told(self, counts, documents_):
        assert (
            len(compare([a_model(GOOD), a_model(GOOD, counts, documents_)], documents()).notes) == 1
        )

    def test_same_data_needs_no_note(self):
        found = compare([a_model(GOOD), a_model(DULL)], documents())
        assert found.notes == ()
        assert str(found).count("by label frequency") == 3

    def test_filter(self, tmp_path):
        (tmp_path / "filter.txt").write_text(
            "0 3\n"
        )  # the first document may not score with «once»
        found = compare(
            [a_model(GOOD), a_model(DULL)], documents(), [1], mask=tmp_path / "filter.txt"
        )
        assert [part.recall[0] for part in found.models[0].by_frequency.bins[:2]] == [0, 0]

    def test_rows_are_all_numbers(self):
        found = compare([a_model(GOOD)], documents(), [1, 2])
        rows = {row[:3]: row[3] for row in found.rows}
        assert (
            len(rows) == len(found.rows) == 7 * 2 + 6 * 2 + 5 * 2
        )  # metrics, P and R by bin; one bin has no R
        assert rows["xr-linear", "P@2", ""] == 0.75
        assert rows["xr-linear", "R@2", "2–5"] == 1
        assert rows["xr-linear", "P@2", ">100"] == 3 / 8
        assert (
            sum(value for (_, metric, part), value in rows.items() if metric == "P@2" and part)
            == 0.75
        )

    def test_json(self):
        found = compare([a_model(GOOD), a_model(DULL)], documents(), [1])
        decoded = msgspec.json.decode(msgspec.json.encode(found))
        assert [model["name"] for model in decoded["models"]] == ["xr-linear", "xr-linear (2)"]
        assert decoded["models"][1]["measured"]["evaluation"]["metrics"]["P@1"] == 0.75
        assert decoded["notes"] == []

    def test_progress(self):
        with shown_progress() as told:
            compare([a_model(GOOD), a_model(DULL, method="plt")], documents())
        one = (("measuring xr-linear", None, ""), "end", 1)
        two = (("measuring plt", None, ""), "end", 1)
        assert told == [("comparing", 2, "models"), *one, *two, "end"]


class TestRefusals:
    def test_nothing_in_common(self):
        foreign = a_model([["sun"]] * 4, {"sun": 3, "moon": 2})
        message = r"^xr-linear \(2\): has no label in common with xr-linear; expected models of the same labels$"
        with pytest.raises(UsageError, match=message):
            compare([a_model(GOOD), foreign], documents())

    def test_filter_of_other_labels(self, tmp_path):
        (tmp_path / "filter.txt").write_text("0 3\n")
        turned = a_model(GOOD, dict(reversed(COUNTS.items())))
        with pytest.raises(
            UsageError, match="its labels are not those of xr-linear; expected models with the same"
        ):
            compare([a_model(GOOD), turned], documents(), mask=tmp_path / "filter.txt")

    def test_no_labels_to_measure_against(self):
        with pytest.raises(
            DataError,
            match=r"^test: 2 documents without labels; expected labels to measure against$",
        ):
            compare([a_model(GOOD)], documents([[], []]))

    def test_no_models(self):
        with pytest.raises(UsageError, match="no model"):
            compare([], documents())

    def test_before_any_work(self, tmp_path, monkeypatch):
        monkeypatch.setattr(comparison, "evaluate_model", lambda *_, **__: pytest.fail("measured"))
        with pytest.raises(ModelFolderError, match="not a model folder"):
            compare([a_model(GOOD), tmp_path], documents())
        with pytest.raises(UsageError, match=r"^k: found"):
            compare([a_model(GOOD)], documents(), [0])


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/m/a", "/m/b"], ["a", "b"]),
        (["/m/a", "/n/a", "/n/b"], ["m/a", "n/a", "b"]),
        (["/m/x/a", "/n/x/a"], ["m/x/a", "n/x/a"]),
        (["/m/a", "/m/a", "/m/a"], ["a", "a (2)", "a (3)"]),
        (["/m/a", "/m/a (2)", "/m/a"], ["a", "a (2)", "a (3)"]),
        (["/a", "/m/a"], ["//a", "m/a"]),
        (["/m/a\n\udcff"], ["a\\n\\udcff"]),
    ],
)
def test_names(paths, names):
    assert comparison._names(paths) == names
    assert comparison._names([*map(Path, paths)]) == names


def made(n_models, ks=(1, 3), name="model-{}"):
    """Return a comparison of invented numbers: metrics fall from model to model, recall rises."""
    shown = ("P", "nDCG", "PSP", "PSnDCG", "coverage", "macro-F1")
    models = []
    for at in range(n_models):
        metrics = {f"{metric}@{k}": 0.8 - 0.01 * at - 0.05 * k for metric in shown for k in ks}
        metrics |= {f"PSP@{k}": metrics[f"P@{k}"] / 2 for k in ks}
        evaluation = Evaluation(
            n_documents=9,
            n_without_labels=0,
            n_test_labels=5,
            ks=ks,
            a=0.55,
            b=1.5,
            metrics=metrics,
            hits=(1,) * len(ks),
        )
        recalls = [None, 0.25 + 0.01 * at, 0.5]
        bins = tuple(
            FrequencyBin(
                low=low,
                high=high,
                n_labels=1234,
                n_positives=0 if recall is None else 40,
                hits=(1,) * len(ks),
                precision=(0.1,) * len(ks),
                recall=tuple(
                    recall if recall is None else recall * rank / len(ks)
                    for rank in range(1, len(ks) + 1)
                ),
            )
            for low, high, recall in zip((0, 1, 6), (0, 5, None), recalls, strict=True)
        )
        measured = Measured(evaluation, FrequencyTable(9, ks, bins))
        models.append(ComparedModel(name.format(at), "bonsai", measured))
    return Comparison(tuple(models))


class TestTables:
    def test_whole(self):
        tables = str(made(2)).split("\n\n")
        assert tables[0].splitlines() == [
            "model    method    P@1     P@3   nDCG@1   nDCG@3",
            "model-0  bonsai  75.00*  65.00*   75.00*   65.00*",
            "model-1  bonsai  74.00   64.00    74.00    64.00",
        ]
        assert [table.split("\n")[0].split()[2:] for table in tables[1:3]] == [
            ["PSP@1", "PSP@3", "PSnDCG@1", "PSnDCG@3"],
            ["coverage@1", "coverage@3", "macro-F1@1", "macro-F1@3"],
        ]
        assert (
            tables[3]
            == "percent over 9 documents with 5 labels; propensity A=0.55 B=1.5; * the best"
        )
        assert tables[5].splitlines() == [
            "R@3 by label frequency",
            "in train  labels  positives  model-0   model-1",
            "       0   1,234          0        –         –",
            "     1–5   1,234         40    25.00     26.00*",
            "      >5   1,234         40    50.00     50.00",
        ]
        assert len(tables) == 6

    def test_one_model_has_no_best(self):
        assert "*" not in str(made(1))

    def test_what_is_shown_alike_is_marked_alike(self):
        assert comparison._marked([0.50001, 0.50004, 0.4, None]) == [
            "50.00*",
            "50.00*",
            "40.00 ",
            "– ",
        ]
        assert comparison._marked([0.0, 0.0]) == ["0.00 ", "0.00 "]
        assert comparison._marked([None, None]) == ["– ", "– "]

    @pytest.mark.parametrize("n_models", [1, 2, 8, 20])
    @pytest.mark.parametrize("ks", [(1,), (1, 3, 5), (1, 2, 3, 4, 5, 10)])
    def test_lines_are_no_longer_than_a_window(self, n_models, ks):
        text = str(made(n_models, ks, name="a name of length 19, {}"))
        assert max(map(len, text.splitlines())) <= 100
        for k in ks:
            parts = re.findall(rf"^R@{k} by label frequency\n(in train.*)$", text, re.MULTILINE)
            heads = [
                int(at) for part in parts for at in re.findall(r"a name of length 19, (\d+)", part)
            ]
            assert heads == [*range(n_models)]

    def test_full_lines(self):
        assert (
            max(map(len, str(made(20, (1,), name="1234567 {:02}")).splitlines())) > 88
        )  # no room for one more


@pytest.fixture
def figure(monkeypatch, tmp_path):
    """Return the figure that is drawn."""
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda own, *a, **o: drawn.append(own) or save(own, *a, **o)
    )

    def draw(found):
        write_comparison(found, tmp_path / "a.png")
        return drawn.pop()

    return draw


class TestFiles:
    def test_folder(self, tmp_path):
        out = tmp_path / "new" / "v1.5"
        assert write_comparison(made(2), out) == [out / "compare.png", out / "compare.csv"]
        assert (out / "compare.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        with open(out / "compare.csv", newline="", encoding="utf-8") as file:
            heads, *rows = csv.reader(file)
        assert heads == ["model", "metric", "bin", "value"]
        assert [(*row[:3], float(row[3])) for row in rows] == made(2).rows

    @pytest.mark.parametrize("name", ["a.png", "a.svg", "a.pdf", "a.csv"])
    def test_one_file_with_the_same_bytes_every_time(self, tmp_path, name, monkeypatch):
        contents = []
        for second in range(2):
            monkeypatch.setenv("SOURCE_DATE_EPOCH", str(1_000_000_000 + second))
            assert write_comparison(made(2), tmp_path / name) == [tmp_path / name]
            contents.append((tmp_path / name).read_bytes())
        assert contents[0] == contents[1]
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_a_folder_may_be_called_like_a_picture(self, tmp_path):
        (tmp_path / "a.png").mkdir()
        assert comparison_files(tmp_path / "a.png")[0] == tmp_path / "a.png" / "compare.png"

    def test_refusals(self, tmp_path):
        (tmp_path / "file.txt").write_text("mine")
        with pytest.raises(
            UsageError, match=r"found \.txt; expected a folder, or a file that ends in one of"
        ):
            comparison_files(tmp_path / "file.txt")
        for name in ("a.png", "a.csv"):
            with pytest.raises(UsageError, match="does not exist; make it first"):
                comparison_files(tmp_path / "no" / name)


class TestPicture:
    def test_numbers(self, figure):
        drawn = figure(made(3, (1, 3, 5)))
        precision, recall, psp = drawn.axes
        for axes, metric, share in ((precision, "P", 1), (psp, "PSP", 0.5)):
            assert [tick.get_text() for tick in axes.get_xticklabels()] == [
                f"{metric}@{k}" for k in (1, 3, 5)
            ]
            for at, line in enumerate(axes.lines):
                assert line.get_ydata() == pytest.approx(
                    [share * (value - at) for value in (75, 65, 55)]
                )
        assert [tick.get_text() for tick in recall.get_xticklabels()] == ["1–5\n40", ">5\n40"]
        assert [line.get_ydata() for line in recall.lines] == [
            pytest.approx([25 + at, 50]) for at in range(3)
        ]
        assert "R@5" in recall.get_title(loc="left")
        (legend,) = drawn.legends
        assert [text.get_text() for text in legend.get_texts()] == ["model-0", "model-1", "model-2"]

    @pytest.mark.parametrize("n_models", [1, 2, 8, 16])
    def test_models_are_told_apart_without_colours(self, figure, n_models):
        drawn = figure(made(n_models))
        for axes in drawn.axes:
            looks = [
                (line.get_marker(), line.get_markerfacecolor() == "white") for line in axes.lines
            ]
            assert len(set(looks)) == n_models
        precision, recall, _ = drawn.axes
        assert [line.get_color() for line in precision.lines] == [
            line.get_color() for line in recall.lines
        ]
        places = sorted(x for line in precision.lines for x in line.get_xdata())
        assert (
            min(right - left for left, right in pairwise(places)) > 0.04
        )  # side by side, each k apart

    @pytest.mark.parametrize("n_models", [2, 8])
    def test_nothing_overlaps(self, figure, n_models):
        drawn = figure(made(n_models, (1, 3, 5), name="a rather long name of a folder {}"))
        drawn.canvas.draw()
        boxes = [axes.get_tightbbox() for axes in drawn.axes] + [
            drawn.legends[0].get_window_extent()
        ]
        for at, box in enumerate(boxes):
            assert 0 <= box.x0 <= box.x1 <= drawn.bbox.x1
            assert 0 <= box.y0 <= box.y1 <= drawn.bbox.y1
            assert not any(box.overlaps(other) for other in boxes[:at])

    def test_names_that_matplotlib_would_act_on(self, figure):
        drawn = figure(made(2, name="_a$x$_{}"))
        texts = [text.get_text() for text in drawn.legends[0].get_texts()]
        assert texts == [r" _a\$x\$_0", r" _a\$x\$_1"]

    def test_no_bin_to_show(self, figure):
        (model,) = made(1).models
        empty = msgspec.structs.replace(model.by_frequency, bins=model.by_frequency.bins[:1])
        measured = msgspec.structs.replace(model.measured, by_frequency=empty)
        figure(Comparison((msgspec.structs.replace(model, measured=measured),)))
