"""What a person sees: tables, the frequency plot, measurements and explanations."""

from __future__ import annotations

import json

import msgspec
import pytest

from longtail.cli.terminal import (
    frequency_plot,
    print_description,
    print_explanation,
    print_json,
    print_measured,
    print_table,
)
from longtail.data.description import Description, Finding
from longtail.evaluation import Measured
from longtail.metrics import Evaluation, FrequencyBin, FrequencyTable
from longtail.rankers.explanation import Contribution, Explanation, Step
from longtail.search.calibration import ReliabilityBin


class TestTable:
    def test_columns_are_as_wide_as_they_need(self, capsys):
        print_table(["a", "state"], [["long name", "ok"], ["b", "absent"]])
        assert capsys.readouterr().out == "a          state\nlong name  ok\nb          absent\n"

    def test_heads_may_be_wider(self, capsys):
        print_table(["method", "x"], [["a", "1"]])
        assert capsys.readouterr().out == "method  x\na       1\n"

    def test_no_spaces_at_the_end(self, capsys):
        print_table(["a", "b", "c"], [["1", "", ""], ["22", "333", ""]])
        assert capsys.readouterr().out.splitlines() == ["a   b    c", "1", "22  333"]

    def test_without_rows(self, capsys):
        print_table(["a", "b"], [])
        assert capsys.readouterr().out == "a  b\n"

    def test_a_short_row_is_a_bug(self):
        with pytest.raises(ValueError, match="shorter"):
            print_table(["a", "b"], [["1"]])


def test_json_is_one_line(capsys):
    print_json([Finding("note", "größer\nthan", 2)])
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == [
        {"level": "note", "what": "größer\nthan", "count": 2, "examples": []}
    ]


class TestFrequencyPlot:
    def test_nothing(self):
        assert frequency_plot([]) == ""

    def test_one_label(self):
        assert frequency_plot([(1, 7)], width=10).splitlines() == [
            "label rank  documents (log scale)",
            f"         1  {'█' * 10} 7",
        ]

    def test_bars_are_logarithms(self):
        bars = frequency_plot([(1, 255), (2, 15), (1500, 3)], width=16).splitlines()[1:]
        assert bars == [
            f"         1  {'█' * 16} 255",
            f"         2  {'█' * 8} 15",
            f"     1,500  {'█' * 4} 3",
        ]

    def test_the_smallest_bar_can_be_seen(self):
        assert "█ 1" in frequency_plot([(1, 10**9), (2, 1)], width=8).splitlines()[2]

    @pytest.mark.parametrize("length", [1, 2, 11, 12, 13, 24, 25, 50])
    def test_few_rows_from_the_first_rank_to_the_last(self, length):
        curve = [(rank, 2000 - rank) for rank in range(1, length + 1)]
        bars = frequency_plot(curve, rows=12).splitlines()[1:]
        ranks = [int(bar.split()[0]) for bar in bars]
        assert (ranks[0], ranks[-1]) == (1, length)
        assert ranks == sorted(set(ranks))
        assert len(bars) <= 12
        assert length > 12 or len(bars) == length

    def test_ends_with_an_empty_line(self):
        assert frequency_plot([(1, 1)]).endswith("1\n")


class TestDescription:
    DESCRIPTION = Description(
        documents=12345,
        labels=2000,
        labels_used=1900,
        pairs=50000,
        labels_per_document=4.05,
        documents_per_label=26.32,
        median_documents_per_label=3.5,
        most_documents_per_label=900,
        share_of_labels_with_1=0.25,
        share_of_labels_with_at_most_5=0.5,
        share_of_pairs_in_top_1_percent=0.125,
        words_per_document=30.25,
        memory_mb=1234.56,
        frequency_curve=[(1, 900), (1900, 1)],
    )

    def test_lines(self, capsys):
        findings = [
            Finding("error", "of these", 1),
            Finding("warning", "of those", 1234, ["a", "b"]),
        ]
        print_description(self.DESCRIPTION, findings)
        assert capsys.readouterr().out.splitlines() == [
            "documents  12,345, 30.2 words each",
            "labels     2,000, 1,900 of them used",
            "pairs      50,000: 4.05 labels a document, 26.32 documents a label (median 3.5)",
            "tail       25.0 % of labels have 1 document, 50.0 % at most 5; the top 1 % hold 12.5 % of pairs",
            "memory     1,234.6 MB",
            "",
            "label rank  documents (log scale)",
            f"         1  {'█' * 48} 900",
            f"     1,900  {'█' * 5} 1",
            "",
            "error    1 of these",
            "warning  1,234 of those: a, b",
        ]

    def test_without_texts(self, capsys):
        print_description(msgspec.structs.replace(self.DESCRIPTION, words_per_document=None), [])
        assert capsys.readouterr().out.startswith("documents  12,345\n")


class TestMeasured:
    EVALUATION = Evaluation(
        n_documents=20,
        n_without_labels=0,
        n_test_labels=5,
        ks=(1,),
        a=None,
        b=None,
        metrics={"P@1": 0.5},
        hits=(10,),
    )
    TABLE = FrequencyTable(
        20,
        (1,),
        (
            FrequencyBin(
                low=1,
                high=None,
                n_labels=5,
                n_positives=40,
                hits=(10,),
                precision=(0.5,),
                recall=(0.25,),
            ),
        ),
    )
    BINS = (
        ReliabilityBin(0.1, 0.2, 6000, 0.15, 0.25),
        ReliabilityBin(0.5, 0.6, 1234, 0.54, 0.5512),
    )

    def test_all_there_is(self, capsys):
        print_measured(Measured(self.EVALUATION, self.TABLE, self.BINS))
        assert capsys.readouterr().out.splitlines() == [
            "      @1",
            "P  50.00",
            "percent over 20 documents with 5 labels",
            "",
            "in train  labels  positives    P@1    R@1",
            "      >0       5         40  50.00  25.00",
            "",
            "probability  suggestions    mean   right",
            "    0.1–0.2        6,000  15.0 %  25.0 %",
            "    0.5–0.6        1,234  54.0 %  55.1 %",
            "Of the 1,234 suggestions with a probability of 0.5–0.6, 55 % were correct.",
            "Mean gap between probability and share correct: 8.5 percentage points.",
        ]

    def test_metrics_alone(self, capsys):
        print_measured(Measured(self.EVALUATION))
        assert capsys.readouterr().out.splitlines() == [
            "      @1",
            "P  50.00",
            "percent over 20 documents with 5 labels",
        ]


class TestExplanation:
    WORDS = (
        Contribution("sound", 0.5, 1.0, 0.5),
        Contribution("cut", 0.5, -0.5, -0.25),
        Contribution("a", 1, 0.1, 0.1),
    )
    STEPS = (
        Step(0, 0, "Audio, Video, Text … (60 labels)", 1.05, 1.0, 0.7, 0.0, WORDS),
        Step(0, 1, "Audio", 0.45, 0.8, 0.0, 0.2, WORDS[:2]),
    )
    EXPLANATION = Explanation("use::audio", "Audio", 0.8, 0.61234, STEPS)

    def test_lines(self, capsys):
        print_explanation(self.EXPLANATION, 2)
        assert capsys.readouterr().out.splitlines() == [
            "Audio (use::audio): path score 0.800, probability 0.612",
            "",
            "level 1 of 2: Audio, Video, Text … (60 labels)",
            "  score 1.000, margin +1.050 = words +0.350, bias +0.700",
            f"  +0.500  {'█' * 24}  sound",
            f"  −0.250  {'░' * 12}{' ' * 12}  cut",
            f"  +0.100  {' ' * 24}  (1 other words)",
            "",
            "level 2 of 2: Audio",
            "  score 0.800, margin +0.450 = words +0.250, bias +0.000, dense +0.200",
            f"  +0.500  {'█' * 24}  sound",
            f"  −0.250  {'░' * 12}{' ' * 12}  cut",
            "",
            "over all steps: sound +1.000  cut −0.500",
        ]

    def test_several_trees_and_no_calibration(self, capsys):
        steps = (*self.STEPS, msgspec.structs.replace(self.STEPS[1], tree=1, level=0))
        print_explanation(Explanation("a", "a", 0.5, None, steps), 1)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "a: path score 0.500, not calibrated"
        assert [line for line in lines if line.startswith("tree")] == [
            "tree 1, level 1 of 2: Audio, Video, Text … (60 labels)",
            "tree 1, level 2 of 2: Audio",
            "tree 2, level 1 of 1: Audio",
        ]

    def test_nothing_acts_on_a_terminal_and_lines_are_not_too_long(self, capsys):
        evil = "\x1b[31mred\n" + "x" * 200
        words = (Contribution(evil, 1.0, 1.0, 1.0), Contribution("w" * 99, 1.0, 1e-9, 1e-9))
        step = Step(0, 0, evil, 1.0, 1.0, 0.0, 0.0, words)
        print_explanation(Explanation(evil, evil, 1.0, 0.5, (step,)), 8)
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "\\x1b[31mred\\nxxx" in out
        assert max(map(len, out.splitlines())) == 100
        assert out.splitlines()[0].endswith("x…: path score 1.000, probability 0.500")
        assert "  +0.000  █  " in out.replace(" " * 23, "")  # the smallest bar can be seen

    def test_no_word_has_a_weight(self, capsys):
        step = Step(0, 0, "a", -1.0, 0.1, -1.0, 0.0, ())
        print_explanation(Explanation("a", "a", 0.1, 0.0, (step,)), 8)
        assert capsys.readouterr().out.splitlines()[2:] == [
            "level 1 of 1: a",
            "  score 0.100, margin −1.000 = words +0.000, bias −1.000",
            "",
            "over all steps: no word of the text has a weight",
        ]
