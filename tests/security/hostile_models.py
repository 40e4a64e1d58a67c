"""Mutants of a model folder that lie in one place each, sealed again, so that every hash holds.

Whoever can write a manifest can write a right one: what a folder says must be checked by its
meaning, too.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longtail import store
from longtail.store.manifest import MANIFEST, FileEntry, encode
from longtail.store.tensors import array_pieces

__all__ = ["Mutant", "Scratch", "mutants"]

DEEP = b"[" * 200_000
EVIL = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n"
HUGE = 10**12


class Mutant(NamedTuple):
    """A folder with other bytes in some of its files; None: without the file."""

    name: str
    files: Mapping[str, bytes | None]


class Scratch:
    """A folder of which one mutant after the other is made, in little time."""

    def __init__(self, folder: Path, path: Path) -> None:
        shutil.copytree(folder, path)
        opened = store.open_folder(folder)
        self.place = path
        self._folder = opened
        self._manifest = opened.manifest

    def become(self, mutant: Mutant) -> None:
        """Write the files of the mutant, and a manifest that says so."""
        entries = {entry.path: entry for entry in self._manifest.files}
        for name, content in mutant.files.items():
            self._replace(name, content)
            if content is None:
                entries.pop(name, None)
            else:
                entries[name] = FileEntry(name, len(content), hashlib.sha256(content).hexdigest())
        sealed = encode(
            self._manifest.producer, self._manifest.config_hash, tuple(entries.values())
        )
        self._replace(MANIFEST, sealed)

    def recover(self, mutant: Mutant) -> None:
        """Be the folder again that it was."""
        for name in mutant.files:
            self._replace(
                name, self._folder.read_bytes(name) if name in self._folder.files else None
            )

    def _replace(self, name: str, content: bytes | None) -> None:
        file = self.place / name
        file.unlink(missing_ok=True)  # not over it: the bytes of the one before may still be mapped
        if content is not None:
            file.write_bytes(content)


def mutants(folder: Path) -> Iterator[Mutant]:
    """Yield all mutants of a folder, in the same order each time."""
    opened = store.open_folder(folder)
    for name in sorted(opened.files):
        content = opened.read_bytes(name)
        if name.endswith(".safetensors"):
            yield from _of_arrays(name, opened.arrays(name), opened.array_metadata(name))
        elif name.endswith(".json"):
            yield from _of_json(name, json.loads(content))
        elif name == "labels.jsonl":
            yield from _of_labels(name, content)
        if not name.endswith("README.md"):
            yield from _of_bytes(name, content)
    if "encoder/config.json" in opened.files:
        yield from _with_code(json.loads(opened.read_bytes("encoder/config.json")))


def _of_arrays(
    file: str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> Iterator[Mutant]:
    def written(changed: Mapping[str, np.ndarray]) -> dict[str, bytes | None]:
        return {file: b"".join(bytes(piece) for piece in array_pieces(changed, metadata))}

    yield Mutant(f"{file}: no arrays", written({}))
    yield Mutant(f"{file}: one array more", written({**arrays, "more": np.zeros(3)}))
    for key, array in arrays.items():
        yield Mutant(
            f"{file}: no {key}",
            written({name: member for name, member in arrays.items() if name != key}),
        )
        for change, changed in _changes(array).items():
            if (
                changed.dtype != array.dtype
                or changed.shape != array.shape
                or changed.tobytes() != array.tobytes()
            ):
                yield Mutant(f"{file}: {key} {change}", written({**arrays, key: changed}))


def _changes(array: np.ndarray) -> dict[str, np.ndarray]:
    """Return an array in other shapes, of other types, and with other numbers."""
    flat = array.reshape(-1)
    changes = {
        "empty": flat[:0],
        "cut": flat[:-1],
        "half": flat[: len(flat) // 2],
        "longer": np.append(flat, flat[-1:]),
        "doubled": np.concatenate([flat, flat]),
        "as a row": array[None],
        "alone": np.array(flat[0] if len(flat) else 0, array.dtype),
        "reversed": np.ascontiguousarray(flat[::-1]).reshape(array.shape),
        "zeros": np.zeros_like(array),
        "float64": array.astype(np.float64),
        "int64": np.nan_to_num(array).astype(np.int64),
        "uint8": np.nan_to_num(array).astype(np.int64).astype(np.uint8),
        "bool": array.astype(bool),
        "complex": array.astype(np.complex64),
    }
    if array.ndim > 1:
        changes |= {"across": np.ascontiguousarray(array.T), "flat": flat}
    if not len(flat):
        return changes
    kind = array.dtype.kind
    most = np.finfo(array.dtype).max if kind == "f" else np.iinfo(array.dtype).max
    least = np.finfo(array.dtype).min if kind == "f" else np.iinfo(array.dtype).min
    values: dict[str, Any] = {"most": most, "least": least, "flipped": None}
    values |= (
        {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf}
        if kind == "f"
        else {"128": min(128, most)}
    )
    values |= {"minus one": -1} if kind in "if" else {}
    places = {"first": 0, "middle": len(flat) // 2, "last": len(flat) - 1}
    for what, value in values.items():
        for where, at in places.items():
            changes[f"{what} {where}"] = _with(array, at, value)
        if value is not None:
            changes[f"all {what}"] = np.full_like(array, value)
    if kind in "iu":
        for step in (1, 1000):
            changes[f"one {step} more"] = _with(
                array, len(flat) // 2, min(int(flat[len(flat) // 2]) + step, most)
            )
    return changes


def _with(array: np.ndarray, at: int, value: Any) -> np.ndarray:
    changed = np.array(array).reshape(-1)
    if value is None:
        changed[at : at + 1].view(np.uint8)[0] ^= 0xFF
    else:
        changed[at] = value
    return changed.reshape(array.shape)


def _of_json(file: str, content: Any) -> Iterator[Mutant]:
    for path in _leaves(content):
        where = ".".join(map(str, path))
        for value in (HUGE, -1, 0, 1e308, "x" * 1000, None, [], {}, [[]], True):
            yield Mutant(
                f"{file}: {where} {str(value)[:9]}",
                {file: _dumped(_set(content, path, lambda _, v=value: v))},
            )
        for value in (b"NaN", b"1e999", b"1" * 5000, DEEP):
            marked = _dumped(_set(content, path, lambda _: "\0mark"))
            yield Mutant(
                f"{file}: {where} {value[:9]!r}", {file: marked.replace(b'"\\u0000mark"', value)}
            )


def _leaves(content: Any, path: tuple[Any, ...] = (), most: int = 12) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value, of long lists and objects the first few."""
    inside = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    if path:
        yield path
    limit = most if len(path) > 1 else 60
    for number, (key, value) in enumerate(inside):
        if number < limit:
            yield from _leaves(value, (*path, key), most)


def _set(content: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(content)
    copied = content.copy()
    copied[path[0]] = _set(content[path[0]], path[1:], change)
    return copied


def _dumped(content: Any) -> bytes:
    return json.dumps(content).encode()


def _of_labels(file: str, content: bytes) -> Iterator[Mutant]:
    lines = content.splitlines(keepends=True)
    texts = {
        "one twice": content + lines[0],
        "one less": b"".join(lines[1:]),
        "one more": content + b'{"id": "more"}\n',
        "all the same": lines[0] * len(lines),
        "no id": content.replace(b'"id"', b'"di"', 1),
        "an id that is a number": b'{"id": 7}\n' + b"".join(lines[1:]),
        "deep": DEEP + b"\n" + b"".join(lines[1:]),
        "deep inside": b'{"id": "a", "aliases": ' + DEEP + b"}\n" + b"".join(lines[1:]),
        "not UTF-8": b'{"id": "\xff\xfe"}\n' + b"".join(lines[1:]),
        "control characters": b'{"id": "\\u001b[31m\\u0000"}\n' + b"".join(lines[1:]),
        "a lone surrogate": b'{"id": "\\ud800"}\n' + b"".join(lines[1:]),
        "one long line": b'{"id": "' + b"x" * 5_000_000 + b'"}\n' + b"".join(lines[1:]),
    }
    for change, text in texts.items():
        yield Mutant(f"{file}: {change}", {file: text})


def _of_bytes(file: str, content: bytes) -> Iterator[Mutant]:
    yield Mutant(f"{file}: is missing", {file: None})
    for change, changed in {
        "empty": b"",
        "half": content[: len(content) // 2],
        "zeros": bytes(len(content)),
        "deep": DEEP,
        "a pickle": b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.",
    }.items():
        yield Mutant(f"{file}: {change}", {file: changed})


def _with_code(config: dict[str, Any]) -> Iterator[Mutant]:
    """Yield encoders that ask for code of their own to be run, in all the ways that the files have."""
    evil = {
        "encoder/evil.py": EVIL.encode(),
        "encoder/modeling_evil.py": EVIL.encode(),
        "encoder/__init__.py": b"",
    }
    auto_map = dict.fromkeys(("AutoConfig", "AutoModel", "AutoTokenizer"), "evil.Evil")
    for change, more in {
        "auto_map": {"auto_map": auto_map},
        "auto_map, own type": {"auto_map": auto_map, "model_type": "evil"},
        "trusted": {"auto_map": auto_map, "trust_remote_code": True},
        "elsewhere": {
            "auto_map": {name: f"somebody/evil--{value}" for name, value in auto_map.items()}
        },
        "quantised": {
            "quantization_config": {"quant_method": "evil", "modules_to_not_convert": []}
        },
        "attention of a hub": {
            "_attn_implementation": "somebody/evil",
            "attn_implementation": "somebody/evil",
        },
        "kernels of a hub": {"use_kernels": True, "experts_implementation": "somebody/evil"},
        "adapters": {"peft_type": "LORA", "base_model_name_or_path": "somebody/evil"},
        "type of a class": {"dtype": "__import__('os')", "torch_dtype": "__import__('os')"},
    }.items():
        changed = json.dumps({**config, **more}).encode()
        yield Mutant(f"encoder/config.json: {change}", {"encoder/config.json": changed, **evil})
    yield Mutant(
        "encoder: weights as a pickle",
        {"encoder/model.safetensors": None, "encoder/pytorch_model.bin": b"x"},
    )
    adapter = {
        "encoder/adapter_config.json": b'{"peft_type": "LORA", "base_model_name_or_path": "somebody/evil"}'
    }
    yield Mutant("encoder: an adapter", {**adapter, **evil})
    tokeniser = json.dumps(
        {"tokenizer_class": "Evil", "auto_map": auto_map, "pad_token": "[PAD]"}
    ).encode()
    yield Mutant(
        "encoder: a tokeniser of its own", {"encoder/tokenizer_config.json": tokeniser, **evil}
    )
