#!/usr/bin/env python3
"""Builds the bundled sample: Debian package descriptions and their debtags, from apt's package
lists.

    apt-get update -o Acquire::Languages=en          (as root; the long descriptions are the English
        «translation»)
    apt-get download debtags                         (the tag vocabulary: names and texts of the
        labels)
    dpkg-deb --fsys-tarfile debtags_*.deb | tar -xO ./usr/share/debtags/vocabulary > vocabulary
    python3 scripts/build_sample.py --vocabulary vocabulary

Same lists and same options give the same bytes. A record is kept when it has at least one tag that
says something about the package, is no transitional or dummy package, and no other package has the
same description.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import io
import json
import lzma
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "ListsError",
    "Package",
    "build",
    "describe_labels",
    "find_list",
    "is_placeholder",
    "jsonl_gz",
    "keep_tags",
    "main",
    "one_line",
    "pick",
    "read_list",
    "read_packages",
    "read_translations",
    "read_vocabulary",
    "stanzas",
    "to_test",
]

APT_LISTS = Path("/var/lib/apt/lists")
APT_HELPER = (
    "/usr/lib/apt/apt-helper"  # the one program sure to read every compression apt itself writes
)
SAMPLE = Path(__file__).resolve().parents[1] / "src" / "longtail" / "data" / "sample"
UPDATE = "run as root: apt-get update -o Acquire::Languages=en"
DOWNLOAD = "take it from the package debtags, as --help shows"

# special:: is the tag editors' own facet; ::TODO means «the right tag does not exist yet». Neither
# describes a package.
EDITORIAL = re.compile(r"special::|.*:TODO$")
PLACEHOLDER = re.compile(
    r"""\b(transition(al)?|dummy)\b["')]*(\s\(?[\w-]+\)?){0,2}\s\(?(meta-?)?(packages?|pkg|placeholder|transition)\b"""
    r"|\(dummy\)",
    re.IGNORECASE,
)

Record = dict[str, object]
Vocabulary = dict[str, tuple[str, str]]  # «role» or «role::program» → (short description, long one)


class ListsError(Exception):
    """Lists that are missing, unreadable or too small; the message says the way out."""


class Package(NamedTuple):
    """One binary package: its source decides the side of the split, its labels are sorted."""

    name: str
    source: str
    description: str
    labels: list[str]

    def record(self, labels: Sequence[str]) -> Record:
        """Return the JSONL record, with those of the labels that are to be kept."""
        return {"id": self.name, "text": f"{self.name}: {self.description}", "labels": list(labels)}


# --- apt's lists
# -------------------------------------------------------------------------------------------------


def find_list(lists: Path, suite: str, tail: str) -> Path:
    """Return the one list of the suite's main component whose name ends with tail, compressed or
    not.
    """
    names = re.compile(
        rf".*_dists_{re.escape(suite)}_main_{re.escape(tail)}(\.(gz|xz|bz2|lz4|zst))?"
    )
    matches = [path for path in sorted(lists.glob("*")) if names.fullmatch(path.name)]
    if not matches:
        raise ListsError(f"{lists}: no list '{suite}/main {tail}'; {UPDATE}")
    if len(matches) > 1:
        raise ListsError(
            f"{lists}: {len(matches)} lists '{suite}/main {tail}', expected one; give a folder by "
            "--lists"
        )
    return matches[0]


def read_list(path: Path, way_out: str = UPDATE) -> bytes:
    """Return the whole list, decompressed by what its name ends with."""
    openers: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.decompress,
        ".xz": lzma.decompress,
        ".bz2": bz2.decompress,
    }
    try:
        if path.suffix in {".lz4", ".zst"}:
            return subprocess.run(
                [APT_HELPER, "cat-file", path], check=True, capture_output=True
            ).stdout
        return openers.get(path.suffix, bytes)(path.read_bytes())
    except (OSError, EOFError, ValueError, lzma.LZMAError, subprocess.CalledProcessError) as error:
        raise ListsError(f"{path}: cannot be read ({type(error).__name__}); {way_out}") from error


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield each block of «Field: value» lines; continuation lines follow their value after a
    newline.
    """
    for block in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        field = ""
        for line in block.split("\n"):
            if line[:1] in (" ", "\t"):
                fields[field] = f"{fields.get(field, '')}\n{line[1:]}"
            elif ":" in line:
                field, value = line.split(":", 1)
                fields[field] = value.strip()
        if fields:
            yield fields


def one_line(description: str) -> str:
    """Return «Synopsis.

    Long description» on one line, from a field whose paragraphs are parted by lonely dots.
    """
    synopsis, *lines = description.split("\n")
    synopsis = " ".join(synopsis.split())
    body = " ".join(" ".join(line for line in lines if line.strip() != ".").split())
    if not body:
        return synopsis
    return f"{synopsis} {body}" if synopsis.endswith((".", "!", "?")) else f"{synopsis}. {body}"


def keep_tags(field: str) -> list[str]:
    """Return the sorted tags of a Tag field that describe the package."""
    return sorted({tag for tag in re.split(r"[,\s]+", field) if tag and not EDITORIAL.match(tag)})


def is_placeholder(description: str) -> bool:
    """Tell whether a description on one line is that of a transitional or dummy package."""
    return PLACEHOLDER.search(description) is not None


def read_translations(text: str) -> dict[str, str]:
    """Map Description-md5 to the whole English description."""
    return {
        s["Description-md5"]: s["Description-en"] for s in stanzas(text) if "Description-en" in s
    }


def read_packages(text: str, translations: dict[str, str]) -> list[Package]:
    """Return the packages worth a record, sorted by name; of those with the same description only
    the first.
    """
    packages: dict[str, Package] = {}
    for fields in stanzas(text):
        labels = keep_tags(fields.get("Tag", ""))
        name = fields.get("Package", "")
        if name and labels:
            source = (fields.get("Source") or name).split()[0]  # «Source: name (version)»
            whole = translations.get(
                fields.get("Description-md5", ""), fields.get("Description", "")
            )
            packages[name] = Package(name, source, one_line(whole), labels)
    by_description: dict[str, Package] = {}
    for name in sorted(packages):
        package = packages[name]
        if package.description and not is_placeholder(package.description):
            by_description.setdefault(package.description, package)
    return list(by_description.values())


# --- the sample
# --------------------------------------------------------------------------------------------------


def to_test(source: str) -> bool:
    """Tell the side of the split: one source in five goes to test, with all its binary packages."""
    return int(hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), 16) % 5 == 0


def pick(
    packages: Iterable[Package], n_train: int, n_test: int
) -> tuple[list[Record], list[Record]]:
    """Return train and test records in the order of their names' hashes, so that any head of a file
    is a fair sample.

    Test labels that never occur in train are dropped, and test records that are left without one.
    """
    # Another hash than the split's, or the packages named as their source would come in another
    # proportion.
    shuffled = sorted(packages, key=lambda package: hashlib.sha256(package.name.encode()).digest())
    train = [p.record(p.labels) for p in shuffled if not to_test(p.source)][:n_train]
    known = {label for record in train for label in record["labels"]}  # type: ignore[attr-defined]
    seen = (
        (p, [label for label in p.labels if label in known]) for p in shuffled if to_test(p.source)
    )
    test = [p.record(labels) for p, labels in seen if labels][:n_test]
    for name, records, wanted in (("train", train, n_train), ("test", test, n_test)):
        if len(records) < wanted:
            raise ListsError(
                f"{len(records)} {name} records in the lists, {wanted} asked for; give a lower "
                f"--{name}"
            )
    return train, test


def read_vocabulary(text: str) -> Vocabulary:
    """Return the short and the long description of each facet and tag, without their links."""
    vocabulary: Vocabulary = {}
    for fields in stanzas(text):
        short, *lines = fields.get("Description", "").split("\n")
        lines = [line for line in lines if not re.match(r"\s*(Link:|https?://|\.$)", line)]
        vocabulary[fields.get("Tag", fields.get("Facet", ""))] = (
            short.strip(),
            " ".join(" ".join(lines).split()),
        )
    return vocabulary


def describe_labels(labels: Iterable[str], vocabulary: Vocabulary) -> list[Record]:
    """Return the label file's records, sorted by id; a tag or facet without an entry is named by
    its own words.
    """
    records: list[Record] = []
    for label in sorted(labels):
        facet, _, tag = label.partition("::")
        facet_name, _ = vocabulary.get(facet, ("", ""))
        tag_name, long = vocabulary.get(label, ("", ""))
        name = f"{facet_name or in_words(facet)}: {tag_name or in_words(tag)}"
        records.append({"id": label, "name": name, "text": f"{name}. {long}" if long else name})
    return records


def in_words(identifier: str) -> str:
    """Return «lang: c sharp» for «lang:c-sharp»."""
    return identifier.replace("-", " ").replace(":", ": ")


def jsonl_gz(records: Iterable[Record]) -> bytes:
    """Return the records as gzipped JSON lines, without time or name in the header."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.writelines(
            json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records
        )
    return buffer.getvalue()


def build(
    packages: list[Package], vocabulary: Vocabulary, n_train: int, n_test: int
) -> dict[str, list[Record]]:
    """Return the records of each file of the sample by its name."""
    train, test = pick(packages, n_train, n_test)
    labels = {label for record in train for label in record["labels"]}  # type: ignore[attr-defined]
    return {
        "train.jsonl.gz": train,
        "test.jsonl.gz": test,
        "labels.jsonl.gz": describe_labels(labels, vocabulary),
    }


# --- the command
# -------------------------------------------------------------------------------------------------


def read_input(path: Path, title: str, way_out: str = UPDATE) -> str:
    """Return a list's text, and print its title and SHA-256: this much of the lists' whereabouts is
    of use.
    """
    content = read_list(path, way_out)
    print(f"{hashlib.sha256(content).hexdigest()}  read   {title}: {len(content):,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ListsError(f"{path}: byte {error.start} is not UTF-8; {way_out}") from error


def run(options: argparse.Namespace) -> None:
    """Read the lists, build the sample and write it."""
    tails = (f"binary-{options.architecture}_Packages", "i18n_Translation-en")
    paths = [find_list(options.lists, options.suite, tail) for tail in tails]
    texts = [
        read_input(path, f"{options.suite}/main {tail}")
        for path, tail in zip(paths, tails, strict=True)
    ]
    vocabulary = (
        read_vocabulary(read_input(options.vocabulary, "vocabulary", DOWNLOAD))
        if options.vocabulary
        else {}
    )
    packages = read_packages(texts[0], read_translations(texts[1]))
    files = build(packages, vocabulary, options.train, options.test)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, records in files.items():
        content = jsonl_gz(records)
        (options.output / name).write_bytes(content)
        print(
            f"{hashlib.sha256(content).hexdigest()}  wrote  {name}: {len(records):,} records, "
            f"{len(content):,} bytes"
        )
    without = [str(r["id"]) for r in files["labels.jsonl.gz"] if r["id"] not in vocabulary]
    print(
        f"{len(packages):,} packages to pick from; {len(without)} labels not in the vocabulary "
        f"{' '.join(without[:9])}"
    )


def positive(text: str) -> int:
    """Return a whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 3 when the lists are of no use, 1 when nothing
    can be written.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lists", type=Path, default=APT_LISTS, help="folder of apt's lists [%(default)s]"
    )
    parser.add_argument(
        "--output", type=Path, default=SAMPLE, help="folder to write to [the bundled sample's]"
    )
    parser.add_argument(
        "--vocabulary",
        type=Path,
        help="the debtags vocabulary; without it labels are named by their id",
    )
    parser.add_argument("--suite", default="bookworm", help="Debian release [%(default)s]")
    parser.add_argument("--architecture", default="amd64", help="whose Packages list [%(default)s]")
    parser.add_argument(
        "--train", type=positive, default=6000, help="number of train records [%(default)s]"
    )
    parser.add_argument(
        "--test", type=positive, default=1500, help="number of test records [%(default)s]"
    )
    try:
        run(parser.parse_args(arguments))
    except ListsError as error:
        print(f"build_sample.py: {error}", file=sys.stderr)
        return 3
    except OSError as error:  # what is read is guarded above; this is the output folder
        print(
            f"build_sample.py: {error.filename}: cannot be written: {error.strerror}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
