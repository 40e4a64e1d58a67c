"""The encoder of a model as ONNX, for programs without torch: token ids in, a vector of each
document out.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from longtail import __version__
from longtail.data.output import open_output
from longtail.errors import MissingExtra, UsageError, printable
from longtail.methods import encoder_of
from longtail.models.ensemble_model import Ensemble
from longtail.models.model import Model

if TYPE_CHECKING:
    from longtail.features.tokens import Tokeniser  # which need torch
    from longtail.networks.embedder import Embedder

__all__ = ["export_encoder"]

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "vectors"

_OPSET = 17
_DIFFERENCE = 1e-4  # between vectors of torch and onnxruntime
_LABELS = 200  # whose words the vectors are compared by
_LARGEST = 2 * 10**9  # bytes of weights: a file of protocol buffers ends at 2 GiB


def export_encoder(model: Model | Ensemble, path: Path | str) -> Path:
    """Write the encoder to ``path``, and beside it the tokeniser, whose file is returned.

    The network takes ``input_ids`` and ``attention_mask``, int64 of any shape (B, T), and gives
    ``vectors`` (B, d)
    float32: those that :meth:`Model.embed` gives, which the classifiers of labels read.
    """
    embedder = _embedder(model)
    content = _onnx_bytes(embedder, model)
    with open_output(path) as out:
        out.write(content)
    beside = _tokenizer_beside(path)
    with open_output(beside) as out:
        out.write(_tokenizer_json(embedder.tokeniser))
    return beside


def _tokenizer_beside(path: Path | str) -> Path:
    """Return where the tokeniser of an exported encoder is written."""
    return Path(path).with_suffix(".tokenizer.json")


def _embedder(model: Model | Ensemble) -> Embedder:
    if isinstance(model, Ensemble):
        raise UsageError(
            "export: found an ensemble; expected one model; export its members one by one"
        )
    if model.network is None:
        raise UsageError(
            f"export: found {model.config.method}, which has no network; expected an encoder; "
            "train with a method that has one (longtail methods)"
        )
    if not encoder_of(model.config).exports_to_onnx:
        raise UsageError(
            "export: found the pooling of XML-CNN, which ONNX does not have; "
            "expected another encoder"
        )
    if model.network.device.type != "cpu":
        raise UsageError(
            f"export: found a network on {model.network.device}; expected one on the CPU; "
            "load it there"
        )
    return model.network


def _onnx_bytes(embedder: Embedder, model: Model | Ensemble) -> bytes:
    """Return the file, with what a reader must know in it, once it gives the vectors that torch
    gives.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise MissingExtra("export to ONNX", "onnx") from None
    made = onnx.load_from_string(_traced(embedder))
    tokeniser = embedder.tokeniser
    about = {
        "longtail": __version__,
        "method": model.config.method,
        "max_tokens": tokeniser.max_tokens,
        "pad_id": tokeniser.pad,
        "pad_side": _pad_side(tokeniser),
    }
    # which a program without longtail has to do before the tokeniser
    if tokeniser.cleaning != "none":
        about |= {"cleaning": tokeniser.cleaning, "separator": tokeniser.separator}
    onnx.helper.set_model_props(made, {name: str(value) for name, value in about.items()})
    content: bytes = made.SerializeToString()
    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # what it would print of a failure is in the exception
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        difference = _difference(
            session, embedder, " ".join(islice(model.labels.described(), _LABELS)).split()
        )
    except Exception as error:  # onnxruntime has no class of its own for them that it promises
        raise _not_possible(embedder, error) from error
    if not difference < _DIFFERENCE:
        raise _not_possible(embedder, ValueError(f"its vectors would differ by {difference:.2g}"))
    return content


def _difference(session: Any, embedder: Embedder, words: Sequence[str]) -> float:
    """Return how far vectors of onnxruntime are from torch's at most, over batches of other shapes
    than the traced.
    """
    texts = [" ".join(words[: 7 * number**2]) for number in range(1, 6)]
    worst = 0.0
    for batch in (texts[:1], texts[1:4], texts):
        tokens = embedder.tokeniser(batch)
        ids, mask = tokens.padded(np.arange(len(batch)))
        (vectors,) = session.run(
            [OUTPUT], dict(zip(INPUTS, (ids, mask.astype(np.int64)), strict=True))
        )
        worst = max(worst, float(np.abs(vectors - embedder.embed(tokens)).max()))
    return worst


def _tokenizer_json(tokeniser: Tokeniser) -> bytes:
    """Return a tokenizer.json that truncates and pads by itself, as the encoder wants it."""
    from tokenizers import Tokenizer

    with TemporaryDirectory() as folder:
        tokeniser.save(Path(folder))
        exported = Tokenizer.from_str((Path(folder) / "tokenizer.json").read_text("utf-8"))
    exported.enable_truncation(tokeniser.max_tokens)
    exported.enable_padding(
        direction=_pad_side(tokeniser),
        pad_id=tokeniser.pad,
        pad_token=exported.id_to_token(tokeniser.pad),
    )
    content: str = exported.to_str()
    return content.encode()


def _pad_side(tokeniser: Tokeniser) -> str:
    return "left" if tokeniser.pad_left else "right"


def _traced(embedder: Embedder) -> bytes:
    """Return the graph as torch's tracer writes it, in float32; batch and length stay open."""
    import torch

    from longtail.networks.encoders.word_encoder import without_norms

    size = 4 * sum(parameter.numel() for parameter in embedder.network.parameters())
    if size > _LARGEST:
        size_in_words = f"found {size / 1e9:.1f} GB of weights"
        raise UsageError(f"export: {size_in_words}; expected at most {_LARGEST / 1e9:.0f} GB")
    ids = torch.full(
        (2, min(6, embedder.tokeniser.max_tokens)), embedder.tokeniser.pad, device=embedder.device
    )
    out = io.BytesIO()
    axes = {name: {0: "documents", 1: "tokens"} for name in INPUTS}
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), torch.no_grad():
        # that this exporter is the older one, and of values that a trace fixes
        warnings.simplefilter("ignore")
        _tell_graphs_to_stderr()
        try:
            torch.onnx.export(
                _vectors_module(without_norms(embedder.network)),
                (ids, torch.ones_like(ids)),
                out,  # type: ignore[arg-type]
                input_names=list(INPUTS),
                output_names=[OUTPUT],
                dynamic_axes={**axes, OUTPUT: {0: "documents"}},
                opset_version=_OPSET,
                dynamo=False,  # the newer one needs one more package
            )
        except torch.onnx.errors.OnnxExporterError as error:
            raise _not_possible(embedder, error) from error
    return out.getvalue()


def _tell_graphs_to_stderr() -> None:
    """Where torch fails to export it writes its graph, past Python's stdout; a torch without the
    switch writes none.
    """
    import torch

    switch = getattr(torch._C, "_jit_set_onnx_log_output_stream", None)
    if switch is not None:
        switch("stderr")


def _not_possible(embedder: Embedder, error: Exception) -> UsageError:
    kind = type(embedder.network.encoder).__name__
    reason = printable(str(error).partition("\n")[0].partition(". ")[0])
    return UsageError(
        f"export: {kind} has a step that ONNX cannot say ({reason}); expected another encoder"
    )


def _vectors_module(network: Any) -> Any:
    from torch import Tensor, nn

    class Vectors(nn.Module):
        """What labels read, of ids and a mask of integers."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            vectors: Tensor = self.network.vectors(ids, mask.bool())[-1]
            return vectors

    return Vectors().eval()
