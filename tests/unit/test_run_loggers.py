"""Loggers of training runs: what each is told, and that none of them can end a run."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import longtail as lt
from longtail import run_loggers
from longtail.cli.model_commands import train
from longtail.errors import MissingExtra, UsageError
from longtail.reporting import logged_stage, report, report_settings
from longtail.run_loggers import Guarded, check_targets, flat, logging_to


class Listener:
    """A logger that remembers, and fails when told to."""

    def __init__(self, fails=""):
        self.heard = []
        self.fails = fails

    def __getattr__(self, name):
        def hear(*values):
            self.heard.append((name, *values))
            if name == self.fails:
                raise OSError("no route to host\nand more")

        return hear


@pytest.fixture
def listener(monkeypatch):
    """Return who listens to ``fake:PLACE``."""
    heard = Listener()

    def make(place, run):
        heard.heard.append(("made", place, run))
        return heard

    monkeypatch.setitem(run_loggers._KINDS, "fake", make)
    return heard


class TestTelling:
    def test_a_run(self, listener):
        with logging_to(["fake:http://host:1/x"], "books"):
            report_settings({"tree.branching": 8})
            report("final", 0, {"P@1": 0.5})
        assert listener.heard == [
            ("made", "http://host:1/x", "books"),
            ("settings", {"tree.branching": 8}),
            ("numbers", "", {"final/P@1": 0.5}, 0),
            ("close", False),
        ]

    def test_stages_come_before_names(self, listener):
        with logging_to(["fake"], "books"):
            with logged_stage("level 1"), logged_stage("fine"):
                report("step", 20, {"rate": 0.1})
            report("step", 1, {"rate": 0.2})
        numbers = [(heard[1], list(heard[2])) for heard in listener.heard if heard[0] == "numbers"]
        assert numbers == [
            ("level 1/fine", ["step/rate"]),
            ("level 1", ["seconds/fine"]),
            ("", ["seconds/level 1"]),
            ("", ["step/rate"]),
        ]

    def test_an_error_ends_the_run_as_failed(self, listener):
        with pytest.raises(KeyboardInterrupt), logging_to(["fake"], "books"):
            raise KeyboardInterrupt
        assert listener.heard[-1] == ("close", True)
        report("final", 0, {"P@1": 0.5})
        assert listener.heard[-1] == ("close", True)

    def test_a_stage_ends_with_an_error(self, listener):
        with logging_to(["fake"], "books"):
            with pytest.raises(ValueError, match="x"), logged_stage("level 1"):
                raise ValueError("x")
            report("step", 1, {"rate": 0.1})
        assert listener.heard[1:-1] == [("numbers", "", {"step/rate": 0.1}, 1)]

    def test_nobody_listens(self):
        report("final", 0, {"P@1": 0.5})
        report_settings({})

    def test_only_numbers_are_told(self):
        values = {
            "rate": 0.5,
            "losses": {"level 1": 2.0, "x": None},
            "name": "a",
            "number": 3,
            "valid": {},
        }
        assert flat("epoch", values) == {
            "epoch/rate": 0.5,
            "epoch/losses/level 1": 2.0,
            "epoch/number": 3,
        }

    def test_unknown_logger(self):
        with pytest.raises(
            UsageError, match="--log-to: unknown logger 'mlfow'; did you mean 'mlflow'"
        ):
            check_targets(["tensorboard:x", "mlfow:here"])


class TestFailing:
    @pytest.mark.parametrize("fails", ["settings", "numbers", "close"])
    def test_one_warning_and_silence(self, fails, caplog):
        broken = Listener(fails)
        guarded = Guarded("mlflow", lambda: broken)
        for _ in range(3):
            guarded.settings({})
            guarded.numbers("step", 0, {})
            guarded.close()
        assert [record.getMessage() for record in caplog.records] == [
            "--log-to mlflow: OSError: no route to host; the run goes on without it"
        ]
        assert sum(heard[0] == fails for heard in broken.heard) == 1
        assert broken.heard[-1][0] == fails

    def test_one_that_does_not_open(self, caplog):
        def make():
            raise ConnectionError("refused")

        guarded = Guarded("wandb", make)
        guarded.numbers("step", 0, {"a": 1.0})
        assert caplog.text.count("ConnectionError: refused; the run goes on without it") == 1

    @pytest.mark.parametrize(("kind", "module"), [("mlflow", "mlflow"), ("wandb", "wandb")])
    def test_missing_package(self, kind, module, monkeypatch):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtra, match=rf"longtail\[{kind}\]"), logging_to([kind], "books"):
            pass

    def test_missing_tensorboard(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with (
            pytest.raises(MissingExtra, match=r"longtail\[tensorboard\]"),
            logging_to(["tensorboard"], "books"),
        ):
            pass


def train_linear(folder: Path, log_to: list[str]) -> None:
    """Train a small model by the command, telling ``log_to``."""
    lt.write(lt.sample()[0].take(np.arange(300)), folder / "train.jsonl")
    train(str(folder / "train.jsonl"), folder / "books", set_=["tree.branching=4"], log_to=log_to)


class TestTraining:
    def test_what_a_linear_run_tells(self, tmp_path, listener):
        train_linear(tmp_path, ["fake"])
        (_, _, run), (_, settings), *told, closed = listener.heard
        assert run == "books"
        assert closed == ("close", False)
        assert settings["method"] == "xr-linear"
        assert settings["tree.branching"] == 4
        assert settings["documents"] == 300
        names = [name for _, _, numbers, _ in told for name in numbers]
        assert {
            "seconds/features",
            "seconds/tree",
            "seconds/calibration",
            "seconds/in all",
            "final/P@1",
        } <= set(names)
        assert all(
            isinstance(number, int | float)
            for _, _, numbers, _ in told
            for number in numbers.values()
        )

    def test_what_a_network_tells(self, listener):
        values = {"rate": 0.5, "losses": {"level 1": 2.0}, "valid": {"P@1": None}}
        with logging_to(["fake"], "books"), logged_stage("network"):
            report("epoch", 7, values)
        assert listener.heard[1] == (
            "numbers",
            "network",
            {"epoch/rate": 0.5, "epoch/losses/level 1": 2.0},
            7,
        )

    def test_a_logger_that_fails_changes_no_byte(self, tmp_path, listener, caplog):
        listener.fails = "numbers"
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with caplog.at_level(logging.WARNING):
            train_linear(tmp_path / "a", ["fake"])
        assert caplog.text.count("the run goes on without it") == 1
        train_linear(tmp_path / "b", [])
        manifests = [(tmp_path / own / "books" / "manifest.json").read_bytes() for own in "ab"]
        assert manifests[0] == manifests[1]


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    place = (tmp_path / "store").as_uri()
    train_linear(tmp_path, [f"mlflow:{place}"])

    def stopped():
        with logging_to([f"mlflow:{place}"], "second"), logged_stage("level 1, net"):
            for step in (1, 2):
                report("epoch", step, {"losses": {"a": 1 / step}})
            raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        stopped()
    client = mlflow.MlflowClient(tracking_uri=place)
    second, first = client.search_runs([client.get_experiment_by_name("longtail").experiment_id])
    assert (first.info.run_name, first.info.status) == ("books", "FINISHED")
    assert first.data.params["tree.branching"] == "4"
    assert 0 < first.data.metrics["final/P_at_1"] <= 1
    assert first.data.metrics["seconds/tree"] > 0
    assert (second.info.run_name, second.info.status) == ("second", "FAILED")
    history = client.get_metric_history(second.info.run_id, "level 1 net/epoch/losses/a")
    assert [(point.step, point.value) for point in history] == [(1, 1.0), (2, 0.5)]


def test_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with logging_to([f"tensorboard:{tmp_path / 'runs'}"], "books"):
        report_settings({"tree.levels": (4, 32), "method": "xr-linear"})
        with logged_stage("network"):
            for step in (1, 2):
                report("epoch", step, {"rate": 0.5 / step})
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("books-20")
    events = EventAccumulator(str(folder)).Reload()
    assert [(point.step, point.value) for point in events.Scalars("network/epoch/rate")] == [
        (1, 0.5),
        (2, 0.25),
    ]
    (text,) = events.Tensors("settings/text_summary")
    assert b"| tree.levels | 4, 32 |" in text.tensor_proto.string_val[0]


def test_weights_and_biases(monkeypatch):
    run = Listener()
    run.config = SimpleNamespace(update=lambda values: run.heard.append(("config", values)))
    calls = {}

    def hear(name):
        return lambda *values, **options: run.heard.append((name, *values, options))

    fake = SimpleNamespace(init=lambda **options: calls.update(options) or run)
    for name in ("define_metric", "log", "finish"):
        setattr(run, name, hear(name))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with logging_to(["wandb:team/tagging"], "books"):
        report_settings({"seed": 0})
        with logged_stage("level 1"):
            report("step", 20, {"rate": 0.1})
            report("step", 40, {"rate": 0.2})
        report("final", 0, {"P@1": 0.5})
    assert calls == {"project": "tagging", "entity": "team", "name": "books"}
    heard = [call for call in run.heard if "seconds/level 1" not in call[1]]
    assert heard == [
        ("config", {"seed": 0}),
        ("define_metric", "level 1/*", {"step_metric": "level 1/step"}),
        ("log", {"level 1/step/rate": 0.1, "level 1/step": 20}, {}),
        ("log", {"level 1/step/rate": 0.2, "level 1/step": 40}, {}),
        ("define_metric", "*", {"step_metric": "step"}),
        ("log", {"final/P@1": 0.5, "step": 0}, {}),
        ("finish", {"exit_code": 0}),
    ]
