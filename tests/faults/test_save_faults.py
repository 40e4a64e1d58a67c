"""A save of a real model of every kind on a disk that fails at each of its calls, and on one that
is really full.
"""

from __future__ import annotations

import errno
import os
import sys
from functools import cache

import numpy as np
import pytest
from failing_disk import CLEANING, CODES, EVERY, FailingDisk, chance, tally
from small_disk import small_disk
from trainings import left_behind

import longtail as lt
from folder_contents import contents
from longtail import store
from longtail.ensembling import ensemble
from longtail.models.model_folder import load_model, save_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc for what is open")

LINEAR = {
    "xr-linear": {"tree": {"branching": 8}},
    "extremetext": {"extremetext": {"dimensions": 16, "epochs": 2}},
    "dismec": {},
    "pfastrexml": {"forest": {"trees": 2}},
    "annexml": {"neighbours": {"learners": 2, "epochs": 2, "dimensions": 8, "index": "exact"}},
}
WORDS = {
    "inceptionxml": {
        "encoder": {"width": 16, "max_tokens": 8},
        "training": {"epochs": 1, "batch_size": 32},
    },
    "attentionxml": {
        "encoder": {"width": 8, "max_tokens": 8},
        "training": {"epochs": 1, "batch_size": 32},
    },
}
KINDS = [*LINEAR, *WORDS, "cascadexml", "ensemble"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@cache
def documents():
    return lt.sample()[0].take(np.arange(120))


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a function that gives a trained model of a kind."""
    encoders = tmp_path_factory.mktemp("encoders")

    @cache
    def of(kind):
        if kind in LINEAR:
            return lt.Longtail(kind, **LINEAR[kind]).fit(documents())
        if kind == "ensemble":
            return ensemble([of("xr-linear"), of("pfastrexml")])
        pytest.importorskip("transformers")
        if kind in WORDS:
            return lt.Longtail(kind, threads=1, **WORDS[kind]).fit(documents())
        from tiny_encoder import write_encoder

        encoder = write_encoder(encoders / "encoder", documents().texts)
        settings = {
            "encoder": {"name": str(encoder), "max_tokens": 8},
            "training": {"epochs": 1, "batch_size": 32},
        }
        return lt.Longtail(kind, threads=1, **settings).fit(documents())

    return lambda kind: of(kind).model


def seal(path):
    """Return the seal of a folder all of whose bytes verify."""
    return store.open_folder(path).manifest.sha256


def save_on(path, model, patch, **fault):
    """Save on a failing disk; return the disk, and the error that came of it."""
    with patch.context() as member:
        disk = FailingDisk(member, path.parent, **fault)
        return disk, error_of_save(model, path)


def error_of_save(model, path):
    """Return what the disk answered, if it did not take the model."""
    try:
        save_model(model, path)
    except OSError as error:
        return error
    return None


def faults(n_calls, seed):
    """Yield what fails: every call once and for good, or every other call in one of the two ways."""
    member = chance(seed)
    for nth in range(1, n_calls + 1) if EVERY else range(1 + member.randrange(2), n_calls + 1, 2):
        for sticky in (False, True) if EVERY else [member.random() < 0.5]:
            yield {"nth": nth, "code": member.choice(CODES), "sticky": sticky}


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_any_call_of_a_save_leaves_a_whole_model(models, kind, tmp_path, monkeypatch):
    older = models("xr-linear" if kind != "xr-linear" else "dismec")
    newer = models(kind)
    path = tmp_path / "model"
    save_model(newer, path)
    new = seal(path)
    expected = contents(path)
    save_model(older, path)
    old = seal(path)
    rehearsal, error = save_on(path, newer, monkeypatch)
    assert error is None
    assert seal(path) == new
    assert len(rehearsal.calls) > 4 * len(
        expected
    )  # of each file: made, written, synced; and its folder
    for fault in faults(len(rehearsal.calls), kind):
        if seal(path) != old or left_behind(path):
            save_model(older, path)
        assert left_behind(path) == []
        disk, error = save_on(path, newer, monkeypatch, **fault)
        if error is None:
            assert seal(path) == new, fault
            assert disk.failed in ("mkdir", "exchange", *CLEANING, ""), fault
        else:
            assert (error.errno, error.filename) == (fault["code"], str(path)), fault
            in_place = ("exchange", "rename") if not fault["sticky"] else ()
            assert seal(path) in (old, new), fault
            if disk.failed not in ("fsync", *CLEANING, *in_place):
                assert seal(path) == old, fault
        if disk.failed not in CLEANING and not fault["sticky"]:
            assert left_behind(path) == [], fault
    save_model(newer, path)
    assert left_behind(path) == []
    assert contents(path) == expected
    assert len(load_model(path).labels) == len(newer.labels)


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_full_after_any_page_of_a_save_leaves_the_old_model(models, kind, tmp_path):
    newer = models(kind)
    path = tmp_path / "disk" / "model"
    save_model(models("dismec" if kind == "xr-linear" else "xr-linear"), tmp_path / "older")
    save_model(newer, tmp_path / "newer")
    new = seal(tmp_path / "newer")
    old = seal(tmp_path / "older")
    room = sum(len(data) // 4096 + 2 for data in contents(tmp_path / "newer").values()) + 8  # pages
    with small_disk(tmp_path / "disk", 4096 * (room + 600)) as disk:
        save_model(load_model(tmp_path / "older"), path)
        failures = 0
        step = 1 if EVERY else max(1, room // 12)
        for pages in range(0, room, step):
            with disk.leaving(4096 * pages):
                error = error_of_save(newer, path)
                if error is None:
                    assert seal(path) == new
                    save_model(load_model(tmp_path / "older"), path)
                    continue
            failures += 1
            tally()
            assert (error.errno, error.filename) == (errno.ENOSPC, str(path))
            assert seal(path) == old
            assert left_behind(path) == []
        assert failures > 3
        save_model(newer, path)
        assert seal(path) == new


def test_what_a_library_hides_of_a_full_disk_is_told(tmp_path, monkeypatch):
    """Weights of a transformer are written by a library that raises no OSError."""
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("transformers")
    from tiny_encoder import tiny_encoder

    encoder = tiny_encoder()
    for output, code in [
        ("I/O error: No space left on device (os error 28)", 28),
        ("no room", errno.EIO),
    ]:

        def fails(folder, output=output):
            raise safetensors.SafetensorError(output)

        monkeypatch.setattr(encoder.model, "save_pretrained", fails)
        with pytest.raises(OSError, match=os.strerror(code)) as caught:
            encoder.save(tmp_path)
        assert caught.value.errno == code


def test_a_kernel_runs_though_it_cannot_be_kept(monkeypatch):
    from numba.core import caching

    from longtail.kernels import jit

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", full)
    monkeypatch.setattr(caching.IndexDataCacheFile, "load", lambda *_: None)
    jit._warn_uncached.cache_clear()
    twice = jit.kernel(_twice)
    with pytest.warns(RuntimeWarning, match="no writable folder for compiled kernels"):
        assert twice(21) == 42


def _twice(number):
    return 2 * number
