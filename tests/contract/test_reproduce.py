"""`longtail reproduce` on small folders of every published layout, with encoders made for the test."""

from __future__ import annotations

import json
import logging
import shutil

import numpy as np
import pytest

import longtail as lt
from longtail.cli.study_commands import _in_words
from longtail.data.npz import write_csr_npz
from longtail.reproduction import experiments as experiments_module
from longtail.reproduction import running
from longtail.reproduction.experiments import Need, parse_experiments
from longtail.reproduction.published import published_dataset, read_documents

N_TRAIN = 160
N_TEST = 60

# small experiments on each layout, without presets, so that these tests are about reproducing alone
EXPERIMENTS = """
[members]
two-seeds = [{ name = "seed-0", seed = 0 }, { name = "seed-1", seed = 1 }]
nine = [{ name = "first" }, { name = "second", missing = "label clusters by magic" }]
[published]
xr-linear = [
    { table = "xr-transformer-2", system = "XR-Transformer" },
    { table = "xr-transformer-9", system = "XR-Linear", setting = "cost-sensitive" },
]
dismec = [{ table = "xr-transformer-2", system = "DiSMEC" }]
[[experiments]]
method = "xr-linear"
preset = ""
datasets = ["wiki10-31k", "lf-amazontitles-131k"]
members = "two-seeds"
fusion = "rank"
labels = 20
published = "xr-linear"
[[experiments]]
method = "dismec"
preset = ""
datasets = ["eurlex-4k", "wiki10-31k", "lf-amazontitles-131k"]
published = "dismec"
[[experiments]]
method = "x-transformer"
preset = ""
datasets = ["eurlex-4k"]
members = "nine"
"""
RAW = ["--set", "calibration.method=none", "-j", "1"]


@pytest.fixture
def small(monkeypatch):
    made = parse_experiments(EXPERIMENTS)
    monkeypatch.setattr(experiments_module, "experiments", lambda: made)


@pytest.fixture(scope="module")
def parts():
    train, test = lt.sample()
    return train.take(np.arange(N_TRAIN)), test.take(np.arange(N_TEST))


@pytest.fixture(scope="module")
def features(parts):
    """Return rows of counts of words for train and test, as the authors' tf-idf files are: lengths
    are not 1.
    """
    words = sorted(
        {word for text in parts[0].texts for word in text.lower().split()}
    )  # as authors do: of train alone
    columns = {word: column for column, word in enumerate(words)}
    matrices = []
    for part in parts:
        matrix = np.zeros((len(part), len(words)), np.float32)
        for row, text in enumerate(part.texts):
            for word in text.lower().split():
                if word in columns:
                    matrix[row, columns[word]] += 1
        matrices.append(matrix)
    return matrices


@pytest.fixture(scope="module")
def attentionxml(tmp_path_factory, parts, features):
    """Return a folder as AttentionXML's authors ship it: texts, labels, and tf-idf as svmlight
    without a header.
    """
    folder = tmp_path_factory.mktemp("data") / "Wiki10-31K"
    for part, split, matrix, name in zip(
        parts, ("train", "test"), features, ("train_v1", "test"), strict=True
    ):
        lt.write(part, folder, format="attentionxml", split=split)
        lines = []
        for row, values in enumerate(matrix):
            labels = ",".join(map(str, part.label_matrix[[row]].indices))
            lines.append(
                " ".join(
                    [labels, *(f"{column}:{values[column]:g}" for column in np.flatnonzero(values))]
                )
            )
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def pecos(tmp_path_factory, parts, features):
    """Return a folder of PECOS' archive: texts, label matrices, and tf-idf in a folder of its own."""
    from scipy import sparse

    folder = tmp_path_factory.mktemp("data") / "eurlex-4k"
    for part, split, matrix, name in zip(
        parts, ("train", "test"), features, ("trn", "tst"), strict=True
    ):
        lt.write(part, folder, format="pecos", split=split)
        (folder / "tfidf-attnxml").mkdir(exist_ok=True)
        write_csr_npz(sparse.csr_array(matrix), folder / "tfidf-attnxml" / f"X.{name}.npz")
    return folder


@pytest.fixture(scope="module")
def titles(tmp_path_factory, parts):
    """Return a folder of a label-feature set of titles, with a filter file."""
    folder = tmp_path_factory.mktemp("data") / "LF-AmazonTitles-131K"
    for part, split in zip(parts, ("train", "test"), strict=True):
        lt.write(part, folder, format="lf", split=split)
    test = parts[1].label_matrix
    pairs = [
        (row, test.indices[test.indptr[row]])
        for row in range(0, N_TEST, 2)
        if test.indptr[row + 1] > test.indptr[row]
    ]
    (folder / "filter_labels_test.txt").write_text(
        "".join(f"{row} {label}\n" for row, label in pairs)
    )
    return folder


@pytest.fixture(scope="module")
def raw_texts(tmp_path_factory, parts):
    """Return a folder of raw texts with the names of labels in ``Yf.txt``, and no ``lbl.json``."""
    folder = tmp_path_factory.mktemp("data") / "Amazon-3M.raw"
    for part, split in zip(parts, ("train", "test"), strict=True):
        lt.write(part, folder, format="lf", split=split)
    for file in folder.glob("lbl.json*"):
        file.unlink()
    names = parts[0].labels.names or parts[0].labels.ids
    (folder / "Yf.txt").write_text("".join(f"{name}\n" for name in names))
    return folder


def svmlight_lines(matrix):
    """Yield the columns and values of each row as svmlight writes them."""
    for values in matrix:
        yield " ".join(f"{column}:{values[column]:g}" for column in np.flatnonzero(values))


@pytest.fixture(scope="module")
def bag_of_words(tmp_path_factory, parts, features):
    """Return a folder of the repository's BoW format, one file per split."""
    folder = tmp_path_factory.mktemp("data") / "Wiki10-31K.bow"
    folder.mkdir()
    for part, split, matrix in zip(parts, ("train", "test"), features, strict=True):
        lines = [f"{len(part)} {matrix.shape[1]} {part.n_labels}"]
        for row, values in enumerate(svmlight_lines(matrix)):
            labels = ",".join(map(str, part.label_matrix[[row]].indices))
            lines.append(f"{labels} {values}")
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def split_matrices(tmp_path_factory, parts, features):
    """Return a folder of the repository's BoW format, features and labels in files of their own."""
    folder = tmp_path_factory.mktemp("data") / "WikiSeeAlsoTitles-350K"
    folder.mkdir()
    for part, split, matrix in zip(parts, ("trn", "tst"), features, strict=True):
        targets = part.label_matrix.toarray()
        for name, rows in (("X_Xf", matrix), ("X_Y", targets)):
            header = f"{len(rows)} {rows.shape[1]}"
            lines = "\n".join([header, *svmlight_lines(rows)])
            (folder / f"{split}_{name}.txt").write_text(lines + "\n")
    return folder


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "longtail")
    return lambda: caplog.text


def quiet(run, *arguments):
    """Run a command that goes well, and return its standard output; messages of training are on
    standard error.
    """
    done = run(*arguments)
    assert done.code == 0, done.err
    return done.out


def metrics_of(result, name):
    return next(measure["metrics"] for measure in result["measures"] if measure["name"] == name)


@pytest.mark.usefixtures("small")
def test_the_two_members_are_trained_and_joined(run, attentionxml, tmp_path):
    out = tmp_path / "out"
    shown = quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, *RAW)
    result = json.loads((out / "result.json").read_bytes())
    assert (out / "result.txt").read_text("utf-8") == shown
    assert [measure["name"] for measure in result["measures"]] == ["seed-0", "seed-1", "ensemble"]
    assert result["documents"] == {
        "train": N_TRAIN,
        "test": N_TEST,
        "labels": result["documents"]["labels"],
    }
    assert result["propensity"] == [0.55, 1.5]
    compared = {(member["table"], member["metric"]): member for member in result["comparisons"]}
    of_ensemble = compared["xr-transformer-2", "P@1"]
    assert (of_ensemble["published"], of_ensemble["of"]) == (88.69, "ensemble")
    assert of_ensemble["measured"] == metrics_of(result, "ensemble")["P@1"]
    assert of_ensemble["difference"] == pytest.approx(of_ensemble["measured"] - 88.69)
    of_single = compared["xr-transformer-9", "R@5"]
    assert (of_single["published"], of_single["of"]) == (18.7, "seed-0")
    assert of_single["measured"] == metrics_of(result, "seed-0")["R@5"]
    assert "xr-transformer-9  XR-Linear, cost-sensitive       1     R@5      18.70" in shown
    # another dataset than the published one, and it is said
    assert "NOT COMPARABLE" in shown
    assert "found 160 documents to train on, and Wiki10-31K has 14,146" in shown


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("layout", "name", "family"),
    [("pecos", "dismec/eurlex-4k", "default"), ("titles", "dismec/lf-amazontitles-131k", "amazon")],
)
def test_metrics_are_those_of_evaluate(run, request, layout, name, family, tmp_path):
    data = request.getfixturevalue(layout)
    out = tmp_path / "out"
    quiet(run, "reproduce", name, data, "-o", out, *RAW)
    result = json.loads((out / "result.json").read_bytes())
    mask = ["--filter", data / "filter_labels_test.txt"] if layout == "titles" else []
    assert result["filter"] == ("filter_labels_test.txt" if mask else "")
    model = out / "member-model"
    message = quiet(run, "evaluate", model, data, "--propensity", family, *mask, "--json")
    expected = json.loads(message)["evaluation"]["metrics"]
    results = metrics_of(result, "model")
    assert {metric: results[metric] for metric in expected} == pytest.approx(
        {m: 100 * v for m, v in expected.items()}
    )
    if mask:
        unmasked = json.loads(
            quiet(run, "evaluate", model, data, "--propensity", family, "--no-filter", "--json")
        )
        assert unmasked["evaluation"]["metrics"]["P@1"] != expected["P@1"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("layout", "name", "has_features"),
    [
        ("attentionxml", "dismec/wiki10-31k", True),
        ("pecos", "dismec/eurlex-4k", True),
        ("titles", "dismec/lf-amazontitles-131k", False),
        ("raw_texts", "dismec/eurlex-4k", False),
        ("bag_of_words", "dismec/eurlex-4k", True),
        ("split_matrices", "dismec/eurlex-4k", True),
    ],
)
def test_a_share_of_every_layout(run, request, layout, name, has_features, tmp_path):
    folder = request.getfixturevalue(layout)
    out = tmp_path / "out"
    shown = quiet(run, "reproduce", name, folder, "-o", out, "--share", 0.5, *RAW)
    result = json.loads((out / "result.json").read_bytes())
    assert "NOT COMPARABLE" in shown
    assert result["documents"]["train"] == N_TRAIN / 2
    assert result["documents"]["test"] == N_TEST / 2
    metrics = metrics_of(result, "model")
    assert 0 < metrics["P@1"] <= 100
    model = lt.load(out / "member-model")
    assert (model.model.vectoriser is None) == has_features


@pytest.mark.usefixtures("small")
def test_features_other_than_the_published_ones_are_named(run, attentionxml, tmp_path):
    """A download without its tf-idf files is trained on Longtail's tf-idf, which is not the
    paper's.
    """
    out = tmp_path / "whole"
    quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, "--single", *RAW)
    reasons = json.loads((out / "result.json").read_bytes())["not_comparable"]
    assert any("columns of features, and Wiki10-31K has 101,938" in reason for reason in reasons)
    without = tmp_path / "Wiki10-31K"
    shutil.copytree(attentionxml, without)
    (without / "train_v1.txt").unlink()
    (without / "test.txt").unlink()
    out = tmp_path / "texts"
    quiet(run, "reproduce", "xr-linear/wiki10-31k", without, "-o", out, "--single", *RAW)
    reasons = json.loads((out / "result.json").read_bytes())["not_comparable"]
    assert any("found no tf-idf features beside the texts" in reason for reason in reasons)


@pytest.mark.usefixtures("small")
def test_a_share_is_the_same_twice_and_keeps_all_labels(run, titles, tmp_path):
    results = []
    for name in ("one", "two"):
        out = tmp_path / name
        shown = quiet(
            run, "reproduce", "dismec/lf-amazontitles-131k", titles, "-o", out, "--share", 0.5, *RAW
        )
        assert "a share of 0.5 of the documents" in shown
        results.append(json.loads((out / "result.json").read_bytes())["measures"][0]["metrics"])
    assert results[0] == results[1]
    whole = read_documents(titles, published_dataset("lf-amazontitles-131k"))
    half = whole.share(0.5)
    assert (len(half.train), len(half.test)) == (N_TRAIN / 2, N_TEST / 2)
    assert half.train.labels is whole.train.labels
    # the filter file of the share has the pairs of its documents, by their new numbers
    lines = half.filter_file(tmp_path).read_text().splitlines()
    pairs = {tuple(map(int, line.split())) for line in lines}
    of_all = {tuple(map(int, line.split())) for line in whole.filter.read_text().splitlines()}
    assert {(half.test_rows[row], label) for row, label in pairs} == {
        p for p in of_all if p[0] in half.test_rows
    }
    assert pairs
    texts = [half.test.texts[row] for row in range(len(half.test))]
    assert texts == [whole.test.texts[row] for row in half.test_rows]


@pytest.mark.usefixtures("small")
def test_a_run_goes_on_between_members(run, attentionxml, tmp_path, monkeypatch, said):
    out = tmp_path / "out"
    arguments = ("reproduce", "xr-linear/wiki10-31k", attentionxml)
    whole = tmp_path / "whole"
    quiet(run, *arguments, "-o", whole, *RAW)
    train = running.train_to_folder
    trained = []

    def stopped(documents, path, config, **options):
        if path.name == "member-seed-1" and "member-seed-1" not in trained:
            trained.append(path.name)
            raise SystemExit(143)
        trained.append(path.name)
        return train(documents, path, config, **options)

    monkeypatch.setattr(running, "train_to_folder", stopped)
    assert run(*arguments, "-o", out, *RAW).code == 143
    assert not (out / "result.json").exists()
    quiet(run, *arguments, "-o", out, *RAW)
    assert trained == [
        "member-seed-0",
        "member-seed-1",
        "member-seed-1",
    ]  # the first is not trained again
    assert "member-seed-0: exists and is not trained again" in said()
    one, two = (json.loads((folder / "result.json").read_bytes()) for folder in (whole, out))
    assert [member["metrics"] for member in one["measures"]] == [
        member["metrics"] for member in two["measures"]
    ]
    # once more: nothing is trained, nothing is predicted
    monkeypatch.setattr(running, "load_model", None)
    quiet(run, *arguments, "-o", out, *RAW)
    assert len(trained) == 3


@pytest.mark.usefixtures("small")
def test_runs_are_not_mixed_in_one_folder(run, fails, attentionxml, pecos, tmp_path):
    out = tmp_path / "out"
    quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, "--single", *RAW)

    def refused(name, data, *options):
        return fails(2, "reproduce", name, data, "-o", out, "--single", *RAW, *options)

    assert "was begun with experiment xr-linear/wiki10-31k, not dismec/eurlex-4k" in refused(
        "dismec/eurlex-4k", pecos
    )
    assert "was begun with --share 1.0, not 0.5" in refused(
        "xr-linear/wiki10-31k", attentionxml, "--share", 0.5
    )
    other = refused("xr-linear/wiki10-31k", attentionxml, "--set", "tree.branching=4")
    assert "member seed-0 was begun with tree.branching=16, not 4" in other
    assert "was begun with data with the hash" in refused("xr-linear/wiki10-31k", pecos)
    # the second member joins the first
    result = json.loads(
        quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, *RAW, "--json")
    )
    assert [measure["name"] for measure in result["measures"]] == ["seed-0", "seed-1", "ensemble"]


@pytest.mark.usefixtures("small")
def test_single_and_seeds(run, attentionxml, tmp_path):
    out = tmp_path / "out"
    options = ["--single", "--seeds", 2, *RAW]
    shown = quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, *options)
    result = json.loads((out / "result.json").read_bytes())
    assert [(member["name"], member["repeat"]) for member in result["measures"]] == [
        ("seed-0", 0),
        ("seed-0", 1),
    ]
    assert (out / "member-seed-0-repeat-2").is_dir()
    values = [member["metrics"]["P@1"] for member in result["measures"]]
    compared = {(member["table"], member["metric"]): member for member in result["comparisons"]}
    single = compared["xr-transformer-9", "P@1"]
    assert single["measured"] == pytest.approx(np.mean(values))
    assert single["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert " ± " in shown
    ensemble = compared["xr-transformer-2", "P@1"]
    assert (ensemble["measured"], ensemble["of"]) == (None, "")
    assert "not trained" in shown


@pytest.mark.usefixtures("small")
def test_the_ensemble_of_the_models_by_hand(run, attentionxml, tmp_path):
    """Borda counts by hand from `longtail predict`: what the fusion by rank gives."""
    out = tmp_path / "out"
    quiet(run, "reproduce", "xr-linear/wiki10-31k", attentionxml, "-o", out, *RAW)
    result = json.loads((out / "result.json").read_bytes())
    train = lt.read(attentionxml)
    test = lt.read(attentionxml, split="test", labels=train.labels, unknown="add")
    lists = [lt.load(out / f"member-seed-{seed}").predict(test, 20) for seed in range(2)]
    longest = max(int(np.diff(member.matrix.indptr).max()) for member in lists)
    hits = 0
    for row in range(N_TEST):
        counts = {}
        for member in lists:
            for rank, label in enumerate(member[row]):
                counts[label.id] = counts.get(label.id, 0) + longest - rank
        order = sorted(counts, key=lambda label: (-counts[label], train.labels.columns[label]))
        hits += len(set(order[:3]) & set(test.labels_of(row)))
    labelled = int((np.diff(test.label_matrix.indptr) > 0).sum())
    assert metrics_of(result, "ensemble")["P@3"] == pytest.approx(100 * hits / 3 / labelled)


def test_encoders_are_found_and_the_recipe_of_the_paper_trained(run, attentionxml, parts, tmp_path):
    """The real experiment, whose three encoders are BERTs of 12 layers and width 16 under the names
    of the recipe.
    """
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tiny_encoder import write_encoder

    for seed, name in enumerate(["bert-base-uncased", "roberta-base", "xlnet-base-cased"]):
        write_encoder(
            tmp_path / "encoders" / name, parts[0].texts, depth=12, vocabulary=400, seed=seed
        )
    tiny = [
        "tree.levels=[4,16]",
        "cascade.levels=[4,16]",
        "cascade.shortlist=[2,4]",
        "cascade.combine=never",
        "encoder.max_tokens=16",
    ]
    tiny += ["training.epochs=1", "training.batch_size=32", "calibration.method=none"]
    options = [word for setting in tiny for word in ("--set", setting)]
    options += [
        "--encoder-folder",
        tmp_path / "encoders",
        "--share",
        0.5,
        "--device",
        "cpu",
        "-j",
        1,
    ]
    out = tmp_path / "out"
    quiet(run, "reproduce", "cascadexml/wiki10-31k", attentionxml, "-o", out, *options)
    result = json.loads((out / "result.json").read_bytes())
    assert [measure["name"] for measure in result["measures"]] == [
        "bert",
        "roberta",
        "xlnet",
        "ensemble",
    ]
    published = {
        (member["table"], member["models"], member["metric"]): member["published"]
        for member in result["comparisons"]
    }
    assert published["cascadexml-3", 3, "P@1"] == 89.74
    assert published["cascadexml-4", 1, "P@5"] == 68.9
    assert any("settings other than the recipe's" in reason for reason in result["not_comparable"])
    vectors = [metrics_of(result, name) for name in ("bert", "roberta", "xlnet")]
    assert vectors[0] != vectors[1]


def test_what_is_read_is_what_the_dataset_is_called_after(
    parts, attentionxml, pecos, tmp_path, said
):
    """Titles alone of a folder with contents and any name; the authors' tf-idf beside the texts."""
    anything = tmp_path / "download"
    for part, split in zip(parts, ("train", "test"), strict=True):
        texts = [
            f"{text}\na content" for text in part.texts
        ]  # the first line of a text becomes the title
        longer = lt.Dataset.of(
            texts, [part.labels_of(row) for row in range(len(part))], part.labels
        )
        lt.write(longer, anything, format="lf", split=split)
    read = read_documents(anything, published_dataset("lf-amazontitles-131k"))
    assert list(read.train.texts) == list(parts[0].texts)
    assert list(read.test.texts) == list(parts[1].texts)
    for folder, name in ((attentionxml, "wiki10-31k"), (pecos, "eurlex-4k")):
        documents = read_documents(folder, published_dataset(name))
        assert documents.train.features is not None
        assert documents.share(0.25).test.features.shape[0] == N_TEST / 4
    assert "another dataset or split?" in said()


def test_a_network_on_words_is_trained_on_titles(run, titles, tmp_path):
    """The real experiment on a label-feature set, with vectors of words found by the recipe's name
    for them.
    """
    pytest.importorskip("torch")
    vectors = ["wind 0.1 0.2 0.3", "library 0.3 0.1 0.2", "data 0.2 0.2 0.1"]
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "glove.6B.300d.txt").write_text("\n".join(vectors) + "\n")
    tiny = ["encoder.width=16", "cascade.levels=[8]", "tree.levels=[8]", "cascade.shortlist=[4]"]
    tiny += [
        "training.epochs=2",
        "training.warmup_epochs=1",
        "training.cooldown_epochs=1",
        "cascade.detach_epochs=1",
    ]
    options = [word for setting in tiny for word in ("--set", setting)]
    options += ["--encoder-folder", tmp_path / "vectors", "--device", "cpu", "-j", 1, "--json"]
    done = run(
        "reproduce", "inceptionxml/lf-amazontitles-131k", titles, "-o", tmp_path / "out", *options
    )
    assert done.code == 0, done.err
    result = json.loads(done.out)
    assert [measure["name"] for measure in result["measures"]] == ["model"]
    assert (result["comparisons"], result["filter"]) == ([], "filter_labels_test.txt")
    shown = (tmp_path / "out" / "result.txt").read_text("utf-8")
    assert (
        "The published tables in Longtail have no numbers of this on LF-AmazonTitles-131K." in shown
    )
    assert result["deviations"]
    assert all(deviation in shown for deviation in result["deviations"])


def test_a_missing_encoder_is_refused_before_any_document_is_read(fails, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "encoders").mkdir()
    (tmp_path / "Wiki10-31K").mkdir()  # without any file: reading it would be another error
    arguments = (
        "reproduce",
        "cascadexml/wiki10-31k",
        tmp_path / "Wiki10-31K",
        "-o",
        tmp_path / "out",
    )
    message = fails(2, *arguments, "--encoder-folder", tmp_path / "encoders")
    assert "bert-base-uncased" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("small")
def test_wrong_arguments(fails, attentionxml, tmp_path):
    out = ("-o", tmp_path / "out")
    assert "did you mean 'xr-linear/wiki10-31k'" in fails(
        2, "reproduce", "xr-linear/wiki10", attentionxml, *out
    )
    assert "expected EXPERIMENT DATA -o OUT, or --list" in fails(2, "reproduce", "dismec/eurlex-4k")
    missing = fails(2, "reproduce", "dismec/eurlex-4k", tmp_path / "none", *out)
    assert (
        "none: no such folder; expected the folder of Eurlex-4K as its authors publish it"
        in missing
    )
    file = fails(2, "reproduce", "dismec/eurlex-4k", attentionxml / "train_labels.txt", *out)
    assert "is a file; expected the folder of Eurlex-4K" in file
    assert "--share: found 2" in fails(
        2, "reproduce", "dismec/eurlex-4k", attentionxml, *out, "--share", 2
    )
    nine = fails(2, "reproduce", "x-transformer/eurlex-4k", attentionxml, *out)
    assert (
        "1 of its 2 models need parts that Longtail does not have yet (label clusters by magic)"
        in nine
    )
    assert "train only the first model with --single" in nine
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    full = fails(2, "reproduce", "dismec/eurlex-4k", attentionxml, "-o", tmp_path / "full", *RAW)
    assert "holds files, but no run.json of a reproduction" in full


def test_the_list_has_every_experiment(run):
    listed = run("reproduce", "--list", "--json").json()
    assert [entry["experiment"] for entry in listed] == list(experiments_module.experiments())
    for entry in listed:
        assert entry["need"]["hours"] or entry["need"]["note"]
    cascade = next(entry for entry in listed if entry["experiment"] == "cascadexml/amazon-670k")
    assert cascade["members"] == ["seed-0", "seed-1", "seed-2"]
    assert {"P@1": 50.22, "P@3": 45.2, "P@5": 41.45} in [
        row["values"] for row in cascade["published"]
    ]
    nine = next(entry for entry in listed if entry["experiment"] == "x-transformer/eurlex-4k")
    assert len(nine["not_yet"]) == 6


@pytest.mark.usefixtures("small")
def test_the_list_as_a_table(run):
    shown = run("reproduce", "--list")
    assert shown.code == 0
    lines = {
        line.split()[0]: line.split() for line in shown.out.splitlines() if "/" in line.split()[0]
    }
    assert list(lines) == list(experiments_module.experiments())
    assert lines["dismec/eurlex-4k"][:8] == [
        "dismec/eurlex-4k", "1", "xr-transformer-2", "1", "P", "83.21", "70.39", "58.73",
    ]  # fmt: skip
    assert lines["x-transformer/eurlex-4k"][1:4] == ["2", "(1", "not"]


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        ((0.5, 0.8), "30 to 48 min"),
        ((0.5, 3), "30 min to 3 h"),
        ((1e-4, 48), "1 min to 48 h"),
        ((240, 480), "10 to 20 days"),
    ],
)
def test_time_and_memory_in_words(hours, words):
    assert _in_words(Need(hours, int(12.3e9))) == f"{words}, 12 GB"
    assert _in_words(Need(hours, int(2.34e9), int(40e9), "of unknown speed")) == (
        f"{words}, 2.3 GB, 40 GB of the GPU (of unknown speed)"
    )
    assert _in_words(Need(note="no preset")) == "no preset"
