"""An open model folder: what pipelines and language models have in common."""

from __future__ import annotations

import json
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from . import _core
from .errors import ModelError, ModelNotFoundError, UsageError
from .requests import expect, fill, in_python, listed, plan_text, tiling_of

Self = TypeVar("Self", bound="Model")

_log = logging.getLogger("tessera")
_CARRIED = pathlib.Path(__file__).parent / "models"


def _is_there(name: str) -> bool:
    """Whether a name is a folder, or one of those that the user chose for shipped models."""
    chosen = os.environ.get("TESSERA_MODELS", "")
    return os.path.exists(name) or bool(chosen) and os.path.isdir(os.path.join(chosen, name))


def _folder_of(model: str | os.PathLike[str]) -> str:
    """The folder of a shipped model that this package carries; else what was given."""
    name = os.fspath(model)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise UsageError(f"model={name!r}: expected a name in UTF-8") from None
    carried = _CARRIED / name
    return str(carried) if name and not _is_there(name) and "/" not in name and carried.is_dir() else name


def _paths(files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[str]:
    """One file or several, as text."""
    if isinstance(files, (str, os.PathLike)):
        return [os.fspath(files)]
    return [os.fspath(file) for file in files]


def _dtype_word(dtype: Any) -> str | None:
    """The word of a dtype: "bf16", or "torch.bfloat16" and what else names it."""
    if dtype is None:
        return None
    word = str(dtype).rpartition(".")[2]
    return {"bfloat16": "bf16", "float32": "f32"}.get(word, word)


def _rules_text(rules: str | Mapping[str, str]) -> str:
    """Rules of quantised products as the library reads them."""
    return rules if isinstance(rules, str) else ",".join(f"{of}={form}" for of, form in rules.items())


class Model:
    """A model folder that is open for work. Any number of threads may use it at once.

    A model lives in the process that opened it: after a fork the child opens it again.
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        self._name = model
        self._options = dict(options)
        self._core = self._open(self._options)

    @classmethod
    def from_pretrained(cls: type[Self], model: str | os.PathLike[str], *, dtype: Any = None,
                        torch_dtype: Any = None, device: str = "cpu", threads: int = 0,
                        plan: str | Mapping[str, Any] = "", ranks: int = 0, memory_budget: int = 0,
                        comm_timeout: float = 60.0, keep_parts: bool = True,
                        map_weights: bool = False,
                        quantise_rules: str | Mapping[str, str] = "", exact_quants: bool = False,
                        transformer: str | os.PathLike[str] = "",
                        text_encoder: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
                        vae: str | os.PathLike[str] = "",
                        preview_vae: str | os.PathLike[str] = "") -> Self:
        """Opens a folder in the diffusers or transformers layout, a shipped model by its name
        ("shapes"), or a downloaded repository by its id; weights are read when first used.

        dtype: "bf16" (default), "f32", "int8" or "int4"; torch_dtype is the same by diffusers' name.
        threads: of the process, divided over its ranks; 0: all cores.
        plan: over ranks that are threads, as "cfg=2,ulysses=2" or a dict; ranks: what it must need.
        memory_budget: bytes that a run may take; 0: nearly all of the machine's.
        keep_parts: keep the transformer between calls, and text encoders and VAE as far as they fit;
            else it is released before decoding, and they are when they were used.
        map_weights: use those of a quantised folder, and embeddings, where their files lie in the
            system's memory; a file that shrinks meanwhile ends the process.
        quantise_rules: the form of single products, as "attn=int8,mlp=int4" or a dict; "vae=int8"
            for the residual blocks of the VAE.
        exact_quants: compute with a GGUF's own numbers in bf16, not in as few bits.
        transformer, text_encoder, vae: GGUF or single safetensors files in place of the folder's
            weights; a text encoder as "text_encoder_2=FILE" where several could be meant. vae and
            preview_vae, for previews alone, may be a folder or file of a TAESD.
        """
        if dtype is not None and torch_dtype is not None:
            raise TypeError("give one of dtype and torch_dtype, not both")
        return cls(os.fspath(model), {
            "dtype": _dtype_word(torch_dtype if dtype is None else dtype), "device": device,
            "threads": threads, "plan": plan_text(plan), "ranks": ranks,
            "memory_budget": memory_budget, "comm_timeout": comm_timeout,
            "keep_parts": keep_parts, "map_weights": map_weights,
            "quantise_rules": _rules_text(quantise_rules), "exact_quants": exact_quants,
            "transformer": os.fspath(transformer), "text_encoders": _paths(text_encoder),
            "vae": os.fspath(vae), "preview_vae": os.fspath(preview_vae)})

    def to(self: Self, device: str) -> Self:
        """This model on another device, "cpu" or "cuda"."""
        if device != self._options["device"]:
            core = self._open({**self._options, "device": device})
            self._options["device"], self._core = device, core
        return self

    @property
    def classes(self) -> int:
        """The number of classes that a call may name; 0: it takes none."""
        return self._core.classes

    @property
    def makes_videos(self) -> bool:
        """Whether its results are videos."""
        return self._core.makes_videos

    @property
    def frame_rate(self) -> float:
        """Frames a second of the videos that it was trained on."""
        return self._core.frame_rate

    def forward(self, component: str, inputs: Mapping[str, Any], *, trace: bool = False,
                moe: str = "", vae_tiling: bool | int = False, vae_chunk: int = 0,
                cancel: _core.CancelToken | None = None) -> dict[str, Any]:
        """Runs one component ("transformer", "model", "vae.decode", ...) on arrays by the
        reference's argument names, of NumPy or of what else speaks DLPack. Returns `out` and, with
        `trace`, the stream after every block. `moe` says how a moe_layer runs."""
        tiled, pixels = tiling_of(vae_tiling)
        options = fill(_core.ForwardOptions(), component=component, trace=trace, moe=moe,
                       vae_tiling=tiled, vae_tile=pixels, vae_chunk=vae_chunk)
        expect(inputs, Mapping, "inputs", "a dict of arrays by their names")
        expect(cancel, _core.CancelToken, "cancel", "a CancelToken")
        with in_python():
            return self._core.forward(options, dict(inputs), _log.info, cancel)

    def inspect(self, **request: Any) -> dict[str, Any]:
        """Parts, shapes and parameters, and what a run would take; `request` as fields of the
        library's GenerateRequest: width, height, steps, count."""
        filled = fill(_core.GenerateRequest(), **request)
        with in_python():
            inspection: dict[str, Any] = json.loads(self._core.inspect(filled))
        return inspection

    def tokenize(self, texts: str | list[str], *, raw: bool = False,
                 tokenizer: str = "") -> list[dict[str, Any]]:
        """Texts as the model's tokenizers cut them: ids and pieces."""
        request = fill(_core.TokenizeRequest(), {"prompts": "texts"}, prompts=listed(texts), raw=raw,
                       tokenizer=tokenizer)
        with in_python({"prompt": "texts"}):
            tokens: list[dict[str, Any]] = json.loads(self._core.tokenize(request))
        return tokens

    def _open(self, options: Mapping[str, Any]) -> _core.OpenModel:
        folder = _folder_of(self._name)
        try:
            with in_python():
                return _core.OpenModel(folder, fill(_core.OpenOptions(), **options))
        except ModelError as error:
            missing = str(error).startswith(("the model folder ", "there is no model folder "))
            if not missing or _is_there(folder):
                raise
            raise ModelNotFoundError(str(error)) from None

    def _opened_for(self, **changes: Any) -> _core.OpenModel:
        """The open model, or one of the same weights with other options for one call."""
        changes = {name: value for name, value in changes.items() if value is not None}
        if "plan" in changes:
            changes = {"ranks": 0, **changes, "plan": plan_text(changes["plan"])}
        return self._open({**self._options, **changes}) if changes else self._core


def forward(model: str | os.PathLike[str], component: str, inputs: Mapping[str, Any], *,
            dtype: Any = "f32", trace: bool = False, moe: str = "",
            vae_tiling: bool | int = False, vae_chunk: int = 0,
            **options: Any) -> dict[str, Any]:
    """Runs one component of a folder on arrays; see Model.forward and Model.from_pretrained."""
    opened = Model.from_pretrained(model, dtype=dtype, **options)
    return opened.forward(component, inputs, trace=trace, moe=moe, vae_tiling=vae_tiling,
                          vae_chunk=vae_chunk)


def inspect(model: str | os.PathLike[str], **options: Any) -> dict[str, Any]:
    """What a folder holds and what a run would need; options as of Model.from_pretrained."""
    return Model.from_pretrained(model, **options).inspect()
