"""A Hugging Face encoder from a local folder: one vector a document, after any of its layers.

Nothing is downloaded, no code of a folder is run, and weights are read from safetensors only.
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor
from torch.nn import Embedding, Parameter

from longtail.errors import UsageError, printable
from longtail.features.encoder_folder import (
    POOLING,
    check_folder,
    encoder_folder,
    pretrained_pooling,
)
from longtail.features.text_encoder import TextEncoder

__all__ = ["Encoder", "encoder_folder"]

Pooling = Literal["auto", "cls", "mean"]
_hf: Any = transformers  # which is typed in parts

# All tokens see all others in each of their layers, so that they take a mask that is ready for
# attention.
_FULL_ATTENTION = {
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "ernie",
    "roberta",
    "xlm-roberta",
}


class Encoder(TextEncoder):
    """A transformer of ``depth`` layers that turns token ids into vectors of ``width`` numbers.

    ``model`` is the Hugging Face module; its unused pooler is left out.
    """

    kind: ClassVar[str] = "transformer"

    def __init__(self, model: Any, pooling: Pooling = "cls") -> None:
        super().__init__()
        self.model: Any = model  # the Hugging Face module
        self.pooling = pooling
        config = model.config
        self.width = int(config.hidden_size)
        self.depth = int(config.num_hidden_layers)
        self._xlnet = config.model_type == "xlnet"
        self._ready_mask = (
            config._attn_implementation == "sdpa" and config.model_type in _FULL_ATTENTION
        )

    @classmethod
    def load(cls, folder: Path, pooling: Pooling = "cls") -> Encoder:
        """Read an encoder in float32; attention is SDPA where the architecture has it.

        Pooling «auto» is the one that the folder tells in the way of sentence-transformers, else
        [CLS]."""
        name = f"encoder {printable(str(folder))!r}"
        check_folder(folder, name)
        try:
            with _silence():
                config = _hf.AutoConfig.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False
                )
                model, report = _hf.AutoModel.from_pretrained(
                    str(folder),
                    config=config,
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    dtype=torch.float32,
                    output_loading_info=True,
                    **_options(config, name),
                )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            reason = printable(str(error).strip().partition("\n")[0])
            expected = "a whole copy of an encoder that the installed transformers knows"
            raise UsageError(
                f"{name}: transformers cannot read it: {reason}; expected {expected}"
            ) from error
        if missing := sorted(report["missing_keys"]):
            problem = f"no weights for {len(missing)} parameters, {missing[0]} the first"
            expected = f"those of {type(model).__name__}; take a whole copy"
            raise UsageError(f"{name}: found {problem}; expected {expected}")
        if pooling == "auto":
            pooling = pretrained_pooling(folder)
        return cls(model, pooling)

    @classmethod
    def from_config(
        cls, config: Any, pooling: Literal["cls", "mean"] = "cls", seed: int = 0
    ) -> Encoder:
        """Return an encoder of a transformers config with random weights, the same for the same
        seed.
        """
        with _silence(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(_hf.AutoModel.from_config(config, **_options(config, "encoder")), pooling)

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the pooling, as :meth:`load` and transformers
        read them.
        """
        try:
            with _silence():
                self.model.save_pretrained(str(folder))
        except SafetensorError as error:  # which hides what the disk answered
            code = errno.EIO
            if match := re.search(r"\(os error (\d+)\)", str(error)):
                code = int(match[1])
            raise OSError(code, os.strerror(code)) from error
        about = {
            "pooling_mode_cls_token": self.pooling == "cls",
            "pooling_mode_mean_tokens": self.pooling == "mean",
        }
        (folder / POOLING).parent.mkdir(exist_ok=True)
        (folder / POOLING).write_text(
            json.dumps({"word_embedding_dimension": self.width, **about}, indent=2) + "\n"
        )
        for weights in folder.glob("model*.safetensors"):  # which are for the owner's eyes only
            weights.chmod((folder / "config.json").stat().st_mode)

    def forward(
        self, ids: Tensor, mask: Tensor | None, layers: Sequence[int], detached: Sequence[int] = ()
    ) -> list[Tensor]:
        """Return the pooled (B, width) after each of ``layers`` (1 is the first, ``depth`` the
        last).

        ``ids`` (B, T) int64 and ``mask`` (B, T) bool, True at tokens; None says that nothing is
        padded, and lets attention run without a mask. Layers stand on each other, so a ``detached``
        one has no parameters of its own."""
        attention_mask = mask
        if mask is not None and self._ready_mask:
            # transformers would look whether the mask is all True, and make the device wait for the
            # answer
            attention_mask = mask[:, None, None, :]  # (B, 1, 1, T)
        hidden = self._run(ids, attention_mask).hidden_states
        pooled: dict[int, Tensor] = {}
        for layer in layers:
            vectors = self._pool(hidden[layer], mask)
            if layer in detached:
                vectors = vectors.detach()
            pooled[layer] = vectors
        return [pooled[layer] for layer in layers]

    def attentions(self, ids: Tensor, mask: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
        """Return attention weights (B, heads, T, T) and pooled vectors (B, width) of each layer:
        for analysis only.
        """
        before = self.model.config._attn_implementation
        self.model.set_attn_implementation("eager")  # SDPA keeps its weights to itself
        try:
            output = self._run(ids, mask, output_attentions=True)
        finally:
            self.model.set_attn_implementation(before)
        return list(output.attentions), [
            self._pool(hidden, mask) for hidden in output.hidden_states[1:]
        ]

    def token_vectors(self) -> Embedding:
        """Return the vectors of tokens, which the first layer reads."""
        vectors: Embedding = self.model.get_input_embeddings()
        return vectors

    def decay_groups(self) -> tuple[list[Parameter], list[Parameter]]:
        """Return the parameters with weight decay, and those without: biases and norms."""
        groups: tuple[dict[int, Parameter], dict[int, Parameter]] = ({}, {})
        for module in self.modules():
            # norms of some architectures are classes of their own
            norm = isinstance(module, torch.nn.LayerNorm) or type(module).__name__.endswith("Norm")
            for name, parameter in module.named_parameters(recurse=False):
                groups[norm or name.endswith("bias") or parameter.ndim < 2][id(parameter)] = (
                    parameter
                )
        return list(groups[0].values()), list(groups[1].values())

    def _run(self, ids: Tensor, mask: Tensor | None, **options: Any) -> Any:
        if self._xlnet:
            types = torch.zeros_like(ids)
            types[:, -1] = 2  # the class token is a segment of its own, as in pre-training
            options |= {"token_type_ids": types, "use_mems": False}
            if mask is not None:
                mask = mask.float()  # it is subtracted from 1
        return self.model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **options)

    def _pool(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        if self.pooling == "cls":
            return hidden[:, -1 if self._xlnet else 0]
        if mask is None:
            return hidden.float().mean(1)
        weights = mask[:, :, None].float()  # (B, T, d) x (B, T, 1) -> (B, d)
        return (hidden.float() * weights).sum(1) / weights.sum(1).clamp(min=1)


def _options(config: Any, name: str) -> dict[str, Any]:
    """Return the options for the class of ``config``: its best attention, and no pooler."""
    if type(config) not in _hf.MODEL_MAPPING or config.is_encoder_decoder:
        problem = f"found a model of type {config.model_type!r}"
        raise UsageError(f"{name}: {problem}; expected an encoder, such as BERT")
    model = _hf.MODEL_MAPPING[type(config)]
    options: dict[str, Any] = {"attn_implementation": "sdpa" if model._supports_sdpa else "eager"}
    if "add_pooling_layer" in inspect.signature(model).parameters:
        options["add_pooling_layer"] = False
    return options


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the progress bars of transformers and its reports on other content of a folder."""
    log = _hf.logging
    verbosity = log.get_verbosity()
    bars = log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
