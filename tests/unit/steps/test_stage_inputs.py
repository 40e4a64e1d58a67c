"""The inputs of stages: what a stage declares is what it is made from."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
import pytest

import longtail as lt
from longtail.config import Config, nested, resolve, settings
from longtail.config.stage import Stage
from longtail.methods import METHODS, configure, is_read, settings_read
from longtail.pipeline import train
from longtail.steps.inputs import (
    DOCUMENTS,
    EVERYTHING,
    WITHOUT_EFFECT,
    input_of,
)
from longtail.steps.work import Work
from longtail.store import Stages
from small_methods import LINEAR, SMALL
from tiny_encoder import write_encoder

TRAIN = lt.sample()[0].take(np.arange(60))
VALID = lt.sample()[0].take(np.arange(90, 110))
TEXT = {"tfidf.0.ngram_max": 2}  # so that there is another value for the shortest n-gram
SMALL_TREE = {**TEXT, "tree.branching": 3, "tree.leaf_size": 12, "ranker.max_passes": 3}
SMALL_NETWORK = {
    "encoder.max_tokens": 12,
    "training.epochs": 2,
    "training.batch_size": 32,
    "ranker.trees": 1,
    **SMALL_TREE,
}
WORDS = {**SMALL_NETWORK, "encoder.width": 16}
# of methods on vectors of words, a transformer's otherwise
ON_WORDS = [
    name for name, entry in METHODS.items() if entry.settings.get("encoder", {}).get("kind")
]
# further settings, by which more stages are made, or others are read
MORE: dict[str, dict[str, dict[str, Any]]] = {
    "xr-linear": {
        "gandalf": {"gandalf.use": True, "label_features.kind": "graph+text"},
        "matcher": {"ranker.negatives": "tfn+man", "ranker.shard_labels": 20},
    },
    "bonsai": {"kinds": {"label_features.tree_kinds": ["joint", "graph+text", "output"]}},
    "dismec": {"hard negatives": {"ranker.hard_negatives": 3, "ranker.shard_labels": 20}},
    "cascadexml": {
        "classifiers": {"cascade.combine": "always"},
        "one-vs-all": {
            "cascade.combine": "only",
            "cascade.classifier": "dismec",
            "cascade.warm_start": True,
            "ranker.hard_negatives": 3,
        },
    },
}


def settings_of(method):
    """Return settings with which a method trains in a moment, by path."""
    if method in LINEAR:
        own = {
            f"{group}.{name}": value
            for group, values in SMALL[method].items()
            for name, value in values.items()
        }
        return {**SMALL_TREE, **own} if METHODS[method].ranker == "tree" else {**TEXT, **own}
    return WORDS if method in ON_WORDS else SMALL_NETWORK


# settings that must have a certain value where another setting is changed
WITH = {
    "ranker.loss": {"ranker": {"solver": "dual"}},
    "ranker.solver": {"ranker": {"loss": "squared-hinge"}},
    "search.last_level": {"search": {"exact": False}},
}
CASES = {
    **{name: (name, settings_of(name)) for name in METHODS},
    **{
        f"{name}, {what}": (name, {**settings_of(name), **more})
        for name, variants in MORE.items()
        for what, more in variants.items()
    },
}


@cache
def encoder(folder):
    return str(write_encoder(folder, TRAIN.texts, vocabulary=300))


def config_of(case, folder):
    method, values = CASES[case]
    if METHODS[method].network and method not in ON_WORDS:
        values = {**values, "encoder.name": encoder(folder / "encoder")}
    return configure(method, None, nested(values))


class Recorder:
    """Notes which settings are read while each stage is made, and what the stage declares."""

    def __init__(self):
        self.inputs = {}
        self.reads = {}
        self.problems = []
        self._making = []

    def config(self, config):
        """Return the same settings, whose reading is noted."""
        groups = {}
        for name in config.__struct_fields__:
            value = getattr(config, name)
            groups[name] = self._noted(value, f"{name}.") if isinstance(value, Stage) else value
        return self._class(Config, "")(**groups)

    def _noted(self, group, prefix):
        values = {name: getattr(group, name) for name in group.__struct_fields__}
        return self._class(type(group), prefix)(**values)

    def _class(self, kind, prefix):
        fields = frozenset(kind.__struct_fields__)

        def read(group, name):
            value = object.__getattribute__(group, name)
            if name in fields and self._making and not isinstance(value, Stage):
                self.reads[self._making[-1]].add(prefix + name)
            return value

        return type(kind)(kind.__name__, (kind,), {"__getattribute__": read}, frozen=True)

    def patch(self, monkeypatch):
        """Note all stages that are made from here on."""
        for name in ("arrays", "together", "each"):
            monkeypatch.setattr(Work, name, self._noting(getattr(Work, name)))

    def _noting(self, method):
        def noted(work, name, make, *arguments, **options):
            inputs = options.get("inputs")
            if inputs is None:
                declared = [argument for argument in arguments if isinstance(argument, frozenset)]
                inputs = declared[0] if declared else EVERYTHING
            self.inputs[name] = inputs
            self.reads.setdefault(name, set())
            if self._making and not inputs <= self.inputs[self._making[-1]]:
                self.problems.append(f"{self._making[-1]} is made from {name}")

            def made(*items):
                with self._stage(name):
                    return make(*items)

            return method(work, name, made, *arguments, **options)

        return noted

    @contextmanager
    def _stage(self, name):
        self._making.append(name)
        try:
            yield
        finally:
            self._making.pop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def recorded(folder):
    """Return a function from a case to the recorder of its training, which is done once."""

    @cache
    def of(case):
        recorder = Recorder()
        with pytest.MonkeyPatch.context() as patch, Stages(folder / case) as stages:
            recorder.patch(patch)
            train(TRAIN, recorder.config(config_of(case, folder)), valid=VALID, stages=stages)
        return recorder

    return of


@pytest.mark.parametrize("case", CASES)
def test_a_stage_reads_no_setting_that_it_does_not_declare(case, recorded, folder, one_thread):
    recorder = recorded(case)
    always = {"method", *(f"training.{name}" for name in WITHOUT_EFFECT)}
    undeclared = {
        name: reads - recorder.inputs[name] - always for name, reads in recorder.reads.items()
    }
    assert {name: reads for name, reads in undeclared.items() if reads} == {}
    assert recorder.problems == []
    read = settings_read(config_of(case, folder))
    unread = {
        path for reads in recorder.reads.values() for path in reads if not is_read(path, read)
    }
    assert unread == set()
    assert any(recorder.reads.values())


@pytest.mark.parametrize("case", CASES)
def test_a_stage_is_made_again_after_a_change_of_a_setting_that_it_declares(
    case, recorded, folder, tmp_path, one_thread
):
    """Every stage either has another key then, or declares that it is not made from the setting."""
    declared = recorded(case).inputs
    config = config_of(case, folder)
    with Stages(tmp_path / "stages") as stages:
        for setting in settings(config):
            if setting.path == "method":  # an input of every stage
                continue
            before = resolve(msgspec.to_builtins(config), WITH.get(setting.path, {}))
            keys = keys_of(declared, before, stages)
            changed = keys_of(declared, with_another(before, setting.path), stages)
            differing = {name for name, key in changed.items() if key != keys[name]}
            path = input_of(setting.path)
            assert differing == {name for name, inputs in declared.items() if path in inputs}


def keys_of(declared, config, stages):
    work = Work.begin(stages, config, {DOCUMENTS: "documents"})
    return {name: work.key(inputs) for name, inputs in declared.items()}


def with_another(config, path):
    """Return the config with another valid value of the setting at ``path``."""
    plain = msgspec.json.decode(msgspec.json.encode(config))
    *groups, name = path.split(".")
    group = plain
    for part in groups:
        group = group[int(part)] if part.isdecimal() else group[part]
    before = group[name]
    for value in others(type_of(path), before):
        group[name] = value
        try:
            return msgspec.convert(plain, Config)
        except msgspec.ValidationError:
            continue
    raise AssertionError(f"{path}: found no other value than {before!r}")


def type_of(path):
    hint = Config
    for part in path.split("."):
        hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        if part.isdecimal():
            hint = get_args(hint)[0]
        else:
            hint = get_type_hints(hint, include_extras=True)[part]
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def others(hint, before):
    """Return values that a setting of a type may have beside ``before``; some may be refused."""
    if get_origin(hint) is Literal:
        values = [*get_args(hint)]
    elif hint is bool:
        values = [not before]
    elif hint is int:
        values = [before + 1, before - 1]
    elif hint is float:
        values = [before * 0.75, before + 0.25, before / 2 + 0.1]
    elif hint is str:
        values = [f"{before}-other", "bag", "cnn"]  # kinds of encoders
    elif get_origin(hint) is dict:
        values = [{"other": 1}]
    else:
        words = [["text"], ["text", "free"], ["tfn+man"], ["tfn+man", "tfn"]]
        values = [[], [2], [3], [0.25], [0.5], [[1]], [[2]], [[1.0, 2.0]], [[2.0, 3.0]], *words]
    return [value for value in values if value != before]


# groups of settings that are changed one by one, but for some that need others with them
NOT_CHANGED = {"neighbours.index", "ranker.loss", "ranker.level_costs", "ranker.level_negatives"}
CHANGED = {
    "xr-linear, matcher": ("tfidf", "label_features", "tree", "ranker", "search", "calibration"),
    "dismec, hard negatives": ("tfidf", "tree", "ranker", "search"),
    "pfastrexml": ("tfidf", "forest", "search"),
    "annexml": ("tfidf", "neighbours", "search"),
    "xr-linear, gandalf": ("gandalf", "label_features"),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_stage_with_the_same_key_has_the_same_bytes(
    case, folder, tmp_path, monkeypatch, one_thread
):
    """Also settings that are read before a stage is made, or by an earlier stage, are declared."""
    monkeypatch.setattr("os.fsync", lambda file: None)  # hundreds of stages
    config = config_of(case, folder)
    expected = stages_of(config, tmp_path / "stages")
    assert expected
    changes = [
        setting.path
        for setting in settings(config)
        if setting.path.partition(".")[0] in (*CHANGED[case], "seed", "normalise_features")
        and setting.path not in NOT_CHANGED
    ]
    for number, path in enumerate(changes):
        changed = stages_of(with_another(config, path), tmp_path / str(number))
        for name in expected.keys() & changed.keys():
            key, contents = expected[name]
            assert changed[name][0] != key or changed[name][1] == contents, (path, name)


def stages_of(config, folder):
    """Return the key and the files of each stage of a training run."""
    with Stages(folder) as stages:
        train(TRAIN, config, valid=VALID, stages=stages)
        return {
            path.name: (manifest["config_hash"], manifest["files"])
            for path in folder.iterdir()
            if path.is_dir()
            for manifest in [msgspec.json.decode((path / "manifest.json").read_bytes())]
        }
