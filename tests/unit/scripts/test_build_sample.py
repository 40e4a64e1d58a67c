"""The script that builds the bundled sample from apt's lists."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import re

import pytest

import build_sample

FILES = ("train.jsonl.gz", "test.jsonl.gz", "labels.jsonl.gz")


def read(folder, name):
    with gzip.open(folder / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


PACKAGES = """\
Package: aaa
Description: Tool for one thing
Description-md5: 1
Tag: role::program, use::editing,
 interface::commandline, special::meta,
 works-with::TODO, devel::lang:TODO
Section: utils

Package: libaaa-dev
Source: aaa (1.2-3)
Description: Headers of it
Description-md5: 2
Tag: role::devel-lib

Package: untagged
Description: Nobody tagged it
Description-md5: 3

Package: only-special
Description: Only an editor's tag
Description-md5: 4
Tag: special::auto-inst-parts

Package: aaa-old
Description: transitional package
Description-md5: 5
Tag: role::program

Package: aaa-twin
Description: Tool for one thing
Description-md5: 1
Tag: role::data

Package: no-translation
Description: Known only by its synopsis
Tag: role::data
"""

TRANSLATIONS = """\
Package: aaa
Description-md5: 1
Description-en: Tool for one thing
 It does the thing,
  * well
 .
 And quickly: naïvely.

Package: libaaa-dev
Description-md5: 2
Description-en: Headers of it!
 Long text.

Package: untagged
Description-md5: 3
Description-en: Nobody tagged it
 At all.

Package: only-special
Description-md5: 4
Description-en: Only an editor's tag
 And nothing else.

Package: aaa-old
Description-md5: 5
Description-en: transitional package
 This is a transitional package. It can safely be removed.
"""

VOCABULARY = """\
Facet: role
Status: draft
Description: Role
 Role performed by the package

Tag: role::program
Description: Program
 Executable computer program.
 .
 With a screen or without.
 Link: http://example.org/program
 http://example.org/again

Tag: role::devel-lib
Description: Development Library
"""


def write_lists(folder, packages, translations, suite="bookworm", suffix="", compress=bytes):
    folder.mkdir(parents=True, exist_ok=True)
    head = f"mirror_debian_dists_{suite}_main_"
    (folder / f"{head}binary-amd64_Packages{suffix}").write_bytes(compress(packages.encode()))
    (folder / f"{head}i18n_Translation-en{suffix}").write_bytes(compress(translations.encode()))
    return folder


def many_packages(n_sources):
    """Lists with two binary packages a source; every seventh source has a label of its own."""
    packages = []
    translations = []
    for number in range(2 * n_sources):
        source = f"source{number // 2}"
        md5 = f"m{number}"
        rare = f", field::rare-{number // 2}" if number // 2 % 7 == 0 else ""
        packages.append(
            f"Package: package{number}\nSource: {source}\nDescription-md5: {md5}\nTag: role::program{rare}\n"
        )
        translations.append(
            f"Package: package{number}\nDescription-md5: {md5}\nDescription-en: Thing {number}\n It is.\n"
        )
    return "\n".join(packages), "\n".join(translations)


@pytest.fixture
def many_lists(tmp_path):
    return write_lists(tmp_path / "lists", *many_packages(100))


def run_script(lists, output, *options):
    return build_sample.main(["--lists", str(lists), "--output", str(output), *options])


@pytest.fixture
def packages():
    return {
        p.name: p
        for p in build_sample.read_packages(PACKAGES, build_sample.read_translations(TRANSLATIONS))
    }


def test_long_descriptions_become_one_line(packages):
    assert (
        packages["aaa"].description
        == "Tool for one thing. It does the thing, * well And quickly: naïvely."
    )
    assert packages["libaaa-dev"].description == "Headers of it! Long text."
    assert packages["no-translation"].description == "Known only by its synopsis"


def test_tags_go_over_lines_and_editorial_ones_are_dropped(packages):
    assert packages["aaa"].labels == ["interface::commandline", "role::program", "use::editing"]


def test_untagged_placeholder_and_twin_packages_are_dropped(packages):
    assert sorted(packages) == ["aaa", "libaaa-dev", "no-translation"]


def test_the_source_is_the_package_unless_named(packages):
    assert [packages[name].source for name in ("aaa", "libaaa-dev", "no-translation")] == [
        "aaa",
        "aaa",
        "no-translation",
    ]


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("transitional package for belvu. This is it", True),
        ("Fonts (transitional dummy package). More", True),
        ("Resource tool. This is a Transitional meta-package.", True),
        ('Utilities. This is a "dummy" package that depends on', True),
        ("Transition package, a to b. Text", True),
        ("Transitional placeholder for obsoleted things", True),
        ("QGIS server (dummy). Text", True),
        ("X server -- dummy display driver. This package provides a driver", False),
        ("bridge double dummy solver - development", False),
        ("PT Serif is a transitional serif face with humanistic terminals", False),
        ("state transition diagrams", False),
    ],
)
def test_placeholders(description, expected):
    assert build_sample.is_placeholder(description) is expected


def test_vocabulary_names_labels_and_the_rest_are_named_by_their_words():
    vocabulary = build_sample.read_vocabulary(VOCABULARY)
    labels = ["role::program", "devel::lang:c-sharp", "role::app-data", "role::devel-lib"]
    assert [
        (r["id"], r["name"], r["text"]) for r in build_sample.describe_labels(labels, vocabulary)
    ] == [
        ("devel::lang:c-sharp", "devel: lang: c sharp", "devel: lang: c sharp"),
        ("role::app-data", "Role: app data", "Role: app data"),
        ("role::devel-lib", "Role: Development Library", "Role: Development Library"),
        (
            "role::program",
            "Role: Program",
            "Role: Program. Executable computer program. With a screen or without.",
        ),
    ]


def test_a_source_stays_on_one_side_and_test_labels_are_known(many_lists, tmp_path):
    assert run_script(many_lists, tmp_path / "out", "--train", "120", "--test", "20") == 0
    train, test, labels = (read(tmp_path / "out", name) for name in FILES)
    assert (len(train), len(test)) == (120, 20)
    sources = [{int(r["id"].removeprefix("package")) // 2 for r in side} for side in (train, test)]
    assert not sources[0] & sources[1]
    known = {label for record in train for label in record["labels"]}
    assert [record["id"] for record in labels] == sorted(known)
    assert {label for record in test for label in record["labels"]} == {"role::program"}


def test_the_split_is_by_the_hash_of_the_source():
    assert [build_sample.to_test(f"source{n}") for n in range(12)] == [
        int(hashlib.sha1(f"source{n}".encode()).hexdigest(), 16) % 5 == 0 for n in range(12)
    ]
    assert 150 < sum(build_sample.to_test(f"s{n}") for n in range(1000)) < 250


def test_a_test_record_left_without_a_label_makes_room_for_the_next():
    sources = [f"s{n}" for n in range(60)]
    packages = [
        build_sample.Package(
            s,
            s,
            f"Thing {s}",
            ["a::b"] if not build_sample.to_test(s) or s > "s3" else ["only::test"],
        )
        for s in sources
    ]
    emptied = [p.name for p in packages if p.labels == ["only::test"]]
    n_test = sum(map(build_sample.to_test, sources)) - len(emptied)
    _, test = build_sample.pick(packages, 5, n_test)
    assert emptied
    assert len(test) == n_test
    assert not {record["id"] for record in test} & set(emptied)


def test_two_runs_give_the_same_bytes(many_lists, tmp_path, capsys):
    for out in ("one", "two"):
        assert run_script(many_lists, tmp_path / out, "--train", "50", "--test", "10") == 0
    printed = capsys.readouterr().out
    for name in FILES:
        content = (tmp_path / "one" / name).read_bytes()
        assert content == (tmp_path / "two" / name).read_bytes()
        assert content[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
        assert printed.count(f"{hashlib.sha256(content).hexdigest()}  wrote  {name}") == 2
    assert "mirror" not in printed


def test_the_order_of_the_lists_does_not_matter(tmp_path):
    packages, translations = many_packages(40)
    turned = [
        "\n\n".join(reversed(text.strip().split("\n\n"))) for text in (packages, translations)
    ]
    for out, texts in (("one", (packages, translations)), ("two", turned)):
        lists = write_lists(tmp_path / out / "lists", *texts)
        assert run_script(lists, tmp_path / out, "--train", "30", "--test", "5") == 0
    assert all(
        (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        for name in FILES
    )


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed_lists_are_read(tmp_path, suffix, compress):
    lists = write_lists(
        tmp_path / "lists", PACKAGES, TRANSLATIONS, suffix=suffix, compress=compress
    )
    path = build_sample.find_list(lists, "bookworm", "binary-amd64_Packages")
    assert build_sample.read_list(path).decode() == PACKAGES


def test_of_twins_the_first_by_name_is_kept_whatever_the_order(packages):
    turned = "\n\n".join(reversed(PACKAGES.strip().split("\n\n")))
    assert build_sample.read_packages(turned, build_sample.read_translations(TRANSLATIONS)) == list(
        packages.values()
    )


def test_records_come_in_the_order_of_their_hashes(many_lists, tmp_path):
    assert run_script(many_lists, tmp_path / "out", "--train", "50", "--test", "10") == 0
    for name in FILES[:2]:
        hashes = [
            hashlib.sha256(record["id"].encode()).digest()
            for record in read(tmp_path / "out", name)
        ]
        assert hashes == sorted(hashes)


def test_lines_are_readable_utf_8():
    assert gzip.decompress(build_sample.jsonl_gz([{"id": "a", "text": "naïve"}])) == (
        '{"id": "a", "text": "naïve"}\n'.encode()
    )


@pytest.mark.parametrize("suffix", [".lz4", ".zst"])
def test_apt_reads_the_compressions_python_cannot(tmp_path, monkeypatch, suffix):
    helper = tmp_path / "apt-helper"
    helper.write_text('#!/bin/sh\n[ "$1" = cat-file ] && tail -c +5 "$2"\n')
    helper.chmod(0o755)
    monkeypatch.setattr(build_sample, "APT_HELPER", helper)
    lists = write_lists(
        tmp_path / "lists",
        PACKAGES,
        TRANSLATIONS,
        suffix=suffix,
        compress=lambda text: b"lz4\n" + text,
    )
    path = build_sample.find_list(lists, "bookworm", "i18n_Translation-en")
    assert build_sample.read_list(path).decode() == TRANSLATIONS
    monkeypatch.setattr(build_sample, "APT_HELPER", tmp_path / "not-there")
    with pytest.raises(build_sample.ListsError, match="cannot be read"):
        build_sample.read_list(path)


def test_other_suites_are_not_mixed_in(many_lists, tmp_path):
    write_lists(many_lists, PACKAGES, TRANSLATIONS, suite="bookworm-updates")
    path = build_sample.find_list(many_lists, "bookworm", "binary-amd64_Packages")
    assert path.name == "mirror_debian_dists_bookworm_main_binary-amd64_Packages"


# --- what goes wrong
# ---------------------------------------------------------------------------------------------


def only_line(capsys):
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("missing", ["binary-amd64_Packages", "i18n_Translation-en"])
def test_missing_list(many_lists, tmp_path, capsys, missing):
    next(many_lists.glob(f"*{missing}")).unlink()
    assert run_script(many_lists, tmp_path / "out") == 3
    line = only_line(capsys)
    assert f"no list 'bookworm/main {missing}'" in line
    assert "apt-get update -o Acquire::Languages=en" in line
    assert not (tmp_path / "out").exists()


def test_missing_folder(tmp_path, capsys):
    assert run_script(tmp_path / "nowhere", tmp_path / "out") == 3
    assert "run as root: apt-get update" in only_line(capsys)


def test_two_mirrors(many_lists, tmp_path, capsys):
    first = next(many_lists.glob("*Packages"))
    (many_lists / f"other_{first.name}").write_bytes(first.read_bytes())
    assert run_script(many_lists, tmp_path / "out") == 3
    assert "2 lists 'bookworm/main binary-amd64_Packages', expected one" in only_line(capsys)


def test_too_few_records(many_lists, tmp_path, capsys):
    assert run_script(many_lists, tmp_path / "out", "--train", "500", "--test", "1") == 3
    assert re.search(
        r"\d+ train records in the lists, 500 asked for; give a lower --train", only_line(capsys)
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_truncated_list(tmp_path, capsys, suffix):
    def half(content):
        compress = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}[suffix]
        return compress(content)[:-20]

    lists = write_lists(tmp_path / "lists", PACKAGES, TRANSLATIONS, suffix=suffix, compress=half)
    assert run_script(lists, tmp_path / "out") == 3
    assert "cannot be read" in only_line(capsys)


def test_list_in_another_encoding(tmp_path, capsys):
    lists = write_lists(
        tmp_path / "lists", PACKAGES, TRANSLATIONS, compress=lambda content: content + b"\xff"
    )
    assert run_script(lists, tmp_path / "out") == 3
    assert f"byte {len(PACKAGES)} is not UTF-8" in only_line(capsys)


def test_missing_vocabulary(many_lists, tmp_path, capsys):
    assert run_script(many_lists, tmp_path / "out", "--vocabulary", str(tmp_path / "nothing")) == 3
    assert "take it from the package debtags" in only_line(capsys)


def test_output_that_cannot_be_written(many_lists, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert run_script(many_lists, tmp_path / "file", "--train", "5", "--test", "5") == 1
    assert "cannot be written" in only_line(capsys)


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_numbers_are_checked(many_lists, tmp_path, capsys, number):
    with pytest.raises(SystemExit, match="2"):
        run_script(many_lists, tmp_path / "out", f"--train={number}")
    assert "is not a whole number above 0" in capsys.readouterr().err
