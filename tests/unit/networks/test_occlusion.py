"""Leaving words out: what a word is, what leaving it out leaves, and scores of one label as the
search has them.
"""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import special

pytest.importorskip("torch")
pytest.importorskip("transformers")

from longtail.cli.terminal import print_explanation
from longtail.config import Cascade, Training
from longtail.data.labels import Labels
from longtail.data.strings import Strings
from longtail.features.encoder import Encoder
from longtail.features.tokens import Tokeniser
from longtail.networks.cascade import CascadeXML
from longtail.networks.ranker import MOST_WORDS, NeuralRanker, occlusions
from longtail.rankers.explanation import Contribution, Explanation, RawExplanation, Step
from longtail.search.calibration import Calibration
from longtail.tree.tree import LabelTree
from tiny_encoder import write_encoder

CHANCE = np.random.default_rng(7)
WORDS = ["red", "green", "blue", "apple", "pear", "sky", "window", "editor", "sound", "file"]
TEXTS = [" ".join(CHANCE.choice(WORDS, CHANCE.integers(1, 40))) for _ in range(40)]
TREE = LabelTree(
    CHANCE.permutation(20).astype(np.int32),
    (np.array([0, 2, 3, 7]), np.array([0, 3, 6, 7, 11, 14, 17, 20])),  # 3 → 7 → 20
)
FLAT = LabelTree(CHANCE.permutation(20).astype(np.int32), ())

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"), TEXTS)


def ranker_of(folder, tree=TREE, scale=30.0, **settings):
    cascade = Cascade(
        **{"shortlist": (2, 3)[: tree.n_levels - 1], "last_level": "shortlist", **settings}
    )
    network = CascadeXML(Encoder.load(folder), tree, cascade, Training(head_optimiser="sgd"), 3)
    for head in network.heads:
        head.set_rows(head.weight * scale)
    return NeuralRanker(Tokeniser.load(folder, 24), network, tree)


class Counting:
    """A scorer whose logit is a sum of weights over the words of a text, by white space, that are
    read.
    """

    def __init__(self, max_tokens=10_000, bias=0.0, cleaning="none", **weights):
        self.weights = weights
        self.bias = bias
        self.texts = []
        self.given = 0
        self.tokeniser = self
        self.max_tokens = max_tokens
        self.cleaning = cleaning

    def __call__(self, texts):
        self.given = sum(map(len, texts))
        ids = defaultdict(lambda: len(ids) + 1)
        rows = [
            [ids[word.casefold()] for word in text.split()][: self.max_tokens] or [0]
            for text in texts
        ]
        return SimpleNamespace(ids=np.concatenate(rows), ends=np.cumsum([0, *map(len, rows)]))

    def label_scores(self, texts, label):
        self.texts = list(texts)
        words = [
            text.casefold().replace(".", " ").split()[: self.max_tokens] for text in self.texts
        ]
        return special.expit(
            [self.bias + label + sum(self.weights.get(word, 0.0) for word in own) for own in words]
        )


def left_out(text, **settings):
    """Return what the text becomes without each of its words."""
    scorer = Counting(**settings)
    found = occlusions(scorer, text, 0)  # all falls are 0, so words stay in their order
    assert scorer.texts[0] == text
    return dict(zip(found.words, scorer.texts[1:], strict=True))


class TestLabelScores:
    @pytest.mark.parametrize("last_level", ["shortlist", "full"])
    @pytest.mark.parametrize("score", ["weighted", "level", "path"])
    def test_are_those_of_the_search(self, folder, score, last_level):
        ranker = ranker_of(folder, score=score, last_level=last_level)
        searched = ranker.search(TEXTS, 6)[0].tocsc()
        for label in range(0, TREE.n_labels, 3):
            rows = searched.indices[searched.indptr[label] : searched.indptr[label + 1]]
            found = ranker.label_scores(TEXTS, label)
            assert (found.shape, found.dtype) == ((len(TEXTS),), np.float64)
            expected = searched.data[searched.indptr[label] : searched.indptr[label + 1]]
            np.testing.assert_allclose(found[rows], expected, rtol=1e-4, atol=1e-6)
            assert ((found > 0) & (found < 1)).all()  # those that are not among the best, too

    @pytest.mark.parametrize("score", ["weighted", "level", "path"])
    def test_without_a_level_above_the_labels(self, folder, score):
        ranker = ranker_of(folder, FLAT, score=score)
        expected = ranker.search(TEXTS[:5], 20)[0].toarray()
        found = [ranker.label_scores(TEXTS[:5], label) for label in range(20)]
        np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-4, atol=1e-6)

    def test_of_tokens_and_of_nothing(self, folder):
        ranker = ranker_of(folder)
        expected = ranker.label_scores(TEXTS[:3], 4)
        np.testing.assert_array_equal(ranker.label_scores(ranker.tokeniser(TEXTS[:3]), 4), expected)
        np.testing.assert_array_equal(ranker.label_scores(Strings.of(TEXTS[:3]), 4), expected)
        assert len(ranker.label_scores([], 4)) == 0


class TestWords:
    def test_all_occurrences_in_any_case(self):
        assert left_out("Sound and file. SOUND, sound!") == {
            "Sound": "and file. , !",
            "and": "Sound file. SOUND, sound!",
            "file": "Sound and . SOUND, sound!",
        }

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (
                "sound-file_name (x), don’t o'clock",
                ["sound", "file", "name", "x", "don’t", "o'clock"],
            ),
            ("'quoted' rock'n'roll' C++ 3.5%", ["quoted", "rock'n'roll", "C", "3", "5"]),
            (
                "Straße STRASSE Ärger a\u0308rger",
                ["Straße", "Ärger"],
            ),  # letters of several kinds, folded together
            ("हिन्दी भाषा، עברית", ["हिन्दी", "भाषा", "עברית"]),  # with marks on their letters
            ("می\u200cخواهم soft\u00adhyphen", ["می\u200cخواهم", "soft\u00adhyphen"]),
            ("one\u2003two\u200bthree—four\tfive\n", ["one", "two", "three", "four", "five"]),
            ("❤\ufe0f 👨\u200d👩 -- … '", []),
            ("", []),
        ],
    )
    def test_what_a_word_is(self, text, words):
        assert list(left_out(text)) == words

    def test_white_space_behind_goes_with_it(self):
        assert left_out("a  b\n\nc") == {"a": "b\n\nc", "b": "a  c", "c": "a  b\n\n"}
        assert left_out("a-b c") == {"a": "-b c", "b": "a- c", "c": "a-b "}

    def test_line_breaks_that_are_tokens_stay(self):
        found = left_out("a  b \n\nc", cleaning="attentionxml")
        assert found == {"a": "b \n\nc", "b": "a  \n\nc", "c": "a  b \n\n"}


class TestFalls:
    def test_of_the_logit_the_largest_first(self):
        found = occlusions(Counting(sound=1.5, cut=-2.0, file=0.25), "Sound file. Cut a sound", 1)
        assert found.words == ("Sound", "Cut", "file", "a")
        assert found.counts == (2, 1, 1, 1)
        assert found.falls == pytest.approx((3.0, -2.0, 0.25, 0.0))
        assert found.score == pytest.approx(special.expit(1 + 3 - 2 + 0.25))

    def test_as_a_step(self):
        step = occlusions(Counting(sound=1.5, cut=-2.0), "sound cut sound", 0).step()
        assert (step.kind, step.bias, step.dense) == ("left-out", 0, 0)
        assert step.margin == pytest.approx(1.0)
        assert step.score == pytest.approx(special.expit(1.0))
        parts = [
            (part.feature, part.value, part.weight, part.contribution)
            for part in step.contributions
        ]
        assert parts == [
            ("sound", 2, pytest.approx(1.5), pytest.approx(3)),
            ("cut", 1, *[pytest.approx(-2)] * 2),
        ]
        assert "left out" in step.node

    @pytest.mark.parametrize("bias", [-2000.0, 30.0, 2000.0])
    def test_of_scores_near_their_ends(self, bias):
        """Also a score that is 0 or 1 as a number has a logit; short of that, falls are exact."""
        found = occlusions(Counting(bias=bias, sound=2.0), "sound file", 0)
        assert np.isfinite(found.falls).all()
        assert np.isfinite(found.step().margin)
        if bias == 30:
            assert found.falls == pytest.approx(
                (2.0, 0.0), abs=0.1
            )  # where float32 would have none

    def test_only_words_that_are_read(self):
        found = occlusions(Counting(3, a=1.0, e=5.0), "a b c d e e", 0)
        assert dict(zip(found.words, found.falls, strict=True)) == pytest.approx(
            {"a": 1.0, "b": 0.0, "c": 0.0}
        )

    def test_what_moves_up_is_read(self):
        found = occlusions(Counting(3, a=1.0, d=5.0), "a a b c d e e", 0)
        assert dict(zip(found.words, found.falls, strict=True)) == pytest.approx(
            {"a": -3.0, "b": 0.0}
        )

    def test_a_book_costs_no_more_than_a_page(self):
        """Its end is cut off where it cannot be read, whichever word is left out."""
        book = " ".join(["the the the"] * 50 + [f"w{at}" for at in range(20)] + ["the"] * 50_000)
        scorer = Counting(12, the=1.0, w3=0.5)
        found = occlusions(scorer, book, 0)
        assert scorer.given < 20_000  # characters of all texts together
        assert (found.words, found.falls) == (("the",), pytest.approx((11.5,)))  # then w3 is read

    def test_the_first_words_of_many(self):
        scorer = Counting(w3=1.0, w256=9.0)
        found = occlusions(scorer, " ".join(f"w{at}" for at in range(300)), 0)
        assert len(found.words) == MOST_WORDS == 256
        assert len(scorer.texts) == 257
        assert (found.words[0], found.falls[0]) == ("w3", pytest.approx(1.0))

    def test_of_a_network(self, folder):
        """By hand: the scores of the text with and without a word, one text at a time."""
        ranker = ranker_of(folder)
        text = "Red window, green sky: red apple file."
        found = occlusions(ranker, text, 5)
        assert sorted(found.words) == ["Red", "apple", "file", "green", "sky", "window"]
        others = {
            "Red": "window, green sky: apple file.",
            "sky": "Red window, green : red apple file.",
        }
        whole = special.logit(ranker.label_scores([text], 5)[0])
        falls = dict(zip(found.words, found.falls, strict=True))
        for word, other in others.items():
            fall = whole - special.logit(ranker.label_scores([other], 5)[0])
            assert falls[word] == pytest.approx(fall, rel=1e-3, abs=1e-4)
        assert max(map(abs, found.falls)) > 0.05
        assert (np.diff(np.abs(found.falls)) <= 0).all()

    def test_a_text_without_words(self, folder):
        ranker = ranker_of(folder)
        found = occlusions(ranker, " … ", 5)
        assert (found.words, found.counts, found.falls) == ((), (), ())
        assert found.score == pytest.approx(ranker.label_scores([""], 5)[0], rel=0.5)


def test_beside_linear_classifiers():
    """The score is that of both by their shares, and so is what the calibration reads."""
    network = occlusions(Counting(sound=1.0), "sound", 0).step()
    calibration = Calibration(np.array([0.0, 1.0]), np.array([0.1, 0.5]))
    raw = RawExplanation(0, 0.4, ())
    found = raw.named(
        Labels.of(["a"]), np.ones(1, np.int64), Strings.of([]), calibration, network, 0.75
    )
    score = 0.75 * special.expit(1.0) + 0.25 * 0.4
    assert found.path_score == pytest.approx(score)
    assert found.probability == pytest.approx(0.1 + 0.4 * score)
    assert (found.steps, found.sums, found.network_share) == ((network,), (), 0.75)
    assert found.summed() == [("sound", pytest.approx(1.0))]


class TestPrinted:
    NETWORK = Step(0, 0, "the network", 1.5, 0.818, 0.0, 0.0, (
        Contribution("sound", 2.0, 1.0, 2.0), Contribution("cut", 1.0, -1.0, -1.0), Contribution("a", 1.0, 0.1, 0.1),
    ), "left-out")  # fmt: skip
    WORDS = (Contribution("sound", 0.5, 1.0, 0.5), Contribution("cut", 0.5, -0.5, -0.25))
    SUMS = (
        Step(0, 0, "Audio, Video", 0.25, 1.0, 0.0, 0.0, WORDS),
        Step(0, 1, "Audio", 0.45, 0.8, 0.0, 0.2, WORDS),
    )

    def test_a_network(self, capsys):
        """Nothing is added up, and bars are on a scale of their own."""
        print_explanation(Explanation("a", "a", 0.818, None, (self.NETWORK,), 1.0), 2)
        assert capsys.readouterr().out.splitlines() == [
            "a: path score 0.818, not calibrated",
            "",
            "the network",
            "  score 0.818, logit +1.500, and the decrease without each word (decreases do not add up)",
            f"  +2.000  {'█' * 24}  sound",
            f"  −1.000  {'░' * 12}{' ' * 12}  cut",
            f"  {' ' * 6}  {' ' * 24}  (1 other words with smaller decreases)",
        ]

    def test_a_network_beside_linear_classifiers(self, capsys):
        explanation = Explanation(
            "a", "a", 0.25 * 0.818 + 0.75 * 0.8, 0.5, (self.NETWORK, *self.SUMS), 0.25
        )
        print_explanation(explanation, 3)
        lines = capsys.readouterr().out.splitlines()
        assert lines[1] == "= 0.25 × 0.818 of the network + 0.75 × 0.800 of the linear classifiers"
        assert lines[9] == "level 1 of 2: Audio, Video"
        assert lines[11] == f"  +0.500  {'█' * 24}  sound"
        assert lines[-1] == "over all steps but the network's: sound +1.000  cut −0.500"

    def test_a_network_that_reads_no_word(self, capsys):
        step = Step(0, 0, "the network", -1.0, 0.1, 0.0, 0.0, (), "left-out")
        print_explanation(Explanation("a", "a", 0.1, 0.0, (step,), 1.0), 8)
        assert (
            capsys.readouterr().out.splitlines()[-1] == "  the network reads no word of this text"
        )
