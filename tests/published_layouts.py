"""Small folders with exactly the files of the published datasets, made by code."""

from __future__ import annotations

import gzip
import json

import numpy as np
from scipy import sparse


def attentionxml(
    folder,
    train=(b"0,2 0:0.5 3:1\n", b"1 1:0.25 4:2\n", b" 2:1\n"),
    test=(b"2 0:1 2:0.5\n", b"0 1:1\n"),
):
    """Amazon-670K of AttentionXML: texts as they are and tokenised, labels, and features without a
    header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "train_raw_texts.txt": b"Red Tutu /SEP/ A skirt for ballet.\nBlack Shoes\nBlue Hat /SEP/ Felt.\n",
        "train_texts.txt": b"red tutu /SEP/ a skirt for ballet\nblack shoes\nblue hat /SEP/ felt\n",
        "train_labels.txt": b"B00A B00C\nB00B\n\n",
        "test_raw_texts.txt": b"Ballet /SEP/ Pink.\nBoots\n",
        "test_texts.txt": b"ballet /SEP/ pink\nboots\n",
        "test_labels.txt": b"B00C\nB00A\n",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "train_v1.txt").write_bytes(b"".join(train))
    (folder / "test.txt").write_bytes(b"".join(test))
    return folder


def pecos(folder, features="tfidf-attnxml"):
    """xmc-base/eurlex-4k of PECOS: texts, label matrices, items, and features in a folder of their
    own.
    """
    (folder / features).mkdir(parents=True, exist_ok=True)
    for part, texts in (("trn", b"wind power\nsalt\nsea\n"), ("tst", b"sea wind\n")):
        n_rows = texts.count(b"\n")
        (folder / f"X.{part}.txt").write_bytes(texts)
        targets = sparse.csr_matrix(np.eye(n_rows, 3, dtype=np.float32))
        sparse.save_npz(folder / f"Y.{part}.npz", targets)
        sparse.save_npz(
            folder / features / f"X.{part}.npz", sparse.csr_matrix(np.eye(n_rows, 5) * 2)
        )
    (folder / "output-items.txt").write_bytes(b"energy\nminerals\noceans\n")
    return folder


def documents(*rows):
    """Return JSON lines, compressed, of documents (title, content, labels)."""
    lines = []
    for number, (title, content, targets) in enumerate(rows):
        record = {"uid": f"D{number}", "title": title, "content": content}
        record = {key: value for key, value in record.items() if value is not None}
        record |= {"target_ind": targets, "target_rel": [1.0] * len(targets)}
        lines.append(json.dumps(record) + "\n")
    return gzip.compress("".join(lines).encode())


def label_features(folder):
    """LF-Amazon-131K.raw of the Extreme Classification Repository, with filter files."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = [("Tutu", "A skirt."), ("Shoes", ""), ("Hat", "Hat of felt.")]
    lines = [
        {"uid": f"L{n}", "title": title, "content": content}
        for n, (title, content) in enumerate(labels)
    ]
    (folder / "lbl.json.gz").write_bytes(
        gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    )
    train = documents(("Red Tutu", "For ballet.", [0, 2]), ("Black Shoes", "", [1]))
    (folder / "trn.json.gz").write_bytes(train)
    (folder / "tst.json.gz").write_bytes(documents(("Ballet", "Pink.", [2])))
    (folder / "filter_labels_train.txt").write_bytes(b"0 0\n")
    (folder / "filter_labels_test.txt").write_bytes(b"0 2\n")
    return folder


def raw_texts(folder, names=b"Caf\xc3\xa9\nToys\nGames\n", middle=".raw"):
    """Amazon-670K.raw of the Extreme Classification Repository: names of labels in Yf.txt, no
    lbl.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    train = documents(("Chess", "A board.", [2, 1]), (None, "Beans.", [0]), ("Ball", None, []))
    (folder / f"trn{middle}.json.gz").write_bytes(train)
    (folder / f"tst{middle}.json.gz").write_bytes(documents(("Go", "Stones.", [2])))
    (folder / "Yf.txt").write_bytes(names)
    return folder


def bag_of_words(folder, name="{}.txt"):
    """Amazon-670K.bow of the Extreme Classification Repository: a file a split, names of features
    and labels.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name.format("train")).write_bytes(b"3 4 3\n0,2 0:0.5 3:1\n 1:1\n1 2:2\n")
    (folder / name.format("test")).write_bytes(b"1 4 3\n2 0:1\n")
    (folder / "Xf.txt").write_bytes(b"wind\nsea\nsalt\nsun\n")
    (folder / "Y.txt").write_bytes(b"Energy\nMinerals\nOceans\n")
    return folder


def split_matrices(folder):
    """WikiSeeAlsoTitles-350K of the Extreme Classification Repository: features and labels in files
    of their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {"trn_X_Xf": b"2 3\n0:1\n2:0.5\n", "trn_X_Y": b"2 2\n0:1\n1:1\n"}
    files |= {"tst_X_Xf": b"1 3\n1:1\n", "tst_X_Y": b"1 2\n1:1\n", "lbl_X_Xf": b"2 3\n0:1\n1:1\n"}
    for stem, content in files.items():
        (folder / f"{stem}.txt").write_bytes(content)
    return folder
