"""Texts that words do not divide: found in every script that has no spaces, and in no other."""

from __future__ import annotations

import pytest

import longtail as lt
from longtail.data.word_boundaries import READ_CHARACTERS, are_many, hardly_split


@pytest.mark.parametrize(
    "text",
    [
        "猫は屋根の上で寝ている",
        "新しい車を買いました。とても速い車です。",
        "สวัสดีครับผมชอบแมวมาก",
        "我喜欢在周末去图书馆看书，然后和朋友喝咖啡。",
        "C",
        "λ",
        "R + C",
        "電気",
        "unabhängig",
    ],
)
def test_found(text):
    assert hardly_split(["two words", text, "", " \n"]) == [1]


@pytest.mark.parametrize(
    "text",
    [
        "wind power",
        "Ветер и вода",
        "바람과 물의 힘",
        "ريح وماء",
        "我 喜欢 周末 去 图书馆",  # divided before
        "cats called 猫 in Japanese",
        "",
    ],
)
def test_not_found(text):
    assert hardly_split([text]) == []


def test_few_are_no_matter():
    assert not are_many(4, 4)
    assert are_many(5, 25)
    assert not are_many(5, 26)


def japanese():
    """Documents of two subjects, without a space."""
    cats = [
        f"猫が{path}で寝ている"
        for path in ("屋根", "部屋", "庭", "台所", "階段", "椅子", "廊下", "窓辺")
    ]
    cars = [
        f"車が{path}を走っている"
        for path in ("道路", "高速", "橋", "町", "山道", "坂", "海岸", "畑")
    ]
    return lt.Dataset.of([*cats, *cars], [["cat"]] * 8 + [["car"]] * 8)


def test_check_names_the_setting():
    (finding,) = [member for member in japanese().check() if "one word or none" in member.what]
    assert (finding.level, finding.count) == ("warning", 16)
    assert READ_CHARACTERS in finding.what


def test_training_warns_unless_characters_are_read(caplog):
    tagger = lt.Longtail("dismec", calibration={"share": 0.0}).fit(japanese())
    assert (
        "100 % of the documents have one word or none, or no spaces between words, so"
        in caplog.text
    )
    assert READ_CHARACTERS in caplog.text
    assert tagger.predict(["庭の猫"], 1)[0] == tagger.predict([""], 1)[0]
    caplog.clear()
    settings = {"calibration": {"method": "none"}, "tfidf": [{"unit": "char", "ngram_max": 3}]}
    tagger = lt.Longtail("dismec", **settings).fit(japanese())
    assert caplog.text == ""
    assert [tagger.predict([text], 1)[0][0].id for text in ("庭の猫", "橋の車")] == ["cat", "car"]
