"""Models in shards: the same answers as in one piece, also when each holder has some of them; what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import longtail as lt
from folder_contents import contents
from longtail import estimator
from longtail.data import labels as label_module
from longtail.errors import ModelFolderError, UsageError
from longtail.kernels import pool
from longtail.methods import configure
from longtail.models.model_folder import load_model, save_model
from longtail.pipeline import predict, train
from longtail.rankers import level_problems, one_vs_all
from longtail.training_run import train_to_folder

TREE = {"tree": {"branching": 3, "leaf_size": 8}}
MOST = 120  # labels of a shard


@pytest.fixture(scope="module")
def data():
    documents, test = lt.sample()
    return documents.take(np.arange(500)), test.take(np.arange(60))


def settings(shard_labels=MOST, method="xr-linear", **more):
    return configure(method, None, TREE, {"ranker": {"shard_labels": shard_labels} | more})


@pytest.fixture(scope="module")
def folders(data, tmp_path_factory):
    """The same model in one piece and in shards, and the documents to be predicted."""
    folder = tmp_path_factory.mktemp("shards")
    train_to_folder(data[0], folder / "whole", settings(0))
    train_to_folder(data[0], folder / "shards", settings())
    lt.write(data[1], folder / "test.jsonl")
    return folder


def assert_same(one, other):
    for name in ("indptr", "indices", "data"):
        assert getattr(one.matrix, name).tobytes() == getattr(other.matrix, name).tobytes(), name


def shard_count(folder: Path) -> int:
    return len(list(folder.glob("ranker-*-shard-*.safetensors")))


def test_the_folder_has_a_file_a_shard_and_no_stage_is_left(folders):
    names = {path.name for path in (folders / "shards").iterdir()}
    assert shard_count(folders / "shards") >= 4
    last = max(
        int(name.split("-")[2].split(".")[0]) for name in names if name.startswith("ranker-0")
    )
    assert f"ranker-0-{last}.safetensors" not in names
    assert f"ranker-0-{last - 1}.safetensors" in names
    assert not (folders / "shards.stages").exists()
    for path in (folders / "shards").iterdir():
        assert path.stat().st_nlink == 1, "a link to a stage is left"


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("xr-linear", {"weights": "float32"}),
        ("xr-linear", {"trees": 2}),
        ("xr-linear", {"negatives": "tfn+man"}),
        ("parabel", {}),
        ("dismec", {"max_passes": 2}),
    ],
)
def test_predictions_are_the_same_bytes(data, tmp_path, monkeypatch, method, more):
    monkeypatch.setattr(
        one_vs_all, "BATCH", 64
    )  # so that labels without a tree have parents enough
    whole = train(data[0], settings(0, method, **more))
    for most in (40, 300, 10_000):
        sharded = train(data[0], settings(most, method, **more))
        save_model(sharded, tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        assert loaded.rankers[0].shards.n_shards == shard_count(tmp_path / "model") / len(
            loaded.rankers
        )
        for model in (sharded, loaded):
            assert_same(predict(model, data[1], 5), predict(whole, data[1], 5))
    exclude = [
        [label.id for label in own[:2]]
        for own in (predict(whole, data[1], 2)[row] for row in range(60))
    ]
    assert_same(
        predict(loaded, data[1], 3, exclude=exclude), predict(whole, data[1], 3, exclude=exclude)
    )


def test_eight_bits_are_chosen_a_shard(data):
    whole, sharded = (train(data[0], settings(most, weights="int8")) for most in (0, MOST))
    tables = {part.level.table.tobytes() for part in sharded.rankers[0].shards.held}
    assert len(tables) > 1
    ours, theirs = predict(sharded, data[1], 5), predict(whole, data[1], 5)
    assert (ours.matrix.indices == theirs.matrix.indices).mean() > 0.9


def test_bytes_with_and_without_stages_and_with_any_number_of_threads(folders, data, tmp_path):
    with pool.threads(1):
        save_model(train(data[0], settings()), tmp_path / "model")
    assert contents(tmp_path / "model") == contents(folders / "shards")


def test_explanations_are_the_same(folders):
    whole, sharded = (load_model(folders / name) for name in ("whole", "shards"))
    text = "A small editor for sound files, with a window for GNOME"
    for label in predict(whole, [text], 3)[0]:
        assert sharded.explain(text, label.id) == whole.explain(text, label.id)


class TestResume:
    def test_after_a_kill_between_two_shards(self, folders, data, tmp_path, monkeypatch, caplog):
        real, begun = level_problems.LevelProblems.solve, []

        def kills_itself(problems, parents=None):
            begun.extend([parents] if parents and parents[0] else [])
            if len(begun) == 2:  # the third shard
                os.kill(os.getpid(), signal.SIGKILL)
            return real(problems, parents)

        process = os.fork()
        if process == 0:
            monkeypatch.setattr(level_problems.LevelProblems, "solve", kills_itself)
            try:
                train_to_folder(data[0], tmp_path / "model", settings())
            finally:
                os._exit(1)
        assert os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL
        kept = sorted(path.name for path in (tmp_path / "model.stages").glob("*-shard-*"))
        assert len(kept) == 2 < shard_count(folders / "shards")
        with caplog.at_level("INFO", "longtail"):
            train_to_folder(data[0], tmp_path / "model", settings(), resume=True)
        for name in kept:
            assert f"stage {name}: taken over" in caplog.text
        assert contents(tmp_path / "model") == contents(folders / "shards")

    def test_where_there_are_no_hard_links(self, folders, data, tmp_path, monkeypatch):
        def refuses(*_):
            raise OSError("no links here")

        monkeypatch.setattr("os.link", refuses)
        train_to_folder(data[0], tmp_path / "model", settings())
        assert contents(tmp_path / "model") == contents(folders / "shards")

    def test_a_stage_that_changes_before_it_is_taken_over_is_refused(
        self, data, tmp_path, monkeypatch
    ):
        def spoils(source, place):
            raw = bytearray(source.read_bytes())
            raw[-1] ^= 1
            place.write_bytes(raw)

        monkeypatch.setattr("os.link", spoils)
        with pytest.raises(ModelFolderError, match="was altered since it was opened"):
            train_to_folder(data[0], tmp_path / "model", settings())
        assert not (tmp_path / "model").exists()


class TestSubsets:
    def test_merged_they_say_what_the_whole_does(self, run, folders, tmp_path):
        model, test = folders / "shards", folders / "test.jsonl"
        count = shard_count(model)
        for more in ((), ("-t", "0.3"), ("--beam-size", "3")):
            done = run("predict", folders / "whole", test, "-k", "4", *more)
            for size in (1, 2):
                mine = next(combinations(range(count), size))
                rest = [number for number in range(count) if number not in mine]
                for name, numbers in (("a", mine), ("b", rest)):
                    shards = ",".join(map(str, numbers))
                    options = "-k", "4", "-o", tmp_path / name, "--shards", shards
                    assert run("predict", model, test, *options, *more).code == 0
                merged = run("merge", tmp_path / "a", tmp_path / "b")
                assert (merged.code, merged.out) == (0, done.out)

    def test_fewer_labels_and_not_more_than_were_asked_for(self, run, folders, tmp_path):
        model, test = folders / "shards", folders / "test.jsonl"
        every = ",".join(map(str, range(shard_count(model))))
        run("predict", model, test, "-k", "4", "-o", tmp_path / "a", "--shards", every)
        assert (
            run("merge", tmp_path / "a", "-k", "2").out
            == run("predict", folders / "whole", test, "-k", "2").out
        )
        done = run("merge", tmp_path / "a", "-k", "5")
        assert done.code == 2
        assert "made with -k 4" in done.err
        (tmp_path / "none").write_text("")
        assert run("merge", tmp_path / "none", "-k", "5").code == 0

    @pytest.mark.parametrize(
        ("files", "said"),
        [
            ("aa", "shard 0, which is in"),
            ("a", "is in none of the files"),
            ("ab-", "fewer lines than in the other files"),
            ("ab+", "document 'x'; expected"),
            (
                "aw",
                "w:1: no field 'part'; expected a file that `longtail predict --shards` has written\n",
            ),
            ("ab~", "with -k 9; expected shards"),
            ("ba?", "b:4: JSON that ends too early"),  # and not that documents after it are others
        ],
    )
    def test_what_cannot_be_merged(self, run, folders, tmp_path, files, said):
        model, test = folders / "shards", folders / "test.jsonl"
        rest = ",".join(map(str, range(1, shard_count(model))))
        run("predict", model, test, "-o", tmp_path / "a", "--shards", "0")
        run("predict", model, test, "-o", tmp_path / "b", "--shards", rest)
        run("predict", model, test, "-o", tmp_path / "w")
        lines = (tmp_path / "b").read_text().splitlines(keepends=True)
        if files.endswith("-"):
            (tmp_path / "b").write_text("".join(lines[:-1]))
        if files.endswith("+"):
            lines[3] = json.dumps(json.loads(lines[3]) | {"id": "x"}) + "\n"
            (tmp_path / "b").write_text("".join(lines))
        if files.endswith("~"):
            (tmp_path / "b").write_text(
                "".join([lines[0], *(line.replace('"k":5', '"k":9') for line in lines[1:])])
            )
        if files.endswith("?"):
            (tmp_path / "b").write_text("".join([*lines[:3], "{\n", *lines[4:]]))
        done = run(
            "merge", *(tmp_path / name for name in files.strip("+-~?")), "-o", tmp_path / "out"
        )
        assert done.code in (2, 3)
        assert said in done.err
        assert not (tmp_path / "out").exists()

    def test_models_with_as_many_shards_are_told_apart(self, run, folders, data, tmp_path):
        train_to_folder(data[0], tmp_path / "other", settings(prune=0.2))
        count = shard_count(folders / "shards")
        assert shard_count(tmp_path / "other") == count
        first, rest, every = (
            "0",
            ",".join(map(str, range(1, count))),
            ",".join(map(str, range(count))),
        )
        models = {
            "a": ("shards", first),
            "b": ("other", rest),
            "c": ("shards", every),
            "d": ("other", every),
        }
        for name, (model, numbers) in models.items():
            folder = (folders if model == "shards" else tmp_path) / model
            run(
                "predict",
                folder,
                folders / "test.jsonl",
                "-o",
                tmp_path / name,
                "--shards",
                numbers,
            )
        done = run("merge", tmp_path / "a", tmp_path / "b")
        assert (done.code, done.out) == (2, "")
        assert f"as in {tmp_path / 'a'}: predictions of one model" in done.err
        lines = [(tmp_path / name).read_text().splitlines(keepends=True) for name in "cd"]
        (tmp_path / "mixed").write_text("".join([lines[0][0], *lines[1][1:]]))
        assert "as in the lines before" in run("merge", tmp_path / "mixed").err

    def test_files_of_other_shards_may_be_missing_and_nothing_else(self, folders, tmp_path):
        model = tmp_path / "model"
        shutil.copytree(folders / "shards", model)
        expected = predict(load_model(model, shards=[1]), ["editor for sound"], 5)
        for path in model.glob("*-shard-*"):
            if not path.name.endswith("-shard-1.safetensors"):
                path.unlink()
        assert_same(predict(load_model(model, shards=[1]), ["editor for sound"], 5), expected)
        for shards in (None, [0, 1]):
            with pytest.raises(ModelFolderError, match=r"shard-0.safetensors: is missing"):
                load_model(model, shards=shards)
        (model / "ranker-0-0.safetensors").unlink()
        with pytest.raises(ModelFolderError, match=r"ranker-0-0.safetensors: is missing"):
            load_model(model, shards=[1])

    def test_damage_is_seen_where_it_is_read(self, folders, tmp_path):
        model = tmp_path / "model"
        shutil.copytree(folders / "shards", model)
        file = next(model.glob("*-shard-0.safetensors"))
        raw = bytearray(file.read_bytes())
        raw[-1] ^= 1
        file.write_bytes(raw)
        load_model(model, shards=[1])
        for shards in (None, [0]):
            with pytest.raises(ModelFolderError, match=r"shard-0.safetensors: is damaged"):
                load_model(model, shards=shards)
        file.rename(model / "ranker-0-9-shard-77.safetensors")  # no other file passes for a shard
        with pytest.raises(ModelFolderError, match="is not in the manifest"):
            load_model(model, shards=[1])

    def test_what_has_no_subsets(self, folders, data, tmp_path):
        with pytest.raises(UsageError, match="is not in shards"):
            load_model(folders / "whole", shards=[0])
        with pytest.raises(UsageError, match=r"found 99; expected some of 0 to \d+"):
            load_model(folders / "shards", shards=[99])
        save_model(train(data[0], settings(trees=2)), tmp_path / "two")
        with pytest.raises(UsageError, match="2 label trees, whose scores are averaged"):
            load_model(tmp_path / "two", shards=[0])
        some = estimator.load(folders / "shards", shards=[0])
        with pytest.raises(UsageError, match=r"1 of \d+ shards are loaded cannot be written"):
            some.save(tmp_path / "some")
        with pytest.raises(UsageError, match="has no shards"):
            estimator.load(folders / "whole").predict_part(data[1])

    def test_a_label_of_another_shard_is_not_explained(self, folders):
        whole = load_model(folders / "whole")
        tree = whole.rankers[0].tree
        some = load_model(folders / "shards", shards=[0])
        assert some.explain("sound", whole.labels.ids[int(tree.order[0])]).steps
        with pytest.raises(UsageError, match="which is not held here"):
            some.explain("sound", whole.labels.ids[int(tree.order[-1])])

    def test_info_shows_shards(self, run, folders):
        done = run("info", folders / "shards")
        assert "labels" in done.out
        for number in range(shard_count(folders / "shards")):
            assert done.out.count(f"-shard-{number}.safetensors") == 2
        assert (
            run("info", folders / "shards", "--shards", "1").out.count("-shard-1.safetensors") == 2
        )
        for model, shards in (
            ("shards", "x"),
            ("shards", "99"),
            ("shards", "0,99"),
            ("whole", "0"),
        ):
            done = run("info", folders / model, "--shards", shards)
            assert (done.code, done.out) == (2, ""), (model, shards)


def test_a_server_holds_a_subset(folders, tmp_path):
    pytest.importorskip("fastapi", reason="needs longtail[server]")
    from longtail.server.problem_details import Refusal
    from longtail.server.reloading import Reloader
    from longtail.server.service import Asked, load_service

    model = tmp_path / "model"
    shutil.copytree(folders / "shards", model)
    for path in model.glob("*-shard-*"):
        if not path.name.endswith("-shard-0.safetensors"):
            path.unlink()
    service = load_service(model, "cpu", 1, None, None, (0,))
    asked = [Asked("editor for sound", 3, 0.0, ())]
    found = service.predict(service.key(3, None), asked)[0]
    expected = predict(load_model(folders / "shards", shards=[0]), ["editor for sound"], 3)[0]
    assert [(own.id, own.score) for own in found] == [(own.id, own.score) for own in expected]
    assert Reloader(model, service, lambda: service, (0,))._load_changed() is service
    tree = service.model.rankers[0].tree
    with pytest.raises(Refusal) as refused:
        service.path("sound", service.model.labels.ids[int(tree.order[-1])], 3)
    assert refused.value.status == 422
    assert "not held here" in refused.value.detail


def test_very_many_labels_are_found_without_a_dict(monkeypatch):
    ids = [f"é{number * 7919 % 1000}" for number in range(1000)] + [" ", "a\0b", "a"]
    labels = lt.Labels.of(ids)
    monkeypatch.setattr(label_module, "_MANY", 10)
    assert [labels.column(label) for label in ids] == list(range(len(ids)))
    assert "é1000" not in labels
    assert "zzz" not in labels
    assert 5 not in labels
    with pytest.raises(KeyError):
        labels.column("nothing")
    assert "columns" not in labels.__dict__
