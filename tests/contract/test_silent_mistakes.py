"""Mistakes that give a model or numbers all the same are spoken of: data in the wrong place, raw
scores.
"""

from __future__ import annotations

import json

import pytest
from few_documents import put

import longtail as lt
from longtail.errors import UsageError

WORDS = ["wind", "sea", "sun", "moon", "tree", "bird", "fish", "stone", "river", "cloud"]
COMMAS = (
    'text,labels\nwind turbines at sea,"wind, sea"\nsea birds,"sea, birds"\nfarms,"wind, farms"\n'
)


def documents(first, last):
    """Return documents with a text of their own each, and two labels of ten."""
    names = [WORDS[number % 10] for number in range(first, last)]
    return [
        {
            "id": f"b{number}",
            "text": f"{name} number{number}",
            "labels": [name, WORDS[(number // 10) % 10]],
        }
        for number, name in enumerate(names, first)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return put(tmp_path_factory.mktemp("data") / "data.jsonl", documents(0, 120))


@pytest.fixture(scope="module")
def fitted(data):
    return lt.Longtail(seed=1).fit(lt.read(data))


@pytest.fixture
def model(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def raw(tmp_path, train):
    """Return a model of four documents, which are too few for a calibration."""
    lt.Longtail().fit(lt.read(train)).save(tmp_path / "raw")
    return tmp_path / "raw"


class TestOverlap:
    def test_training_data_as_validation_data_is_refused(self, fails, data, tmp_path):
        output = fails(2, "-q", "train", data, "-o", tmp_path / "out", "--valid", data)
        assert "120 of the 120 documents are training documents by their text" in output
        assert "120 by their id, and both are read from one file" in output
        assert not (tmp_path / "out").exists()
        with pytest.raises(UsageError, match="valid=: 120 of the 120"):
            lt.Longtail().fit(lt.read(data), valid=lt.read(data))

    def test_some_training_documents_among_them_are_counted(self, data, tmp_path, caplog):
        valid = put(tmp_path / "valid.jsonl", documents(110, 150))
        lt.Longtail().fit(lt.read(data), valid=lt.read(valid))
        assert (
            "10 of the 40 documents are training documents by their text or features, 10 by their id"
            in caplog.text
        )

    def test_other_documents_are_taken_without_a_word(self, data, tmp_path, caplog):
        valid = put(tmp_path / "valid.jsonl", documents(120, 150))
        lt.Longtail().fit(lt.read(data), valid=lt.read(valid))
        assert "training documents" not in caplog.text

    def test_training_documents_as_test_data_are_noticed(self, run, model, data, tmp_path, caplog):
        done = run("-q", "evaluate", model, data, "--report", tmp_path / "report.html")
        output = "120 of the 120 documents (100.0%) are training documents of the model"
        assert output in done.out
        assert output in caplog.text
        assert output in (tmp_path / "report.html").read_text()
        assert (
            json.loads(run("evaluate", model, data, "--json").out)["evaluation"]["trained_on"]
            == 120
        )

    def test_new_documents_are_measured_without_a_word(self, run, model, tmp_path, caplog):
        test = put(tmp_path / "test.jsonl", documents(120, 150))
        done = run("-q", "evaluate", model, test)
        assert "training documents" not in done.out + caplog.text

    def test_an_ensemble_knows_the_documents_of_its_members(self, fitted, data, caplog):
        other = lt.Longtail(seed=2).fit(lt.read(data))
        both = lt.ensemble([fitted, other])
        assert both.evaluate(lt.read(data)).trained_on == 120
        assert "not calibrated" in caplog.text
        with pytest.raises(UsageError, match="120 of the 120 documents"):
            lt.ensemble([fitted, other], valid=lt.read(data))


class TestHeldOut:
    def test_numbers_of_documents_held_out_say_so(self, model):
        card = (model / "README.md").read_text()
        assert "held out of the training data, easier than new ones" in card
        assert lt.load(model).model.metrics.held_out

    def test_numbers_of_other_documents_do_not(self, data, tmp_path):
        valid = put(tmp_path / "valid.jsonl", documents(120, 150))
        lt.Longtail().fit(lt.read(data), valid=lt.read(valid)).save(tmp_path / "other")
        assert "held out of" not in (tmp_path / "other" / "README.md").read_text()


class TestLabelSeparators:
    def test_labels_with_commas_in_a_table_are_noticed(self, run, tmp_path, caplog):
        file = tmp_path / "books.csv"
        file.write_text(COMMAS)
        run("check", file)
        assert "3 of 3 cells of labels hold ','" in caplog.text
        assert "--label-separator ','" in caplog.text
        caplog.clear()
        assert (
            lt.read(file, label_separator=",").labels.ids[:]
            == lt.Labels.of(["wind", "sea", "birds", "farms"]).ids
        )
        assert caplog.text == ""

    def test_a_few_labels_with_a_comma_are_labels(self, tmp_path, caplog):
        file = tmp_path / "books.csv"
        file.write_text("text,labels\n" + "a,x;y\n" * 9 + 'b,"History, Ancient"\n')
        assert "History, Ancient" in lt.read(file).labels
        assert caplog.text == ""

    @pytest.mark.parametrize("command", ["check", "train", "convert"])
    def test_the_option_is_of_all_commands_that_read_documents(self, run, tmp_path, command):
        file = tmp_path / "books.csv"
        file.write_text(COMMAS)
        output = {
            "check": [],
            "train": ["-o", tmp_path / "out"],
            "convert": [tmp_path / "out.jsonl"],
        }[command]
        done = run("-q", command, file, *output, "--label-separator", ",")
        assert done.code == 0, done.err
        if command == "convert":
            assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["labels"] == [
                "wind",
                "sea",
            ]

    def test_columns_and_separator_of_a_table_can_be_named(self, run, fails, tmp_path):
        file = tmp_path / "books.csv"
        file.write_text("Abstract;Subjects;Text\nwind turbines;wind,sea;no\n")
        assert "--separator" in fails(3, "check", file)
        assert "--text-column and --labels-column" in fails(3, "check", file, "--separator", ";")
        names = ["--text-column", "abstract", "--labels-column", "Subjects"]
        done = run("convert", file, "-", "--separator", ";", "--label-separator", ",", *names)
        assert json.loads(done.out) == {"text": "wind turbines", "labels": ["wind", "sea"]}
        assert "expected one character" in fails(2, "check", file, "--separator", ";;")

    def test_options_of_tables_for_other_files_are_remarked(self, data, caplog):
        lt.read(data, label_separator=",")
        assert "is read as jsonl; without effect there: label_separator" in caplog.text


class TestThresholds:
    def test_training_says_that_it_made_no_calibration_and_why(self, train, caplog):
        lt.Longtail().fit(lt.read(train))
        assert (
            "no calibration, so scores are not probabilities: 4 documents are too few to hold out"
            in caplog.text
        )

    def test_a_threshold_of_raw_scores_is_warned_of_once(self, raw, caplog):
        caplog.clear()
        model = lt.load(raw)
        model.predict(["wind"])
        assert caplog.text == ""
        model.predict(["wind"], threshold=0.5)
        model.predict(["wind"], threshold=0.6)
        assert caplog.text.count("compared with raw scores") == 1
        assert "--valid, or valid=" in caplog.text

    def test_a_threshold_of_probabilities_is_not(self, fitted, caplog):
        fitted.predict(["wind"], threshold=0.5)
        assert caplog.text == ""


class TestReplacing:
    def test_a_model_is_replaced_on_demand_alone(self, fails, run, model, data):
        before = (model / "manifest.json").read_bytes()
        output = fails(2, "-q", "train", data, "-o", model, "--set", "seed=7")
        assert (
            f"{model}: holds a model already; give another folder, or replace it: --force" in output
        )
        assert (model / "manifest.json").read_bytes() == before
        assert run("-q", "train", data, "-o", model, "--set", "seed=7", "--force").code == 0
        assert (model / "manifest.json").read_bytes() != before

    def test_from_python_as_well(self, fitted, model):
        with pytest.raises(UsageError, match="force=True"):
            fitted.save(model)
        fitted.save(model, force=True)

    def test_of_an_ensemble_and_of_a_model_with_new_labels(self, fails, model, raw, tmp_path):
        lt.ensemble([model, raw]).save(tmp_path / "both")
        before = (tmp_path / "both" / "manifest.json").read_bytes()
        labels = tmp_path / "labels.tsv"
        labels.write_text("new\tNew\n")
        output = fails(2, "ensemble", model, raw, "-o", tmp_path / "both")
        assert "both: holds a model already" in output
        assert "both: holds a model already" in fails(
            2, "extend", model, labels, "-o", tmp_path / "both"
        )
        assert (tmp_path / "both" / "manifest.json").read_bytes() == before

    def test_nothing_to_resume_is_remarked(self, run, data, tmp_path, caplog):
        assert run("-q", "train", data, "-o", tmp_path / "new", "--resume").code == 0
        assert (
            "found no finished stage of an interrupted run to resume; training begins anew"
            in caplog.text
        )


class TestVocabularies:
    def test_a_label_file_of_other_labels_is_named_not_the_documents(self, fails, data, tmp_path):
        labels = tmp_path / "labels.tsv"
        labels.write_text(
            "id\tname\n" + "".join(f"http://example.org/c/{name}\t{name}\n" for name in WORDS)
        )
        output = fails(3, "train", data, "-o", tmp_path / "out", "--labels", labels)
        assert output.startswith(f"{labels}: no label of {data} ('wind', ")
        assert "is among its 10 ('http://example.org/c/wind'" in output
        assert "'wind' is the name of 'http://example.org/c/wind'" in output
        assert output.count("wind") < 10

    def test_one_unknown_label_is_that_of_its_document(self, fails, data, tmp_path):
        labels = tmp_path / "labels.tsv"
        labels.write_text(
            "id\tname\n" + "".join(f"{name}\t\n" for name in WORDS[1:]) + "http://x/w\twind\n"
        )
        output = fails(3, "check", data, "--labels", labels)
        assert "data.jsonl:1: unknown label 'wind' (the name of the label 'http://x/w')" in output

    def test_texts_of_labels_that_are_not_read_are_spoken_of(self, data, tmp_path, caplog):
        labels = put(
            tmp_path / "labels.jsonl", [{"id": name, "text": f"all of {name}"} for name in WORDS]
        )
        caplog.set_level("INFO", "longtail")
        documents = lt.read(data, labels=labels)
        lt.Longtail().fit(documents)
        output = "xr-linear does not read the texts of labels (10 have one); --gandalf (gandalf.use) trains on them"
        assert output in caplog.text
        assert "decaf, eclare, inceptionxml-lf" in caplog.text
        caplog.clear()
        lt.Longtail(gandalf={"use": True}).fit(documents)
        lt.Longtail().fit(lt.read(data))
        assert "texts of labels" not in caplog.text


class TestEmptyDocuments:
    def test_empty_texts_are_counted_once(self, model, caplog):
        trained = lt.load(model)
        trained.predict(["wind", "", "  \n"])
        trained.predict([""])
        assert "2 of the 3 documents have no text or features" in caplog.text
        assert caplog.text.count("no text or features") == 1
        caplog.clear()
        lt.load(model).predict(["wind"])
        assert caplog.text == ""


class TestOptions:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("train DATA -o OUT --epochs 3", "It is a setting: --set training.epochs=3"),
            ("train DATA -o OUT --set tree.branching 4", "--set tree.branching=4"),
            ("train -q DATA -o OUT", "It comes before the command: longtail -q train"),
            ("predict MODEL DATA --top 3", "The number of labels per document is -k: -k 3"),
            ("train DATA -o OUT --labls x", "Possible options"),
        ],
    )
    def test_the_option_that_was_meant_is_named(self, fails, data, tmp_path, words, expected):
        places = {"DATA": data, "OUT": tmp_path / "out", "MODEL": tmp_path}
        output = fails(2, *(places.get(word, word) for word in words.split()))
        assert expected in " ".join(output.replace("│", " ").split())

    def test_an_error_of_the_disk_names_the_folder_that_was_asked_for(self, fails, data):
        output = fails(1, "-q", "train", data, "-o", "/proc/x1")
        assert output.startswith("longtail: /proc/x1: ")

    def test_a_name_that_is_no_folder_is_refused_for_a_comparison(
        self, fails, model, data, tmp_path
    ):
        output = fails(2, "compare", model, data, "-o", tmp_path / "cmp.txt")
        assert "found .txt; expected a folder, or a file that ends in one of .png" in output
        assert not (tmp_path / "cmp.txt").exists()


class TestFiles:
    @pytest.mark.parametrize("name", ["array.json", "array.jsonl"])
    def test_a_list_over_several_lines_is_one_problem(self, fails, tmp_path, name):
        file = tmp_path / name
        file.write_text(json.dumps(documents(0, 3), indent=2))
        output = fails(3, "check", file)
        assert "jq -c '.[]' makes lines of a list" in output
        assert output.count("array") == 1

    def test_an_object_over_several_lines_is_one_problem(self, fails, tmp_path):
        file = tmp_path / "pretty.jsonl"
        file.write_text("\n".join(json.dumps(member, indent=2) for member in documents(0, 3)))
        output = fails(3, "check", file)
        assert (
            "1: a JSON object over several lines; expected one JSON object a line; jq -c ."
            in output
        )
        assert output.count("pretty") == 1

    def test_a_text_file_is_sent_to_a_folder(self, fails, model, tmp_path):
        (tmp_path / "note.txt").write_text("wind at sea")
        assert "plain texts are read from a folder" in fails(
            2, "predict", model, tmp_path / "note.txt"
        )

    def test_latin_1_is_told_how_to_convert(self, fails, tmp_path):
        file = tmp_path / "latin.jsonl"
        file.write_bytes('{"text": "Küste", "labels": ["sea"]}\n'.encode("latin-1"))
        output = fails(3, "check", file)
        assert r"a byte that is not UTF-8 ('\xfc'); expected UTF-8; " in output
        assert "iconv -f LATIN1 -t UTF-8" in output


class TestFindings:
    def test_training_repeats_what_check_warns_of(self, tmp_path, caplog):
        same = [
            {"id": "b0", "text": " ", "labels": ["sea"]},
            {"id": "b0", "text": "x", "labels": []},
        ]
        file = put(tmp_path / "data.jsonl", [*documents(0, 120), *same])
        lt.Longtail().fit(lt.read(file))
        assert "1 document with empty text: b0" in caplog.text
        assert "1 document without a label: b0" in caplog.text
        assert "1 document id that stands more than once: b0" in caplog.text

    def test_counts_have_the_number_of_their_nouns(self, run, tmp_path):
        file = put(tmp_path / "data.jsonl", [{"id": "b1", "text": "x", "labels": []}])
        assert "error    no document has a label: b1\n" in run("check", file).out


def test_members_of_other_labels_are_remarked(fitted, raw, caplog):
    lt.ensemble([fitted, lt.load(raw)])
    assert "model 2: has 4 labels, 3 of them among the 10 of model 1" in caplog.text


def test_names_of_columns_are_not_read_as_texts(fitted):
    class Table(dict):
        columns = ("text", "labels")

    class Frame:
        columns = ("text", "labels")

        def __iter__(self):
            return iter(self.columns)

    for table in ({"text": ["wind"]}, Table(text=["wind"]), Frame()):
        with pytest.raises(UsageError, match=r"found a table, .*expected a list of texts"):
            fitted.predict(table)


def test_letters_of_a_label_are_not_excluded(fitted):
    with pytest.raises(UsageError, match=r"exclude: found 'wind' .*expected a list of labels"):
        fitted.predict(["wind"], exclude=["wind"])
