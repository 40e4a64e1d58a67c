"""Networks on vectors of words as a person uses them: train, predict, evaluate, explain, info, resume, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from folder_contents import contents

pytest.importorskip("torch")
pytest.importorskip("transformers")

import longtail as lt
from longtail.features.word_tokens import words_of
from longtail.methods import METHODS, configure, is_read, settings_read
from longtail.networks.attention import AttentionLevel
from longtail.networks.cascade import CascadeXML
from longtail.pipeline import predict
from longtail.training_run import train_to_folder

NETWORKS = [
    "xml-cnn",
    "attentionxml",
    "inceptionxml",
    "inceptionxml-lf",
    "astec",
    "decaf",
    "eclare",
]
SETTINGS = {
    "encoder": {"width": 16, "max_tokens": 16},
    "training": {
        "epochs": 4,
        "batch_size": 16,
        "encoder_rate": 1e-2,
        "head_rate": 1e-2,
        "checkpoint_steps": 3,
    },
    "phases": {"first_share": 0.5},
}
N_TRAIN, N_TEST = 240, 80

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    train, test = lt.sample()
    lt.write(train.take(np.arange(N_TRAIN)), folder / "train.jsonl")
    lt.write(test.take(np.arange(N_TEST)), folder / "test.jsonl")
    return folder


@pytest.fixture(scope="module")
def data(files):
    train = lt.read(files / "train.jsonl")
    return train, lt.read(files / "test.jsonl", labels=train.labels, unknown="drop")


def settings_of(method):
    """Return the settings of the tests, as far as the method reads them."""
    read = settings_read(configure(method))
    return {name: group for name, group in SETTINGS.items() if is_read(name, read)}


def options(*more, method="astec", **groups):
    """Return --set for the settings of the tests, with those of ``groups`` on top."""
    base = settings_of(method)
    merged = {name: {**base.get(name, {}), **groups.get(name, {})} for name in {**base, **groups}}
    sets = [
        f"{name}.{key}={value}" for name, group in merged.items() for key, value in group.items()
    ]
    return ["-j", "1", *(word for setting in [*sets, *more] for word in ("--set", setting))]


@pytest.fixture
def model(run, files):
    """Return the folder of a method's model, trained by the command when it is first asked for."""

    def of(method):
        folder = files / method
        if not folder.exists():
            done = run(
                "-q",
                "train",
                files / "train.jsonl",
                "--method",
                method,
                "-o",
                folder,
                *options(method=method),
            )
            assert (done.code, done.out) == (0, "")
        return folder

    return of


def fitted(method, documents, **settings):
    return lt.Longtail(method, threads=1, **{**settings_of(method), **settings}).fit(documents)


def same(ours, theirs):
    return np.array_equal(ours.indices, theirs.indices) and np.array_equal(ours.data, theirs.data)


@pytest.mark.parametrize("method", NETWORKS)
class TestEveryMethod:
    def test_predict_and_evaluate(self, run, files, model, data, method):
        loaded = lt.load(model(method))
        done = run("predict", model(method), files / "test.jsonl", "-k", "3")
        lines = [json.loads(line) for line in done.out.splitlines()]
        assert (done.code, done.err, len(lines)) == (0, "", N_TEST)
        expected = loaded.predict(data[1], 3)
        for row, line in enumerate(lines):
            assert line["labels"] == [label.id for label in expected[row]]
            assert line["scores"] == pytest.approx(
                [label.score for label in expected[row]], abs=1e-4
            )
        found = run("evaluate", model(method), files / "test.jsonl", "--json").json()["evaluation"][
            "metrics"
        ]
        assert found["P@1"] == pytest.approx(loaded.evaluate(data[1])["P@1"])
        share = (
            data[0].label_matrix.nnz / len(data[0]) / data[0].n_labels
        )  # what labels by chance would have
        assert found["P@5"] > 2 * share

    def test_trained_in_python_it_has_the_same_bytes_and_scores(
        self, model, data, tmp_path, method
    ):
        ours = fitted(method, data[0])
        ours.save(tmp_path / "m")
        assert contents(tmp_path / "m") == contents(model(method))
        assert same(
            ours.predict(data[1], 5).matrix, lt.load(model(method)).predict(data[1], 5).matrix
        )

    def test_explain(self, run, model, data, method):
        text = data[1].texts[0]
        best = lt.load(model(method)).predict([text], 1)[0][0]
        found = run("explain", model(method), text, "--json").json()
        assert found["label"] == best.id
        assert found["probability"] == pytest.approx(best.score, abs=1e-3)
        (step,) = found["steps"]
        assert step["kind"] == "left-out"
        assert step["contributions"]
        assert run("explain", model(method), text).out

    def test_info(self, run, model, data, method):
        said = run("info", model(method)).out
        for words in ("verified", f"# {method}: {data[0].n_labels} labels", "encoder/", "network"):
            assert words in said

    def test_analyze_says_what_it_expects(self, fails, files, model, tmp_path, method):
        said = fails(2, "analyze", model(method), files / "test.jsonl", "-o", tmp_path / "a")
        assert (
            "found a network on vectors of words, without [CLS] and its attention; expected a transformer"
            in said
        )

    def test_few_labels_which_have_no_clusters(self, method):
        texts = ["red apples", "green apples", "red roses", "green leaves"] * 5
        labels = [["red", "apple"], ["green", "apple"], ["red"], ["green"]] * 5
        found = fitted(method, lt.Dataset.of(texts, labels))
        assert len(found.predict(["red apples", ""], 3)[0]) == 3


class TestWordVectors:
    """`--set encoder.name=FILE`: vectors of words as others have learnt them."""

    WIDTH = 20

    @pytest.fixture
    def vectors(self, model, tmp_path):
        """A file for half of the words that the texts have, and one that they have not."""
        words = words_of(lt.load(model("astec")).model.network.tokeniser)[2::2]
        chance = np.random.default_rng(0)
        lines = [
            " ".join([word, *(f"{x:.4f}" for x in chance.normal(size=self.WIDTH))])
            for word in [*words, "qxz"]
        ]
        (tmp_path / "glove.txt").write_text("\n".join(lines) + "\n")
        return tmp_path / "glove.txt"

    @pytest.mark.parametrize("method", NETWORKS)
    def test_they_are_what_training_begins_with(self, run, files, vectors, tmp_path, method):
        given = options(method=method, encoder={"name": vectors}, training={"encoder_rate": 1e-6})
        assert (
            run(
                "-q",
                "train",
                files / "train.jsonl",
                "--method",
                method,
                "-o",
                tmp_path / "m",
                *given,
            ).code
            == 0
        )
        network = lt.load(tmp_path / "m").model.network
        E, words = (
            network.network.encoder.embedding.weight.numpy(force=True),
            words_of(network.tokeniser),
        )
        assert E.shape == (len(words), self.WIDTH)
        for line in vectors.read_text().splitlines()[:40]:
            word, *numbers = line.split(" ")
            np.testing.assert_allclose(E[words.index(word)], np.array(numbers, float), atol=1e-3)

    def test_numbers_that_a_file_lacks_are_learned_beside(self, run, files, vectors, tmp_path):
        given = options(
            encoder={"name": vectors, "width": self.WIDTH + 4}, training={"encoder_rate": 1e-6}
        )
        assert (
            run(
                "-q",
                "train",
                files / "train.jsonl",
                "--method",
                "astec",
                "-o",
                tmp_path / "m",
                *given,
            ).code
            == 0
        )
        network = lt.load(tmp_path / "m").model.network
        E, words = (
            network.network.encoder.embedding.weight.numpy(force=True),
            words_of(network.tokeniser),
        )
        assert E.shape == (len(words), self.WIDTH + 4)
        word, *numbers = vectors.read_text().splitlines()[0].split(" ")
        own = E[words.index(word)]
        np.testing.assert_allclose(own[: self.WIDTH], np.array(numbers, float), atol=1e-3)
        assert own[self.WIDTH :].all()

    def refused(self, fails, files, tmp_path, code, file):
        given = options(encoder={"name": file})
        said = fails(
            code, "train", files / "train.jsonl", "--method", "astec", "-o", tmp_path / "m", *given
        )
        assert not (tmp_path / "m").exists()
        return said

    def test_no_such_file(self, fails, files, tmp_path, caplog):
        said = self.refused(fails, files, tmp_path, 2, tmp_path / "nowhere.txt")
        assert "nowhere.txt" in said
        assert "expected vectors of words as GloVe text" in said
        assert "features: " not in caplog.text

    def test_a_line_of_other_length(self, fails, files, vectors, tmp_path, caplog):
        lines = vectors.read_text().splitlines()
        lines[6] = lines[6].rpartition(" ")[0]
        vectors.write_text("\n".join(lines) + "\n")
        said = self.refused(fails, files, tmp_path, 3, vectors)
        assert (
            f"glove.txt:7: {self.WIDTH - 1} numbers; expected a word and {self.WIDTH} numbers"
            in said
        )
        assert "tokens:" in caplog.text
        assert "tree:" not in caplog.text


class TestOthers:
    @pytest.mark.parametrize("method", ["astec", "inceptionxml-lf"])
    def test_label_points(self, run, files, model, tmp_path, caplog, method):
        where = [files / "train.jsonl", "--method", method, "-o", tmp_path / "m"]
        assert run("train", *where, "--gandalf", *options(method=method)).code == 0
        assert "labels as documents" in caplog.text
        found, plain = lt.load(tmp_path / "m").model, lt.load(model(method)).model
        assert found.facts.documents == plain.facts.documents
        assert predict(found, ["sound editor"], 3)[0] != predict(plain, ["sound editor"], 3)[0]

    def test_an_ensemble_with_linear_classifiers(self, run, files, model, tmp_path):
        assert run("-q", "train", files / "train.jsonl", "-o", tmp_path / "linear").code == 0
        assert (
            run("-q", "ensemble", model("astec"), tmp_path / "linear", "-o", tmp_path / "both").code
            == 0
        )
        lines = run(
            "-q", "predict", tmp_path / "both", files / "test.jsonl", "-k", "4"
        ).out.splitlines()
        assert [len(json.loads(line)["labels"]) for line in lines] == [4] * N_TEST
        assert run("-q", "explain", tmp_path / "both", "a sound editor").code == 0

    def test_linear_classifiers_beside_the_network(self, run, files, tmp_path):
        given = options("cascade.combine=always")
        where = [files / "train.jsonl", "--method", "astec", "--valid", files / "test.jsonl"]
        assert run("-q", "train", *where, "-o", tmp_path / "m", *given).code == 0
        loaded = lt.load(tmp_path / "m").model
        assert loaded.rankers
        assert loaded.features(["sound"]).dense.shape == (1, 16)


class Killed(BaseException):
    """The end of a run at once: nothing more is written."""


class TestResume:
    """What was interrupted between phases, or inside the second one, ends with the bytes of a run that was not."""

    def trained(self, data, method, folder, resume=False):
        config = configure(method, None, settings_of(method))
        train_to_folder(data[0], folder, config, resume=resume, threads=1)

    @pytest.mark.parametrize("inside", [False, True], ids=["between", "inside"])
    @pytest.mark.parametrize("method", ["inceptionxml-lf", "astec", "attentionxml"])
    def test_the_same_bytes(self, data, model, monkeypatch, tmp_path, caplog, method, inside):
        owner = AttentionLevel if METHODS[method].network == "attention" else CascadeXML
        real, networks, calls = owner.losses, [], []

        def losses(network, batch):
            if not networks or networks[-1] is not network:
                networks.append(network)
                calls.clear()
            calls.append(1)
            if len(networks) == 2 and len(calls) == (9 if inside else 1):
                raise Killed
            return real(network, batch)

        expected = contents(model(method))
        with monkeypatch.context() as patch:
            patch.setattr(owner, "losses", losses)
            with pytest.raises(Killed):
                self.trained(data, method, tmp_path / "m")
        assert not (tmp_path / "m").exists()
        stages = tmp_path / "m.stages"
        assert (stages / ("attention-0" if method == "attentionxml" else "network-0")).is_dir()
        assert (stages / "checkpoint-1").exists() == inside
        caplog.set_level("INFO", "longtail")
        caplog.clear()
        self.trained(data, method, tmp_path / "m", resume=True)
        assert "-0: taken over" in caplog.text
        assert ("training: goes on from epoch 1, step 6" in caplog.text) == inside
        assert contents(tmp_path / "m") == expected
        assert {path.name for path in tmp_path.iterdir()} == {"m", "m.run.jsonl"}


class TestErrors:
    """One line, exit code 2, and before any long work."""

    @pytest.fixture
    def refused(self, fails, files, tmp_path, caplog):
        def check(method, *sets):
            given = [word for setting in sets for word in ("--set", setting)]
            said = fails(
                2, "train", files / "train.jsonl", "--method", method, "-o", tmp_path / "m", *given
            )
            assert "features: " not in caplog.text
            assert "epoch 1" not in caplog.text
            assert not (tmp_path / "m").exists()
            return said

        return check

    @pytest.mark.parametrize("parts", [["free"], ["text"], ["text", "graph"]], ids=str)
    def test_tied_phases_need_words_and_rows(self, refused, parts):
        said = refused("inceptionxml-lf", f"label_text.parts={json.dumps(parts)}")
        assert (
            f"label_text.parts: found {parts} with phases.kind=tied; expected free beside words"
            in said
        )

    @pytest.mark.parametrize(("method", "settings", "kind", "needs"), [
        ("cascadexml", ['label_text.parts=["text", "free"]'], "transformer", "label_text.parts=['text', 'free']"),
        ("cascadexml", ["phases.kind=surrogate"], "transformer", "surrogate phases"),
        ("inceptionxml", ['label_text.parts=["text"]'], "inception", "label_text.parts=['text']"),
        ("astec", ["encoder.kind=cnn"], "cnn", "surrogate phases"),
    ])  # fmt: skip
    def test_label_words_need_an_encoder_as_wide_as_they_are(
        self, refused, method, settings, kind, needs
    ):
        said = refused(method, *settings)
        assert f"encoder.kind: found {kind} with {needs}; expected bag or routed-inception" in said

    @pytest.mark.parametrize(("setting", "message"), [
        ("cascade.label_rows=random", "find labels by centroids; expected centroid or centroid+text"),
        ("tree.levels=[2, 4]", "tree.levels: found [2, 4] with surrogate phases; expected one number"),
    ])  # fmt: skip
    def test_surrogate_phases_want_centroids_and_one_level(self, refused, setting, message):
        assert message in refused("astec", setting)

    @pytest.mark.parametrize("share", [0, 1, 1.5])
    def test_a_first_phase_that_leaves_nothing_or_has_nothing(self, refused, share):
        assert "phases.first_share" in refused("inceptionxml-lf", f"phases.first_share={share}")

    def test_a_part_twice(self, refused):
        assert "expected each at most once" in refused("decaf", 'label_text.parts=["text", "text"]')

    @pytest.mark.parametrize(("method", "what", "expected"), [
        ("xr-linear", "xr-linear with features=cat", "transformer"),
        ("xr-transformer", "xr-transformer", "transformer"),
        ("attentionxml", "attentionxml", "lstm"),
    ])  # fmt: skip
    def test_an_encoder_of_another_kind(self, refused, method, what, expected):
        said = refused(method, "features=cat", "encoder.kind=bag")
        assert f"encoder.kind: found bag with {what}; expected {expected}" in said

    def test_vectors_too_narrow_for_convolutions(self, fails, files, tmp_path):
        where = [files / "train.jsonl", "--method", "inceptionxml", "-o", tmp_path / "m"]
        assert "expected 16 or more; set encoder.width" in fails(
            2, "-q", "train", *where, "--set", "encoder.width=8"
        )
