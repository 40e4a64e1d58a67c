"""Every published layout is read as its authors ship it, and the log says what was read."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
from scipy import sparse

import longtail as lt
import published_layouts as made
from longtail.data.formats import sniff
from longtail.data.labels import Label
from longtail.data.reading import read, read_features, write
from longtail.errors import DataError, UsageError


@pytest.fixture
def said(caplog):
    """What the log says while data are read."""
    caplog.set_level(logging.INFO, "longtail")
    return lambda: caplog.messages


def dense(dataset):
    return dataset.features.toarray().tolist()


def labels_of(dataset):
    return [dataset.labels_of(row) for row in range(len(dataset))]


class TestAttentionXml:
    def test_texts_labels_and_features_are_read_together(self, tmp_path, said):
        found = read(made.attentionxml(tmp_path / "Amazon-670K"))
        assert list(found.texts) == [
            "Red Tutu\nA skirt for ballet.",
            "Black Shoes",
            "Blue Hat\nFelt.",
        ]
        assert labels_of(found) == [["B00A", "B00C"], ["B00B"], []]
        assert dense(found) == [[0.5, 0, 0, 1, 0], [0, 0.25, 0, 0, 2], [0, 0, 1, 0, 0]]
        assert said() == [
            "Amazon-670K: read as attentionxml: texts, labels, features of train_v1.txt: 5 columns, numbers from 0 to 4"
        ]

    def test_the_test_part_is_as_wide_as_its_largest_column_until_a_model_says_more(self, tmp_path):
        test = read(made.attentionxml(tmp_path), split="test")
        assert test.features.shape == (2, 3)
        wider = test.widened(5)
        assert wider.features.shape == (2, 5)
        assert wider.features.toarray()[:, :3].tolist() == dense(test)
        assert wider.widened(7).features.shape == (2, 5)  # known now
        assert test.take(np.array([1])).widened(5).features.shape == (1, 5)

    def test_a_wider_test_part_is_refused_by_name(self, tmp_path):
        folder = made.attentionxml(tmp_path, test=(b"2 0:1\n", b"0 9:1\n"))
        with pytest.raises(DataError) as error:
            read(folder, split="test").widened(5)
        expected = "feature 9; expected a number below 5, the columns of the model's training data"
        assert str(error.value).splitlines()[0] == f"{folder / 'test.txt'}: {expected}"

    def test_numbers_from_1_leave_column_0_empty_in_both_parts(self, tmp_path, said):
        folder = made.attentionxml(
            tmp_path / "a", train=(b"0 1:1 3:1\n", b"1 2:1\n", b" 1:1\n"), test=(b" 2:1\n",) * 2
        )
        train, test = read(folder), read(folder, split="test")
        assert not train.features.toarray()[:, 0].any()
        assert dense(train)[1] == [0, 0, 1, 0]
        assert dense(test)[0] == [0, 0, 1]
        assert "numbers from 1 to 3" in said()[0]

    def test_a_header_is_taken_too(self, tmp_path):
        folder = made.attentionxml(tmp_path)
        (folder / "train_v1.txt").rename(folder / "train.txt")  # as Wiki-500K has it
        (folder / "train.txt").write_bytes(b"3 9 4\n0 0:1\n1 1:1\n 2:1\n")
        found = read(folder)
        assert (found.features.shape, found.headerless_file) == ((3, 9), None)

    def test_features_can_be_left_out(self, tmp_path, said):
        folder = made.attentionxml(tmp_path / "set")
        assert read(folder, features=False).features is None
        assert said() == ["set: read as attentionxml: texts, labels"]

    def test_features_given_stand_in_for_those_of_the_folder(self, tmp_path):
        folder = made.attentionxml(tmp_path / "set")
        sparse.save_npz(tmp_path / "x.npz", sparse.csr_array(np.eye(3)))
        assert read(folder, features=tmp_path / "x.npz").features.shape == (3, 3)
        np.save(tmp_path / "x.npy", np.ones((3, 2), np.float32))
        both = read(folder, features=tmp_path / "x.npy")  # vectors stand beside features
        assert (both.features.shape, both.dense.shape) == ((3, 5), (3, 2))

    def test_a_file_of_that_name_that_is_something_else_is_not_read(self, tmp_path, said):
        folder = made.attentionxml(tmp_path)
        (folder / "train_v1.txt").write_bytes(b"some words, 3:15 in the afternoon\n")
        assert read(folder).features is None
        assert "train_v1.txt: not lines of features" in said()[0]

    def test_rows_that_disagree_are_refused(self, tmp_path):
        folder = made.attentionxml(tmp_path, train=(b"0 0:1\n", b"1 1:1\n"))
        with pytest.raises(
            DataError,
            match=r"train_v1.txt: 2 rows of features, but 3 lines in train_raw_texts.txt; exp",
        ):
            read(folder)
        with pytest.raises(
            DataError,
            match=r"train_v1.txt: 4 rows of features, but 3 lines in train_raw_texts.txt; exp",
        ):
            read(made.attentionxml(tmp_path, train=(b"0 0:1\n",) * 4))
        assert len(read(folder, split="test")) == 2

    @pytest.mark.parametrize("end", [b"\n", b" \n", b"", b"\n\n\n", b"2\n"])
    def test_a_last_document_without_features_is_a_row(self, tmp_path, end):
        if not end:
            end = b"7\n"
        found = read(made.attentionxml(tmp_path, train=(b"0 0:1\n", b"1 1:1\n", end)))
        assert dense(found) == [[1, 0], [0, 1], [0, 0]]

    def test_what_is_bad_in_one_file_is_left_out_of_all(self, tmp_path):
        folder = made.attentionxml(
            tmp_path, train=(b"0 0:1\n", b"1 1:1\n", b"0 2:1\n", b"0 3:x\n", b"0 4:1\n")
        )
        (folder / "train_raw_texts.txt").write_bytes(b"a\n\xff\nc\nd\ne\n")
        (folder / "train_labels.txt").write_bytes(b"x\ny\nz\nx\ny\n")
        with pytest.raises(DataError) as error:
            read(folder)
        assert [(p.file.rsplit("/")[-1], p.line) for p in error.value.problems] == [
            ("train_raw_texts.txt", 2),
            ("train_v1.txt", 4),
        ]
        found = read(folder, skip_bad=2)
        assert list(found.texts) == ["a", "c", "e"]
        assert labels_of(found) == [["x"], ["z"], ["y"]]
        assert [row.nonzero()[0].tolist() for row in found.features.toarray()] == [[0], [2], [4]]

    def test_an_unknown_label_and_a_bad_last_line_keep_rows_in_step(self, tmp_path):
        folder = made.attentionxml(tmp_path)
        (folder / "train_raw_texts.txt").write_bytes(b"a\nb\n\xff\n")
        found = read(
            folder, labels=lt.read(folder, features=False, split="test").labels, skip_bad=2
        )
        assert (list(found.texts), dense(found)) == (["a"], [[0.5, 0, 0, 1, 0]])

    def test_written_and_read_again(self, tmp_path):
        before = read(made.attentionxml(tmp_path / "a"))
        write(before, tmp_path / "b", format="attentionxml")
        after = read(tmp_path / "b")
        assert after.texts == before.texts
        assert dense(after) == dense(before)


class TestHeaderless:
    def test_alone_it_is_a_dataset(self, tmp_path):
        file = made.attentionxml(tmp_path) / "train_v1.txt"
        assert sniff(file).name == "bow"
        found = read(file)
        assert labels_of(found) == [["0", "2"], ["1"], []]
        assert found.features.shape == (3, 5)
        assert found.headerless_file == str(file)

    def test_features_in_place_of_text(self, tmp_path):
        folder = made.attentionxml(tmp_path)
        (tmp_path / "a.jsonl").write_text('{"id": "a", "labels": ["x"]}\n' * 3)
        found = read(tmp_path / "a.jsonl", features=folder / "train_v1.txt")
        assert found.features.shape == (3, 5)
        assert found.widened(8).features.shape == (3, 8)

    def test_targets_of_features_may_be_any_numbers(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"-1 0:1\n+1.5,3e2 1:1 # why\n99999999999 2:1\n")
        assert read_features(tmp_path / "a.txt").toarray().tolist() == np.eye(3).tolist()
        with pytest.raises(DataError, match=r"a.txt:1: label '-1'; expected a whole number from 0"):
            read(tmp_path / "a.txt")

    def test_blank_lines_at_the_end_are_rows_where_documents_have_them(self, tmp_path):
        (tmp_path / "a.jsonl").write_text('{"labels": ["x"]}\n' * 3)
        (tmp_path / "a.txt").write_bytes(b"1 0:1\n0 1:1\n\n\n")
        assert read_features(tmp_path / "a.txt").shape == (2, 2)
        assert read(tmp_path / "a.jsonl", features=tmp_path / "a.txt").features.shape == (3, 2)

    def test_the_lines_of_problems_count_comments(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(b"# written by hand\n1 0:1\n# here\n1 0:nan\n")
        with pytest.raises(DataError, match=r"a.txt:4: value 'nan'"):
            read(tmp_path / "a.txt")

    def test_it_reads_what_a_slow_parser_reads(self, tmp_path):
        rng = np.random.default_rng(0)
        matrix = sparse.random(3000, 500, 0.05, format="csr", random_state=rng, dtype=np.float32)
        lines = []
        for row in range(3000):
            own = slice(*matrix.indptr[row : row + 2])
            order = rng.permutation(matrix.indptr[row + 1] - matrix.indptr[row])
            pairs = zip(matrix.indices[own][order], matrix.data[own][order], strict=True)
            comment = " # odd" if row % 7 == 0 else ""
            qid = "qid:3 " if row % 11 == 0 else ""
            lines.append(
                f"{row % 5},{5 + row % 3} {qid}{' '.join(f'{c}:{v!r}' for c, v in pairs)}{comment}\n"
            )
        (tmp_path / "a.txt").write_text("".join(lines).replace("np.float32(", "").replace(")", ""))
        found = read(tmp_path / "a.txt")
        assert (abs(found.features - matrix[:, : found.features.shape[1]])).max() == 0
        assert labels_of(found) == [sorted({str(row % 5), str(5 + row % 3)}) for row in range(3000)]

    @pytest.mark.parametrize(
        "start", [b"10:30 the train leaves\n", b"1 2 3 4\n", b"1,2\n3\n", b"3 a:1\n", b":1\n"]
    )
    def test_other_texts_are_no_svmlight(self, tmp_path, start):
        (tmp_path / "a.txt").write_bytes(start)
        with pytest.raises(UsageError, match="unknown format"):
            sniff(tmp_path / "a.txt")

    def test_a_long_number_is_told_at_once(self, tmp_path):
        (tmp_path / "a.txt").write_bytes(
            b"1" * 200_000 + b"x\n"
        )  # would take minutes with an expression that backtracks
        with pytest.raises(UsageError, match="unknown format"):
            sniff(tmp_path / "a.txt")

    def test_a_line_longer_than_what_is_looked_at(self, tmp_path):
        pairs = " ".join(f"{column}:0.123456" for column in range(60_000))
        (tmp_path / "a.txt").write_text(f"1 {pairs}\n")
        assert read(tmp_path / "a.txt").features.shape == (1, 60_000)

    def test_an_overlong_line_leaves_rows_in_step(self, tmp_path, monkeypatch):
        monkeypatch.setattr("longtail.data.lines.MAX_LINE", 1_000_000)
        long = b"0 " + b" ".join(b"%d:1" % column for column in range(300_000)) + b"\n"
        (tmp_path / "a.txt").write_bytes(b"0 0:1\n" + long + b"1 1:1\n")
        assert labels_of(read(tmp_path / "a.txt", skip_bad=1)) == [["0"], ["1"]]
        (tmp_path / "b.txt").write_bytes(b"0 0:1\n" + long)
        assert len(read(tmp_path / "b.txt", skip_bad=1)) == 1

    def test_writing_under_a_header_says_that_columns_may_lack(self, tmp_path, said):
        test = read(made.attentionxml(tmp_path), split="test")
        write(test, tmp_path / "out.txt", format="bow")
        assert any(
            "written as 3 columns, the largest that it holds" in message for message in said()
        )


class TestPrediction:
    """What a model makes of features whose files do not say how wide they are."""

    @pytest.fixture
    def folder(self, tmp_path):
        rng = np.random.default_rng(0)
        lines = {"train": 80, "test": 10}
        for part, count in lines.items():
            kinds = np.arange(count) % 4
            texts = "".join(f"word{kind}\n" for kind in kinds)
            labels = "".join(f"L{kind}\n" for kind in kinds)
            width = 3 if part == "test" else 12
            noise = rng.integers(4, 4 + width - 2, count)
            features = "".join(
                f"0 {kind}:1 {other}:0.1\n" for kind, other in zip(kinds, noise, strict=True)
            )
            (tmp_path / f"{part}_raw_texts.txt").write_text(texts)
            (tmp_path / f"{part}_labels.txt").write_text(labels)
            (tmp_path / ("train_v1.txt" if part == "train" else "test.txt")).write_text(features)
        return tmp_path

    def test_a_narrower_test_part_is_predicted_as_with_all_columns(self, folder):
        train, test = read(folder), read(folder, split="test")
        assert test.features.shape[1] < train.features.shape[1]
        model = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(train)
        found = model.predict(test, 1)
        padded = sparse.csr_array((10, train.features.shape[1]), dtype=np.float32).tolil()
        padded[:, : test.features.shape[1]] = test.features.toarray()
        whole = model.predict(test.with_features(sparse.csr_array(padded)), 1)
        assert [found[row] for row in range(10)] == [whole[row] for row in range(10)]
        assert model.evaluate(test).metrics["P@1"] == 1

    def test_a_wider_one_names_the_file(self, folder):
        model = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(read(folder))
        (folder / "test.txt").write_text("0 99:1\n" * 10)
        with pytest.raises(DataError, match=r"test.txt: feature 99; expected a number below "):
            model.predict(read(folder, split="test"))

    def test_without_its_features_prediction_asks_for_them(self, folder):
        model = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(read(folder))
        with pytest.raises(
            DataError, match=r"0 columns of sparse features; .* give --features as then"
        ):
            model.predict(read(folder, split="test", features=False))

    def test_a_model_of_texts_passes_over_features(self, folder):
        model = lt.Longtail("xr-linear", calibration={"method": "none"}).fit(
            read(folder, features=False)
        )
        with_features = model.predict(read(folder, split="test"), 1)
        without = model.predict(read(folder, split="test", features=False), 1)
        assert [with_features[row] for row in range(10)] == [without[row] for row in range(10)]


class TestPecos:
    @pytest.mark.parametrize("name", ["", "X.trn.txt", "Y.trn.npz"])
    def test_features_of_the_folder_below_are_found(self, tmp_path, said, name):
        found = read(made.pecos(tmp_path / "eurlex-4k") / name)
        assert list(found.texts) == ["wind power", "salt", "sea"]
        assert labels_of(found) == [["energy"], ["minerals"], ["oceans"]]
        assert found.features.shape == (3, 5)
        assert found.headerless_file is None
        assert said()[0].endswith(
            "read as pecos: texts, labels, features of tfidf-attnxml/X.trn.npz: 5 columns"
        )

    def test_of_the_test_part_as_well(self, tmp_path):
        assert read(made.pecos(tmp_path), split="test").features.shape == (1, 5)

    def test_its_own_features_go_first(self, tmp_path, said):
        folder = made.pecos(tmp_path / "set")
        sparse.save_npz(folder / "X.trn.npz", sparse.csr_array(np.eye(3)))
        assert read(folder).features.shape == (3, 3)
        assert (
            "tfidf-attnxml/X.trn.npz is there too and was not read, features of X.trn.npz: 3 columns"
            in said()[0]
        )

    def test_features_can_be_left_out(self, tmp_path):
        folder = made.pecos(tmp_path)
        assert read(folder, features=False).features is None
        (folder / "X.trn.txt").unlink()
        assert read(folder).texts is None
        with pytest.raises(UsageError, match=r"no file X.trn.txt"):
            read(folder, features=False)

    def test_rows_that_disagree_are_refused(self, tmp_path):
        folder = made.pecos(tmp_path)
        sparse.save_npz(folder / "tfidf-attnxml" / "X.trn.npz", sparse.csr_array(np.eye(2)))
        with pytest.raises(
            DataError, match=r"tfidf-attnxml/X.trn.npz: 2 rows, but 3 documents in X.trn.txt"
        ):
            read(folder)


class TestLabelFeatures:
    def test_title_and_content(self, tmp_path):
        found = read(made.label_features(tmp_path / "LF-Amazon-131K"))
        assert list(found.texts) == ["Red Tutu\nFor ballet.", "Black Shoes"]
        assert list(found.labels) == [
            Label("L0", "Tutu", "A skirt."),
            Label("L1", "Shoes"),
            Label("L2", "Hat", "Hat of felt."),
        ]
        assert found.labels.described() == ["Tutu A skirt.", "Shoes", "Hat of felt."]

    @pytest.mark.parametrize(
        "name",
        [
            "LF-AmazonTitles-131K",
            "lf-wikiseealsotitles-320k",
            "LF-WikiTitles-500K.raw",
            "LF-AmazonTitles-1.3M/raw_text",
        ],
    )
    def test_a_folder_of_titles(self, tmp_path, said, name):
        folder = made.label_features(tmp_path / name)
        found = read(folder)
        assert list(found.texts) == ["Red Tutu", "Black Shoes"]
        assert list(found.labels) == [Label("L0", "Tutu"), Label("L1", "Shoes"), Label("L2", "Hat")]
        assert "titles only, as the folder is called" in said()[0]
        assert list(read(folder / "tst.json.gz", split="test").texts) == ["Ballet"]
        assert read(folder, fields="title,content").texts[0] == "Red Tutu\nFor ballet."

    @pytest.mark.parametrize(
        "name",
        ["LF-Amazon-131K", "titles", "my-titles-2020x", "LF-AmazonTitles-131K/LF-Amazon-131K.raw"],
    )
    def test_other_folders_have_both(self, tmp_path, name):
        assert read(made.label_features(tmp_path / name)).texts[0] == "Red Tutu\nFor ballet."

    def test_a_relative_path_has_the_name_of_its_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(made.label_features(tmp_path / "LF-AmazonTitles-131K"))
        assert list(read(".").texts) == ["Red Tutu", "Black Shoes"]

    @pytest.mark.parametrize("fields", ["content", ["content"], " content "])
    def test_content_alone(self, tmp_path, fields):
        found = read(made.label_features(tmp_path), fields=fields)
        assert list(found.texts) == ["For ballet.", ""]
        assert found.labels.described() == ["A skirt.", "L1", "Hat of felt."]

    def test_title_alone(self, tmp_path):
        folder = made.label_features(tmp_path)
        (folder / "trn.json.gz").write_bytes(
            made.documents((None, "Red.", [0]), ("Blue", None, [1]))
        )
        found = read(folder, fields="title")
        assert list(found.texts) == ["", "Blue"]  # a row stays a row: filter files count them
        assert found.labels.described() == ["Tutu", "Shoes", "Hat"]

    def test_fields_in_any_order_are_the_same(self, tmp_path):
        folder = made.label_features(tmp_path)
        assert (
            read(folder, fields="content,title").texts
            == read(folder, fields=["title", "content"]).texts
        )

    @pytest.mark.parametrize(
        ("fields", "said"),
        [("titel", "did you mean 'title'"), ("", "unknown field"), ([], "no field")],
    )
    def test_fields_that_do_not_exist(self, tmp_path, fields, said):
        with pytest.raises(UsageError, match=said):
            read(made.label_features(tmp_path), fields=fields)

    def test_other_formats_have_no_fields(self, tmp_path):
        with pytest.raises(
            UsageError,
            match=r"fields are chosen of label-feature sets \(lf\).*is read as attentionxml",
        ):
            read(made.attentionxml(tmp_path), fields="title")


class TestRawTexts:
    @pytest.mark.parametrize("middle", [".raw", ""])
    def test_labels_are_the_lines_of_yf(self, tmp_path, said, middle):
        folder = made.raw_texts(tmp_path / "Amazon-670K.raw", middle=middle)
        found = read(folder)
        assert list(found.texts) == ["Chess\nA board.", "Beans.", "Ball"]
        assert labels_of(found) == [["1", "2"], ["0"], []]
        assert list(found.labels) == [Label("0", "Café"), Label("1", "Toys"), Label("2", "Games")]
        assert list(found.ids) == ["D0", "D1", "D2"]
        assert (
            "names of 3 labels in Yf.txt, which are called by the numbers of its lines" in said()[0]
        )
        assert labels_of(read(folder, split="test")) == [["2"]]
        assert len(read(folder / f"trn{middle}.json.gz")) == 3

    def test_names_in_latin_1(self, tmp_path, said):
        found = read(made.raw_texts(tmp_path, names=b"Caf\xe9\nToys\nGames\n\n"))
        assert list(found.labels.names) == ["Café", "Toys", "Games"]
        assert "Yf.txt: not UTF-8; read as ISO 8859-1" in said()[0]

    def test_numbers_before_the_names(self, tmp_path):
        assert list(
            read(made.raw_texts(tmp_path, names=b"0->Salt\n1->Sea\n2->A->B\n")).labels.names
        ) == [
            "Salt",
            "Sea",
            "A->B",
        ]
        assert list(read(made.raw_texts(tmp_path, names=b"0->Salt\nSea\n2->B\n")).labels.names) == [
            "0->Salt",
            "Sea",
            "2->B",
        ]

    def test_a_label_beyond_the_file(self, tmp_path):
        with pytest.raises(
            DataError,
            match=r"trn.raw.json.gz:1: label number 2 in 'target_ind'; expected a number below 2",
        ):
            read(made.raw_texts(tmp_path, names=b"a\nb\n"))

    def test_lbl_json_goes_first(self, tmp_path):
        made.raw_texts(tmp_path, middle="")
        found = read(made.label_features(tmp_path))
        assert list(found.labels.ids) == ["L0", "L1", "L2"]


class TestBagOfWords:
    @pytest.mark.parametrize("name", ["{}.txt", "eurlex_{}.txt", "WikipediaLarge-500K_{}.txt"])
    def test_a_folder_with_a_file_a_split(self, tmp_path, said, name):
        folder = made.bag_of_words(tmp_path / "Amazon-670K.bow", name)
        found = read(folder)
        assert sniff(folder).name == "bow"
        assert labels_of(found) == [["0", "2"], [], ["1"]]
        assert list(found.labels.names) == ["Energy", "Minerals", "Oceans"]
        assert found.features.shape == (3, 4)
        assert (
            f"read as bow: labels, features: 4 columns, file {name.format('train')}, label names of Y.txt"
            in said()[0]
        )
        assert labels_of(read(folder, split="test")) == [["2"]]

    def test_names_of_another_number_are_not_taken(self, tmp_path, said):
        folder = made.bag_of_words(tmp_path)
        (folder / "Y.txt").write_bytes(b"one\n")
        assert read(folder).labels.names is None
        assert "Y.txt not used: 1 lines for 3 labels" in said()[0]

    def test_a_split_that_is_not_there_or_there_twice(self, tmp_path):
        folder = made.bag_of_words(tmp_path)
        (folder / "test.txt").unlink()
        with pytest.raises(
            UsageError, match=r"no file test.txt or NAME_test.txt of features and labels"
        ):
            read(folder, split="test")
        made.bag_of_words(folder, "eurlex_{}.txt")
        with pytest.raises(
            UsageError, match=r"found eurlex_train.txt and train.txt; give one of the files"
        ):
            read(folder)

    def test_documents_of_annif_may_have_such_names(self, tmp_path):
        (tmp_path / "train.txt").write_text("The train leaves at 10:30.")
        (tmp_path / "train.key").write_text("railways\n")
        assert sniff(tmp_path).name == "annif-folder"
        assert list(read(tmp_path).texts) == ["The train leaves at 10:30."]

    @pytest.mark.parametrize("make", [made.bag_of_words, made.split_matrices])
    def test_features_cannot_be_left_out(self, tmp_path, make):
        with pytest.raises(UsageError, match="holds features and no texts"):
            read(make(tmp_path), features=False)


ORDER = [
    (made.label_features, "lf"),
    (made.attentionxml, "attentionxml"),
    (made.pecos, "pecos"),
    (made.split_matrices, "xmc-split"),
]


class TestSeveralLayouts:
    @pytest.mark.parametrize("first", range(4))
    @pytest.mark.parametrize("second", range(4))
    def test_texts_go_before_features(self, tmp_path, said, first, second):
        for make, _ in (ORDER[first], ORDER[second]):
            make(tmp_path)
        wanted, other = (ORDER[at][1] for at in sorted((first, second)))
        assert sniff(tmp_path).name == wanted
        read(tmp_path)
        assert f"read as {wanted}" in said()[0]
        others = [message for message in said() if "not read; choose with --format" in message]
        assert len(others) == (first != second)
        assert all(f"files of {other} are there too" in message for message in others)
        assert len(read(tmp_path, format=other)) in (2, 3)

    def test_json_lines_made_of_a_split_set_go_first(self, tmp_path):
        made.split_matrices(tmp_path)
        (tmp_path / "train.jsonl").write_text(json.dumps({"text": "a", "labels": ["x"]}) + "\n")
        assert sniff(tmp_path).name == "jsonl"
