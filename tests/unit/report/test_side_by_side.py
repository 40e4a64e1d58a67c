"""Several models on one page: which is best, by how much, and how sure that is."""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pytest

import longtail as lt
from longtail.comparison import compare
from longtail.metrics.bootstrap import Difference
from longtail.report import write_side_by_side
from longtail.report.side_by_side import _difference


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    train, test = lt.sample()
    folder = tmp_path_factory.mktemp("models")
    for name, documents in {"<b>large": 400, "small": 100}.items():
        settings = {"ranker": {"max_passes": 3}, "tree": {"leaf_size": 20}}
        lt.Longtail("xr-linear", **settings).fit(train.take(np.arange(documents))).save(
            folder / name
        )
    models = [folder / "<b>large", folder / "small"]
    return compare(models, test.take(np.arange(100)), [1, 5], bootstrap=100, closely=True)


class TestComparison:
    def test_what_a_closer_look_gives(self, found):
        large, small = found.models
        assert large.differences == {}
        assert set(small.differences) == set(small.measured.evaluation.intervals)
        change = small.measured.evaluation["P@5"] - large.measured.evaluation["P@5"]
        assert small.differences["P@5"].low < change < small.differences["P@5"].high < 0
        assert small.differences["P@5"].p == pytest.approx(2 / 101)
        assert large.size > small.size > 1000
        assert large.ms > 0
        assert large.curve.average_precision > small.curve.average_precision

    def test_numbers_are_those_without_it(self, found, tmp_path):
        train, test = lt.sample()
        model = lt.Longtail("xr-linear", ranker={"max_passes": 3}).fit(train.take(np.arange(100)))
        plain, close = (
            compare([model], test.take(np.arange(50)), [1], closely=closely).models[0]
            for closely in (False, True)
        )
        assert plain.measured == close.measured
        assert (plain.curve, plain.ms, plain.size, close.size, close.differences) == (
            None,
            None,
            None,
            None,
            {},
        )
        assert set(msgspec.to_builtins(plain)) == {"name", "method", "measured"}


class TestPage:
    def test_sections(self, found, tmp_path):
        write_side_by_side(found, tmp_path / "c.html", "a & b")
        page = (tmp_path / "c.html").read_text()
        assert re.findall(r"<h2>(.*?)</h2>", page) == [
            "Metrics",
            "Against &lt;b&gt;large",
            "Precision and recall by threshold",
            "Frequent and rare labels",
            "Time and size",
        ]
        assert "<title>a &amp; b</title>" in page
        assert "<b>" not in page
        assert page.count("<svg") == 3
        best = f"{100 * found.models[0].measured.evaluation['P@5']:.2f}"
        assert f'<span class="best">{best}</span> <small>' in page
        assert re.search(r'<span class="bad">−\d+\.\d\d</span>', page)
        assert "script-src 'none'" in page
        assert found.notes[0].replace("<b>", "&lt;b&gt;") in page.replace("&#x27;", "'")

    def test_same_bytes(self, found, tmp_path):
        for name in ("a.html", "b.html"):
            write_side_by_side(found, tmp_path / name, "t")
        assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()

    def test_without_resamples(self, found, tmp_path):
        bare = [
            msgspec.structs.replace(model, differences={}, curve=None, ms=None)
            for model in found.models
        ]
        write_side_by_side(
            msgspec.structs.replace(found, models=tuple(bare)), tmp_path / "c.html", "t"
        )
        page = (tmp_path / "c.html").read_text()
        assert "Against" not in page
        assert "by threshold" not in page
        assert "<td>–</td>" in page

    def test_only_what_is_sure_has_a_colour(self):
        assert 'class="good">+1.00<' in _difference(0.01, Difference(0.001, 0.02, 0.01), 1000)
        assert 'class="bad">−1.00<' in _difference(-0.01, Difference(-0.02, -0.001, 0.01), 1000)
        assert _difference(0.01, Difference(-0.001, 0.02, 0.2), 1000) == (
            "<span>+1.00</span> <small>−0.10 to +2.00</small> <small>p\xa0= 0.200</small>"
        )
