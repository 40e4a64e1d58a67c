"""Encoders on vectors of words, E of shape (V, D): what all kinds share, how they are made, written
and read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import adaptive_avg_pool1d, dropout
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.parametrize import is_parametrized

from longtail.errors import ModelFolderError, UsageError, printable, unknown_name
from longtail.features.text_encoder import TextEncoder
from longtail.methods.registry import encoder_kinds, load_plugins
from longtail.networks.encoders.kinds import WordEncoderKind
from longtail.store.tensors import array_pieces, read_arrays

__all__ = ["MODEL_TYPE", "SpectralResidual", "WordEncoder", "make_word_encoder", "without_norms"]

N = TypeVar("N")

MODEL_TYPE = "longtail-words"  # in config.json, where Hugging Face has «bert» and the like
_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"


class WordEncoder(TextEncoder):
    """A network on vectors of words; ``layer`` 1 to ``depth`` each give a vector of ``width``
    numbers.

    ``embedding`` has a row a word, that of ``pad`` zero and kept so; ``idf`` (V,) weighs words, for
    those who sum."""

    idf: Tensor

    def __init__(self, vectors: Tensor, idf: Tensor, pad: int, max_tokens: int) -> None:
        """Take ``vectors`` (V, D) as they are, not a copy of them."""
        super().__init__()
        with torch.no_grad():
            vectors[pad] = 0
        self.embedding = nn.Embedding(
            len(vectors), vectors.shape[1], padding_idx=pad, _weight=vectors
        )
        self.register_buffer("idf", idf)
        self.pad = pad
        self.max_tokens = max_tokens
        self.dimensions = vectors.shape[1]

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int], detached: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return (B, width) after each of ``layers``; a layer of ``detached`` trains what
        :meth:`layer` adds alone.

        ``ids`` (B, T) int64, T ≤ ``max_tokens``; ``mask`` (B, T) bool, True at tokens, or None if
        nothing is padded."""
        if mask is not None:
            ids = ids.masked_fill(~mask, self.pad)
        hidden = self.read(ids)
        return [
            self.layer(hidden.detach() if number in detached else hidden, number)
            for number in layers
        ]

    def read(self, ids: Tensor) -> Tensor:
        """Return the input of all layers; ``ids`` (B, T) has padding where there is no token."""
        raise NotImplementedError

    def layer(self, hidden: Tensor, number: int) -> Tensor:
        """Return the (B, width) of the layer ``number``, counted from 1, of what :meth:`read`
        gave.
        """
        raise NotImplementedError

    def options(self) -> dict[str, int]:
        """Return the further content of config.json for an encoder of this kind."""
        return {}

    @classmethod
    def from_config(cls, about: Mapping[str, Any], vectors: Tensor, idf: Tensor) -> WordEncoder:
        """Return an encoder as config.json describes it, checked but for :meth:`options`."""
        return cls(vectors, idf, about["pad"], about["max_tokens"])

    def token_vectors(self) -> nn.Embedding:
        """Return the vectors of words."""
        return self.embedding

    def decay_groups(self) -> tuple[list[Parameter], list[Parameter]]:
        """Return the parameters with weight decay, and those without: biases, norms, and the
        vectors of words.

        With decay, a rare word would fade from one of its sightings to the next.
        """
        groups: tuple[list[Parameter], list[Parameter]] = ([], [])
        for parameter in self.parameters():
            groups[parameter is self.embedding.weight or parameter.ndim < 2].append(parameter)
        return groups

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, as :meth:`load` reads them."""
        folder.mkdir(parents=True, exist_ok=True)
        about = {"model_type": MODEL_TYPE, "kind": self.kind, "vocabulary": len(self.idf)}
        about |= {
            "dimensions": self.dimensions,
            "max_tokens": self.max_tokens,
            "pad": self.pad,
            **self.options(),
        }
        (folder / _CONFIG).write_text(json.dumps(about, indent=2) + "\n")
        arrays = {name: tensor.detach().cpu().numpy() for name, tensor in self.state_dict().items()}
        with open(folder / _WEIGHTS, "wb") as file:
            for piece in array_pieces(arrays):
                file.write(piece)

    @staticmethod
    def load(folder: Path) -> WordEncoder:
        """Read an encoder of any kind."""
        name_of_folder = f"encoder {printable(str(folder))!r}"
        about = _about(folder, name_of_folder)
        arrays = _arrays(folder, name_of_folder)
        vectors = arrays.get("embedding.weight")
        idf = arrays.get("idf")
        vocabulary = about["vocabulary"]
        dimensions = about["dimensions"]
        pad = about["pad"]
        if (
            vectors is None
            or vectors.shape != (vocabulary, dimensions)
            or idf is None
            or idf.shape != (vocabulary,)
        ):
            expected = f"{vocabulary} words of {dimensions} numbers, as config.json says"
            raise _damaged(name_of_folder, "found other vectors of words, or none", expected)
        if not pad < vocabulary:
            raise _damaged(
                name_of_folder, f"found {pad} as the id of padding", f"less than {vocabulary}"
            )
        state = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        with _seeded(0):
            made = _class_of(about["kind"]).from_config(
                about, state["embedding.weight"], state["idf"]
            )
        try:
            made.load_state_dict(state)
        except RuntimeError as error:
            reason = printable(" ".join(str(error).split())[:200])
            raise _damaged(
                name_of_folder, f"found weights that do not fit ({reason})", f"those of {made.kind}"
            ) from error
        return made


class SpectralResidual(nn.Module):
    """``activation``(R·dropout(x)) + x, where R has no singular value above 1 (``map``, a linear
    map with bias).

    x is averaged down to the columns of R where it has more.
    """

    def __init__(
        self, columns: int, width: int, activation: nn.Module, rate: float, identity: bool = False
    ) -> None:
        super().__init__()
        linear = nn.Linear(columns, width)
        if identity:
            nn.init.eye_(linear.weight)
        else:
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(linear.bias)
        self.map = spectral_norm(linear)
        self.activation = activation
        self.rate = rate
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, width) for (B, columns)."""
        through: Tensor = self.activation(self.map(dropout(x, self.rate, self.training)))
        if x.shape[1] != self.width:
            x = adaptive_avg_pool1d(x[:, None], self.width)[:, 0]
        return through + x


def make_word_encoder(
    kind: str,
    vectors: NDArray[np.float32],
    idf: NDArray[np.float32],
    pad: int,
    max_tokens: int,
    seed: int,
    options: Mapping[str, Any] | None = None,
) -> WordEncoder:
    """Return an encoder that starts at ``vectors`` (V, D); all other weights are drawn, the same
    for the same seed.

    Args:
        kind: name of a registered kind.
        vectors: of the words.
        idf: weights of the words (V,).
        pad: id of padding.
        max_tokens: longest text.
        seed: of all weights but the vectors.
        options: keyword arguments of the kind's class (:meth:`WordEncoderKind.options`).
    """
    with _seeded(seed):
        return _class_of(kind)(
            torch.from_numpy(np.array(vectors)),
            torch.from_numpy(np.array(idf)),
            pad,
            max_tokens,
            **(options or {}),
        )


@torch.no_grad()
def without_norms(network: N) -> N:
    """Return a network for inference whose encoder has plain weights where a spectral norm made
    them in every pass.

    All else is shared; a network without such norms comes back itself.
    """
    shell: Any = network
    normed = [
        name for name, module in shell.encoder.named_modules() if is_parametrized(module, "weight")
    ]
    if not normed:
        return network
    shared = {
        id(tensor): tensor for tensor in chain(shell.encoder.parameters(), shell.encoder.buffers())
    }
    encoder = deepcopy(shell.encoder, shared).eval()
    # torch's own removal would take the norm from the class, which the original has too
    for name in normed:
        linear = encoder.get_submodule(name)
        # draws nothing
        plain = nn.Linear(linear.in_features, linear.out_features, bias=False, device="meta")
        plain.weight = nn.Parameter(linear.weight, requires_grad=False)
        plain.bias = linear.bias
        encoder.set_submodule(name, plain.eval())
    changed = copy(shell)
    changed._modules = shell._modules | {"encoder": encoder}
    return changed  # type: ignore[no-any-return]


def _class_of(kind: str) -> type[WordEncoder]:
    """Return the class of a registered kind."""
    load_plugins()
    words = {entry.name: entry for entry in encoder_kinds() if isinstance(entry, WordEncoderKind)}
    if kind not in words:
        raise UsageError(unknown_name("kind of encoder", kind, words))
    return words[kind].encoder_class()


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw from ``seed`` meanwhile, and leave torch's own generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _about(folder: Path, name_of_folder: str) -> Mapping[str, Any]:
    try:
        about = json.loads((folder / _CONFIG).read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{name_of_folder}: found no {_CONFIG} in the folder; expected that of an encoder"
        ) from None
    except ValueError as error:
        raise _damaged(name_of_folder, f"{_CONFIG}: found no JSON", "a JSON object") from error
    if (
        not isinstance(about, dict)
        or about.get("model_type") != MODEL_TYPE
        or not isinstance(about.get("kind"), str)
    ):
        raise _damaged(
            name_of_folder,
            f"{_CONFIG}: found another kind of model",
            f"model_type {MODEL_TYPE!r} and its kind",
        )
    for name, least in {"vocabulary": 1, "dimensions": 1, "max_tokens": 1, "pad": 0}.items():
        if type(about.get(name)) is not int or about[name] < least:
            raise _damaged(
                name_of_folder,
                f"{_CONFIG}: found {str(about.get(name))[:60]!r} as {name}",
                f"{least} or more",
            )
    return about


def _arrays(folder: Path, name_of_folder: str) -> dict[str, NDArray[Any]]:
    file = folder / _WEIGHTS
    try:
        return read_arrays(memoryview(file.read_bytes()), file)
    except FileNotFoundError:
        raise _damaged(
            name_of_folder, f"found no {_WEIGHTS} in the folder", "it beside config.json"
        ) from None
    except ModelFolderError as error:
        raise UsageError(f"{name_of_folder}: {error}") from error


def _damaged(name_of_folder: str, problem: str, expected: str) -> UsageError:
    return UsageError(
        f"{name_of_folder}: {problem}; expected {expected}; take an undamaged copy of it"
    )
