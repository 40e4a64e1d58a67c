"""The search itself: the same trials for the same seed, also after kills; failures; the time; what
is written.
"""

from __future__ import annotations

import errno
import os
import signal
import time

import msgspec
import numpy as np
import pytest

import longtail as lt
from longtail import reporting
from longtail.cli import terminal
from longtail.config import read_toml
from longtail.errors import ConfigError, LongtailError, MissingExtra, UsageError
from longtail.evaluation import evaluate_model
from longtail.methods import configure
from longtail.pipeline import train
from longtail.store import open_folder, write_folder
from longtail.tuning import search, trials, tune
from longtail.tuning import trials as trials_module
from longtail.tuning.space import parse_dimension
from longtail.tuning.trials import Journal, Trial

pytest.importorskip("optuna")

DOCUMENTS = lt.sample()[0].take(np.arange(150))
SPACE = [
    parse_dimension(text)
    for text in (
        "ranker.cost_positive=0.25..4:log",
        "tree.branching=2,4,8",
        "tfidf.0.min_df=1..3",
        "tree.levels=[],[4]",
    )
]
SETTINGS = [{"ranker": {"max_passes": 2}}]


def tuned(folder, **options):
    options = {
        "trials": 4,
        "space": SPACE,
        "overrides": SETTINGS,
        "threads": 1,
        "report": lambda line: None,
    } | options
    return tune(DOCUMENTS, folder, **options)


def known(trials):
    """Return what does not hang on the clock, nor on where a run was interrupted."""
    return [(trial.number, trial.params, trial.state, trial.value) for trial in trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "new" / "folder"
    said = []
    return folder, tuned(folder, trials=5, report=said.append), said


class TestStudy:
    def test_trials(self, whole):
        _, found, said = whole
        assert [trial.number for trial in found.trials] == [1, 2, 3, 4, 5]
        first = dict(found.trials[0].params)
        assert first.pop("tree.branching") in (2, 4)  # the method's own, 16, is not in the space
        assert first == {"ranker.cost_positive": 1.0, "tfidf.0.min_df": 1, "tree.levels": []}
        assert found.best.value == max(trial.value for trial in found.trials)
        assert found.metric == "nDCG@5"
        assert len({str(trial.params) for trial in found.trials}) == 5
        assert len(said) == 5
        value = 100 * found.trials[1].value
        best = 100 * max(trial.value for trial in found.trials[:2])
        assert said[1].startswith(f"trial 2 of 5: nDCG@5 {value:.2f} % (")
        assert f"; best {best:.2f} %, trial" in said[1]
        assert "tree.levels=" in said[1]
        for trial in found.trials:
            assert 0.25 <= trial.params["ranker.cost_positive"] <= 4
            assert type(trial.params["tfidf.0.min_df"]) is int

    def test_what_is_written(self, whole):
        folder, found, _ = whole
        assert sorted(path.name for path in folder.iterdir()) == [
            "best.toml",
            "study.json",
            "trials.jsonl",
        ]
        text = (folder / "best.toml").read_text()
        assert text.startswith(
            f"# nDCG@5 {100 * found.best.value:.2f} % on 15 documents, trial {found.best.number};"
        )
        assert configure("xr-linear", None, read_toml(folder / "best.toml")) == found.config
        assert found.config.tree.branching == found.best.params["tree.branching"]
        assert found.config.ranker.max_passes == 2
        assert (
            msgspec.json.decode(msgspec.json.encode(found))["best"]["number"] == found.best.number
        )

    def test_the_value_is_that_of_the_model(self, whole):
        _, found, _ = whole
        fitted, held_out = DOCUMENTS.split(0.1, 0)
        model = train(fitted, found.config, valid=held_out)
        assert evaluate_model(model, held_out, ks=(5,)).evaluation["nDCG@5"] == found.best.value

    def test_another_seed_and_metric(self, tmp_path, whole):
        other = tuned(tmp_path / "a", seed=1, metric="PSP@1", trials=3)
        assert known(other.trials) != known(whole[1].trials[:3])
        assert other.config.seed == 1
        same = tuned(tmp_path / "b", overrides=[*SETTINGS, {"seed": 1}], metric="PSP@1", trials=3)
        assert known(same.trials) == known(other.trials)
        assert other.metric == "PSP@1"

    def test_validation_data_of_its_own(self, tmp_path):
        valid = lt.sample()[1].take(np.arange(20))
        found = tuned(tmp_path, valid=valid, trials=1)
        assert "on 20 documents" in (tmp_path / "best.toml").read_text()
        model = train(DOCUMENTS, found.config, valid=valid)
        assert evaluate_model(model, valid, ks=(5,)).evaluation["nDCG@5"] == found.best.value

    def test_stages_are_shared(self, whole):
        assert any("features" in trial.reused for trial in whole[1].trials)
        assert whole[1].trials[0].reused == ()

    def test_a_space_of_its_own(self, tmp_path):
        found = tune(DOCUMENTS, tmp_path, trials=1, overrides=SETTINGS, threads=1)
        assert set(found.best.params) >= {
            "ranker.cost_positive",
            "tree.branching",
            "tfidf.0.ngram_max",
        }
        assert (
            found.best.params["ranker.cost_positive"] == configure("xr-linear").ranker.cost_positive
        )

    def test_stages_of_a_trial_are_quiet_and_its_progress_is_not(
        self, tmp_path, monkeypatch, caplog
    ):
        monkeypatch.setattr(terminal, "_LINE_SECONDS", 0)
        monkeypatch.setattr(reporting, "_display", terminal.LineReporter())
        with caplog.at_level("INFO", "longtail"):
            tuned(tmp_path, trials=1)
        told = {record.name for record in caplog.records if record.levelname == "INFO"}
        assert told == {"longtail.progress"}
        assert "level 3 of 3: " in caplog.text


class TestGoingOn:
    def interrupted(self, folder, monkeypatch, at, error):
        """Run until a trial, which raises the error in the middle of its training."""
        real = trials.evaluate_model
        calls = []

        def evaluate(*arguments, **options):
            calls.append(1)
            if len(calls) == at:
                raise error
            return real(*arguments, **options)

        monkeypatch.setattr(trials, "evaluate_model", evaluate)
        with pytest.raises(type(error)):
            tuned(folder, trials=5)
        monkeypatch.setattr(trials, "evaluate_model", real)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143)])
    def test_after_ctrl_c(self, tmp_path, monkeypatch, whole, error, caplog):
        self.interrupted(tmp_path, monkeypatch, 3, error)
        assert (
            "trial 3 was interrupted; those before it are kept: go on with --resume" in caplog.text
        )
        assert (tmp_path / "best.toml").is_file()
        assert (tmp_path / "stages").is_dir()
        found = tuned(tmp_path, trials=5, resume=True)
        assert known(found.trials) == known(whole[1].trials)
        assert "ranker-0-0" in found.trials[2].reused  # of the training before
        assert not (tmp_path / "stages").exists()

    def test_more_trials(self, tmp_path, whole):
        tuned(tmp_path, trials=2)
        (tmp_path / "best.toml").unlink()  # killed before it was there
        assert tuned(tmp_path, trials=2, resume=True).best.value
        assert (tmp_path / "best.toml").is_file()
        assert known(tuned(tmp_path, trials=5, resume=True).trials) == known(whole[1].trials)
        assert (tmp_path / "best.toml").read_bytes() == (whole[0] / "best.toml").read_bytes()

    def test_half_a_line(self, tmp_path, whole):
        tuned(tmp_path, trials=3)
        file = tmp_path / "trials.jsonl"
        file.write_bytes(file.read_bytes()[:-20])
        assert known(tuned(tmp_path, trials=5, resume=True).trials) == known(whole[1].trials)

    def test_a_trial_that_kills_the_process_is_given_up(self, tmp_path, whole):
        tuned(tmp_path, trials=2)
        journal = Journal(tmp_path)
        third = whole[1].trials[2].params
        for _ in range(2):
            journal.add(Trial(3, third, "started"))
        found = tuned(tmp_path, trials=4, resume=True)
        assert found.trials[2].state == "failed"
        assert "killed each time" in found.trials[2].error
        assert found.trials[3].state == "done"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="kills processes that it has forked")
    def test_after_kills(self, tmp_path, monkeypatch, whole):
        monkeypatch.setattr(trials, "_ATTEMPTS", 99)
        real = trials.train
        for calls_before in (1, 0, 2):  # trials of this process that come to an end
            process = os.fork()
            if process == 0:  # kernels are compiled, and there are no threads
                calls = []

                def train(*arguments, calls=calls, most=calls_before, **options):
                    model = real(*arguments, **options)
                    calls.append(1)
                    if (
                        len(calls) > most
                    ):  # the stages of the trial are there, and its result is not
                        os.kill(os.getpid(), signal.SIGKILL)
                    return model

                try:
                    trials.train = train
                    tuned(tmp_path / "killed", trials=5, resume=True)
                finally:
                    os._exit(0)
            assert os.WIFSIGNALED(os.waitpid(process, 0)[1])
        assert known(tuned(tmp_path / "killed", trials=5, resume=True).trials) == known(
            whole[1].trials
        )

    def test_refusals(self, tmp_path, whole):
        folder = whole[0]
        with pytest.raises(UsageError, match=r"study\.json: found a study; go on with --resume"):
            tuned(folder, trials=5)
        with pytest.raises(
            UsageError, match="a study with another metric and seed and config and data; go on with"
        ):
            tuned(folder, metric="P@1", seed=3, resume=True)
        with pytest.raises(UsageError, match="a study with another space;"):
            tuned(folder, space=SPACE[:1], resume=True)
        for text in ("{", "[]"):
            (tmp_path / "study.json").write_text(text)
            with pytest.raises(UsageError, match="found no JSON of a study"):
                tuned(tmp_path, resume=True)

    def test_what_else_is_there_stays(self, tmp_path):
        """A model with more files in it would verify no more; trials of who knows what would count
        as those of it.
        """
        with write_folder(tmp_path / "model", config_hash="0") as folder:
            folder.write_json("config.json", {})
        with pytest.raises(
            UsageError, match="is a model folder, which a study would damage; give another folder"
        ):
            tuned(tmp_path / "model")
        open_folder(tmp_path / "model")
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="is a file; give a folder"):
            tuned(tmp_path / "file")
        for name in ("best.toml", "trials.jsonl"):
            (tmp_path / name).write_text("mine")
            with pytest.raises(UsageError, match=rf"{name}: is there, but no study\.json"):
                tuned(tmp_path)
            assert (tmp_path / name).read_text() == "mine"
            (tmp_path / name).unlink()


class TestFailures:
    def test_a_bad_trial_does_not_end_the_study(self, tmp_path, monkeypatch):
        real = trials.train
        faults = iter([None, MemoryError("no room"), ConfigError("bad\nvalue"), None])

        def train(*arguments, **options):
            fault = next(faults)
            if fault is not None:
                raise fault
            return real(*arguments, **options)

        monkeypatch.setattr(trials, "train", train)
        said = []
        found = tuned(tmp_path, report=said.append)
        assert [trial.state for trial in found.trials] == ["done", "failed", "failed", "done"]
        assert [trial.error for trial in found.trials] == [
            "",
            "MemoryError: no room",
            "ConfigError: bad",
            "",
        ]
        assert "MemoryError: no room" in said[1]

    def test_all_trials_failed(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(trials, "train", lambda *_, **__: 1 / 0)
            for resume in (False, True):
                with pytest.raises(
                    LongtailError,
                    match=r"^all 2 trials have failed, the last one so: ZeroDivisionE",
                ):
                    tuned(tmp_path, trials=2, resume=resume)
        assert [trial.state for trial in Journal(tmp_path).ended] == ["failed", "failed"]
        assert tuned(tmp_path, trials=3, resume=True).best.number == 3

    @pytest.mark.parametrize("journal_fails", [False, True])
    def test_a_full_disk_ends_the_study_and_its_trial_comes_again(
        self, tmp_path, monkeypatch, whole, caplog, journal_fails
    ):
        real = trials.train
        calls = []

        def train(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:
                if journal_fails:
                    patch.setattr(trials_module, "append_line", full)
                full()
            return real(*arguments, **options)

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "stages")

        with monkeypatch.context() as patch:
            patch.setattr(trials, "train", train)
            with pytest.raises(OSError, match="No space left on device"):
                tuned(tmp_path, trials=5)
        assert (
            "trial 2 was interrupted; those before it are kept: go on with --resume" in caplog.text
        )
        assert [trial.number for trial in Journal(tmp_path).ended] == [1]
        assert known(tuned(tmp_path, trials=5, resume=True).trials) == known(whole[1].trials)

    def test_trials_that_a_full_disk_has_failed_before_come_again(self, tmp_path, whole):
        """Earlier versions wrote such trials down as failed."""
        tuned(tmp_path, trials=3)
        journal = Journal(tmp_path)
        second = whole[1].trials[1].params
        journal.add(
            Trial(2, second, "failed", error="OSError: [Errno 28] No space left on device: 'x'")
        )
        found = tuned(tmp_path, trials=5, resume=True)
        assert [trial.state for trial in found.trials] == ["done"] * 5
        assert known(found.trials) == known(whole[1].trials)

    def test_settings_that_do_not_go_together(self, tmp_path):
        space = [parse_dimension("tfidf.0.ngram_min=1,3"), parse_dimension("tfidf.0.ngram_max=1,2")]
        found = tuned(tmp_path, space=space, trials=6)
        assert {trial.state for trial in found.trials} == {"done", "failed"}
        assert all("ngram_min" in trial.error for trial in found.trials if trial.state == "failed")

    def test_none_that_works(self, tmp_path, monkeypatch):
        monkeypatch.setattr(trials, "train", lambda *_, **__: 1 / 0)
        with pytest.raises(
            UsageError, match="the first 3 trials have failed, the last one so: ZeroDivisionError"
        ):
            tuned(tmp_path)
        assert not (tmp_path / "best.toml").exists()

    def test_too_little_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(
            trials, "check_memory", lambda _: (_ for _ in ()).throw(UsageError("too large"))
        )
        with pytest.raises(UsageError, match="UsageError: too large"):
            tuned(tmp_path)
        assert tuned(tmp_path / "b", ignore_memory=True, trials=1).best is not None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"metric": "P5"}, "--metric 'P5'; expected one such as P@1"),
            ({"metric": "nDGC@5"}, "unknown metric 'nDGC'; did you mean 'nDCG'?"),
            ({"method": "xr-linea"}, "did you mean 'xr-linear'"),
            ({"space": [parse_dimension("tree.branch=2,4")]}, "did you mean 'tree.branching'"),
        ],
    )
    def test_refused_before_anything_starts(self, tmp_path, options, message):
        with pytest.raises(UsageError) as error:
            tuned(tmp_path / "study", **options)
        assert message in str(error.value)
        assert not (tmp_path / "study").exists()

    def test_without_optuna(self, tmp_path, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "optuna", None)
        with pytest.raises(MissingExtra, match=r"longtail\[tune\]"):
            tuned(tmp_path)


class TestTime:
    def test_no_trial_starts_after_it(self, tmp_path):
        said = []
        found = tuned(tmp_path, trials=50, seconds=0.0, report=said.append)
        assert (found.trials, found.best) == ((), None)
        assert said == ["the time is over after 0 of 50 trials"]
        assert tuned(tmp_path, trials=1, seconds=600.0, resume=True).best is not None

    @pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such alarm")
    def test_a_trial_far_over_it_is_stopped(self, tmp_path, monkeypatch):
        real = trials.train
        calls = []
        budget = 1000.0

        def train(*arguments, **options):
            calls.append(1)
            if len(calls) == 2:
                assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= search._FAR_OVER * budget
                signal.setitimer(signal.ITIMER_REAL, 0.01)  # rather than to wait for so long
                while True:
                    time.sleep(0.01)
            return real(*arguments, **options)

        monkeypatch.setattr(trials, "train", train)
        found = tuned(tmp_path, trials=2, seconds=budget)
        assert [trial.state for trial in found.trials] == ["done", "failed"]
        assert "far over the time" in found.trials[1].error
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
