"""What a report says beside the metrics: numbers by hand, text that stays text, and why a section is missing."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from scipy import sparse

import longtail as lt
from longtail.evaluation import evaluate_model
from longtail.pipeline import predict
from longtail.report import report_on_model, report_on_predictions
from longtail.report.examination import Details, LabelRow, WorstDocument, examine, examine_model
from longtail.report.page import Section, text, write_page
from longtail.report.sections import label_section, left_out_section, stage_section, worst_section
from longtail.report.speed import beam_matters, beam_points, timing_sample
from longtail.reporting import listening, logged_stage
from longtail.run_log import RunLog, StageTime, read_stage_times, run_log_path

HOSTILE = [
    "<script>window.ran=1</script>",
    "</script><script>window.ran=1</script>",
    "<img src=x onerror=window.ran=1>",
    "'\"><svg onload=window.ran=1>",
    "<!--<script>",
    "]]><script>window.ran=1</script>",
    "javascript:window.ran=1",
    "<style>*{display:none}</style>",
    "${window.ran=1}{{window.ran=1}}",
    "\u2028window.ran=1\u2028",
    "&lt;script&gt;",
    "\x1b[31mred",
]


def predictions(rows, n_labels):
    indptr = np.cumsum([0, *map(len, rows)])
    columns = np.array([column for row in rows for column in row], np.int32)
    values = np.array([value for row in rows for value in row.values()], np.float64)
    return sparse.csr_array((values, columns, indptr), shape=(len(rows), n_labels))


@pytest.fixture(scope="module")
def sample():
    train, test = lt.sample()
    settings = {"tree": {"branching": 4, "leaf_size": 8}, "ranker": {"max_passes": 3}}
    model = lt.Longtail("xr-linear", **settings).fit(train.take(np.arange(300)))
    return model.model, test.take(np.arange(80))


class TestExamine:
    TEST = lt.Dataset.of(
        ["one", "two " * 200, "three"], [["a", "b"], ["a"], ["c"]], ["a", "b", "c", "d"]
    )
    RANKED = predictions([{0: 0.9, 2: 0.2}, {3: 0.8, 0: 0.7}, {1: 0.6}], 4)

    def test_labels(self):
        found = examine(self.RANKED, self.TEST, np.array([5, 0, 1, 2]), 4)
        assert found.curve.threshold == 0.7  # 2 of 3 right, 2 of 4 found
        assert found.curve.f1 == pytest.approx(4 / 7)
        assert found.labels == (
            LabelRow("a", 5, 2, 2, 1.0, 1.0, 1.0),
            LabelRow("b", 0, 1, 0, None, 0.0, 0.0),
            LabelRow("c", 1, 1, 0, None, 0.0, 0.0),
            LabelRow("d", 2, 0, 1, 0.0, None, 0.0),
        )

    def test_worst(self):
        found = examine(self.RANKED, self.TEST, None, 2)
        worst, _, second = found.worst
        assert worst == WorstDocument("2", "three", (("c", False, False),), (("b", 0.6, False),))
        assert second.predicted == (("d", 0.8, False), ("a", 0.7, True))
        assert second.expected == (("a", True, True),)
        assert second.text.endswith("two…")
        assert len(second.text) <= 401
        assert found.labels[0].in_train is None

    def test_nothing_predicted(self):
        found = examine(predictions([{}, {}, {}], 4), self.TEST)
        assert (found.curve, found.labels) == (None, ())
        assert found.worst[0].predicted == ()
        assert "nothing was predicted" in found.left_out["Thresholds and labels"]

    def test_names_beside_ids(self):
        labels = [lt.Label("a", "Apples"), lt.Label("b")]
        test = lt.Dataset.of(["x"], [["a", "b"]], labels)
        found = examine(predictions([{0: 1.0, 1: 0.5}], 2), test)
        assert [row.label for row in found.labels] == ["Apples (a)", "b"]


class TestModel:
    def test_all_of_it(self, sample, tmp_path):
        model, test = sample
        log = run_log_path(tmp_path / "model")
        with listening(RunLog(log)), logged_stage("features") as note:
            note("some")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "file").write_bytes(b"x" * 3_000_000)
        measured = report_on_model(
            model, test, tmp_path / "r.html", "t", folder=tmp_path / "model", bootstrap=50
        )
        assert measured == evaluate_model(model, test, bootstrap=50)
        page = (tmp_path / "r.html").read_text()
        titles = re.findall(r"<h2>(.*?)</h2>", page)
        assert titles == [
            "Metrics",
            "Precision and recall by threshold",
            "Frequent and rare labels",
            "Reliability of the probabilities",
            "Label by label",
            "Worst documents",
            "Beam size and accuracy",
            "Balance of the label tree",
            "Time and memory of training",
            "Model and data",
        ]
        assert "3.0 MB" in page
        assert page.count('class="document"') == 20
        assert page.count("<nav") == 1

    def test_tree_and_new_labels(self, sample):
        model, _ = sample
        more = lt.Dataset.of(["old", "new"], [[model.labels.ids[0]], ["of", "late"]])
        test = more.with_labels(model.labels, unknown="add")
        ranked = predict(model, test, 50).matrix
        ranked.resize(test.label_matrix.shape)
        found = examine_model(model, ranked, test)
        widths = model.tree.widths
        assert [level.nodes for level in found.levels] == [1, *widths[:-1]]
        assert found.levels[0].most == widths[0]
        assert sum(found.leaf_sizes) == widths[-1] == len(model.labels)
        assert found.facts["new to the model"] == "2 labels, 66.7% of the pairs"
        assert found.facts["test documents"] == "2, 2 of them with labels"
        assert found.left_out == {
            "Time and memory of training": "there is no log of the training beside the model folder."
        }

    def test_beams(self, sample):
        model, test = sample
        test = test.with_labels(model.labels, unknown="add")
        points = beam_points(model, timing_sample(model, test))
        assert [point.beam_size for point in points] == [1, 2, 5, 10, 20, 50]
        assert [point.is_default for point in points] == [False, False, False, True, False, False]
        assert points[3].p1 == pytest.approx(evaluate_model(model, test).evaluation["P@1"])
        assert points[0].p5 < points[-1].p5
        assert all(point.ms > 0 for point in points)

    def test_the_same_bytes_unless_times_are_measured(self, sample, tmp_path):
        model, test = sample
        for name in "ab":
            report_on_model(model, test, tmp_path / f"{name}.html", "t")
        assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
        assert "ms per document" not in (tmp_path / "a.html").read_text()
        report_on_model(model, test, tmp_path / "c.html", "t", timings=True)
        assert "ms per document" in (tmp_path / "c.html").read_text()

    def test_a_model_without_a_tree(self, sample, tmp_path):
        _, test = sample
        model = lt.Longtail("dismec", calibration={"method": "none"}).fit(test).model
        assert not beam_matters(model)
        report_on_model(model, test, tmp_path / "r.html", "t")
        page = (tmp_path / "r.html").read_text()
        left_out = page[page.index("Not in this report</h2>") :]
        for why in (
            "Beam size: the model has no linear",
            "Label tree: the model has no",
            "are not probabilities",
            "no log of the",
        ):
            assert why in left_out

    def test_wide_rankings_change_no_metric(self, sample, tmp_path):
        model, test = sample
        measured = report_on_model(model, test, tmp_path / "r.html", "t", ks=(1, 20), beam_size=2)
        assert measured == evaluate_model(model, test, ks=(1, 20), beam_size=2)


def test_predictions_of_any_system(tmp_path):
    train = lt.Dataset.of(["x", "y", "z"], [["a"], ["a", "b"], ["b"]])
    test = lt.Dataset.of(["one", "two"], [["a"], ["b"]], train.labels)
    (tmp_path / "p.jsonl").write_text(
        '{"labels": ["a", "new"], "scores": [3, 1]}\n{"labels": ["a"], "scores": [2]}\n'
    )
    measured = report_on_predictions(
        tmp_path / "p.jsonl", test, train, tmp_path / "r.html", "t", bootstrap=0
    )
    assert measured.evaluation["P@1"] == 0.5
    page = (tmp_path / "r.html").read_text()
    rows = label_data(page)
    assert rows[0] == ["a", 2, 1, 1, 1.0, 1.0, 1.0]
    assert "only predictions are known, not the model" in page
    report_on_predictions(tmp_path / "p.jsonl", test, None, tmp_path / "r.html", "t")
    page = (tmp_path / "r.html").read_text()
    assert label_data(page)[0][1] is None
    assert "give --train" in page


def test_filter(tmp_path):
    test = lt.Dataset.of(["one"], [["b"]], ["a", "b"])
    (tmp_path / "p.jsonl").write_text('{"labels": ["a", "b"], "scores": [3, 2]}\n')
    (tmp_path / "filter.txt").write_text("0 0\n")
    report_on_predictions(
        tmp_path / "p.jsonl", test, None, tmp_path / "r.html", "t", mask=tmp_path / "filter.txt"
    )
    assert [row[0] for row in label_data((tmp_path / "r.html").read_text())] == ["b"]


def label_data(page):
    return json.loads(
        re.search(r'<script type="application/json" id="label-data">(.*?)</script>', page)[1]
    )


class TestText:
    def curve(self):
        test = lt.Dataset.of(["x"], [["a"]])
        return examine(predictions([{0: 0.5}], 1), test).curve

    def test_labels_are_data(self):
        rows = [LabelRow(name, 1, 1, 1, 1.0, 1.0, 1.0) for name in HOSTILE]
        section = label_section(rows, self.curve())
        html = "\n".join(section.parts)
        assert html.count("<script") == html.count("</script>") == 1
        assert "<!--" not in html
        assert [row[0] for row in label_data(html)][:4] == HOSTILE[:4]
        assert "innerHTML" not in section.script

    def test_rows_are_cut(self):
        rows = [LabelRow(str(at), 1, 1, 1, 1.0, 1.0, 1 / 3) for at in range(2003)]
        html = "\n".join(label_section(rows, self.curve()).parts)
        assert len(label_data(html)) == 2000
        assert label_data(html)[0] == ["0", 1, 1, 1, 1.0, 1.0, 0.3333]
        assert "3 others are left out" in html
        assert "left out" not in "\n".join(label_section(rows[:2000], self.curve()).parts)

    @pytest.mark.parametrize("hostile", HOSTILE)
    def test_documents_and_facts_are_escaped(self, hostile):
        worst = WorstDocument(hostile, hostile, ((hostile, False, True),), ((hostile, 0.5, False),))
        stage = StageTime(hostile, 1.0, 100.0, hostile)
        html = "\n".join(
            [
                *worst_section((worst,)).parts,
                *stage_section(Details(stages=(stage,))).parts,
                *left_out_section({hostile: hostile}).parts,
            ]
        )
        assert text(hostile) in html
        for tag in ("<script", "<img", "<svg", "<style", "<!--", "\x1b", "\u2028"):
            assert tag not in html

    def test_only_own_scripts_may_run(self, tmp_path):
        write_page(
            tmp_path / "a.html",
            "t",
            [],
            [Section("a", "A", [], "let a = 1;"), Section("b", "B", [])],
        )
        page = (tmp_path / "a.html").read_text()
        assert (
            "script-src 'sha256-vHrsJhnJyvtJ5H2hOWuwTD9eV6m0lRDP1MKXCD7MkyE='" in page
            or "script-src 'sha256-" in page
        )
        assert "default-src 'none'" in page
        write_page(tmp_path / "a.html", "t", [], [Section("b", "B", [])])
        assert "script-src 'none'" in (tmp_path / "a.html").read_text()


class TestStageTimes:
    def test_read_back(self, tmp_path, caplog):
        file = run_log_path(tmp_path / "m")
        assert file.name == "m.run.jsonl"
        assert read_stage_times(file) == []
        with logged_stage("nobody listens"):
            pass
        assert not file.exists()
        with listening(RunLog(file)):
            for fact in ("one", "two"):
                with logged_stage("level 1") as note:
                    note(fact)
        file.write_bytes(
            file.read_bytes() + b'{"event": "epoch", "number": 1}\n{"event": "sta'
        )  # killed there
        with listening(RunLog(file)), logged_stage("level 2") as note:
            note("three")
            note("four")
        one, two = read_stage_times(file)
        assert (one.name, one.facts, two.name, two.facts) == (
            "level 1",
            "two",
            "level 2",
            "three; four",
        )
        assert one.seconds >= 0
        assert 10 < two.memory_mb < 1e6


def test_in_a_browser(tmp_path):
    """Nothing of hostile labels and texts runs or is hidden, no error is told, and the table sorts and filters."""
    from pathlib import Path

    api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    chromium = Path("/usr/bin/chromium")
    if not chromium.exists():
        pytest.skip("needs Chromium at /usr/bin/chromium")
    names = [name for name in HOSTILE if name.isprintable()]
    test = lt.Dataset.of(names, [[name] for name in names], names)
    rows = [{at: 0.9, (at + 1) % len(names): 0.5 + at / 100} for at in range(len(names))]
    path = tmp_path / "r.html"
    lines = [{"labels": [names[c] for c in row], "scores": [*row.values()]} for row in rows]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    report_on_predictions(tmp_path / "p.jsonl", test, None, path, names[0], bootstrap=20)
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=str(chromium), args=["--no-sandbox"])
        page = browser.new_page()
        told = []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on(
            "request",
            lambda request: (
                told.append(request.url) if not request.url.startswith("file:") else None
            ),
        )
        page.goto(f"file://{path}")
        assert page.evaluate("window.ran") is None
        assert told == []
        first = "#label-table tbody th"
        assert sorted(page.locator(first).all_text_contents()) == sorted(names)
        page.fill("#label-filter", "STYLE")
        assert page.locator(first).all_text_contents() == [HOSTILE[7]]
        page.fill("#label-filter", "")
        page.click("#label-table thead button >> nth=0")
        rising = page.locator(first).all_text_contents()
        page.click("#label-table thead button >> nth=0")
        assert page.locator(first).all_text_contents() == rising[::-1]
        assert (
            page.locator("#label-table thead th >> nth=0").get_attribute("aria-sort")
            == "descending"
        )
        browser.close()
