"""Images and videos, by diffusers' names."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _core
from .errors import UsageError
from .model import Model
from .requests import Seed, expect, fill, in_python, listed, one_text, seed_of, tiling_of

try:
    from PIL import Image as _pil
except ImportError:  # arrays are given instead
    _pil = None  # type: ignore[assignment]

_log = logging.getLogger("tessera")
_OUTPUTS = ("pil", "np", "latent")
_FITTINGS = {"default": "stretch"}  # diffusers' word for ours
_WATCHED = ("latents", "previews")
# The names of the library's fields here.
_ARGUMENTS = {"prompts": "prompt", "classes": "class_labels",
              "steps": "num_inference_steps", "guidance": "guidance_scale",
              "true_guidance": "true_cfg_scale", "frames": "num_frames",
              "count": "num_images_per_prompt", "seed": "generator", "seeds": "generator",
              "text_tokens": "max_sequence_length", "binning": "use_resolution_binning",
              "vae_tile": "vae_tiling", "initial_latents": "latents",
              "mask": "mask_image", "image_fit": "resize_mode",
              "mask_alpha": "alpha_mask", "mask_soft": "soft_mask"}

Callback = Callable[["Pipeline", int, float, dict[str, Any]], "dict[str, Any] | None"]


@dataclasses.dataclass
class PipelineOutput:
    """What a call made. Of a model of images `images`, of one of videos `frames`; the other is None.

    images: with output_type="pil" a list of PIL images, or without Pillow as with "np": float32
        [images, height, width, 3] from 0 to 1; with "latent" the same as `latents`.
    frames: with "pil" a list of images for each video; with "np" [videos, frames, height, width, 3].
    latents: float32, as --save-latents of the command line writes them.
    report: what happened, as --report of the command line writes it.
    """

    images: Any
    frames: Any
    latents: npt.NDArray[np.float32]
    labels: list[str]
    report: dict[str, Any]
    _save: Callable[[str, "float | None", bool], list[str]] = dataclasses.field(repr=False, compare=False)

    def save(self, path: str | os.PathLike[str], *, frame_rate: float | None = None,
             overwrite: bool = False) -> list[str]:
        """Writes the images or videos with their parameters inside, as -o of the command line does:
        into a file named by its kind (.png .webp .jpg, .mp4 at the model's frame rate), numbered ones
        where there are several, or a folder. A file that Tessera did not write is replaced with
        overwrite=True only. Returns their names."""
        if not self.labels:  # one for each image or video
            raise UsageError('output_type="latent" makes no images to save')
        return self._save(os.fspath(path), frame_rate, overwrite)


def _as_asked(arrays: list[npt.NDArray[np.uint8]], output_type: str) -> Any:
    if output_type == "pil" and _pil is not None:
        return [_pil.fromarray(array) for array in arrays]
    return np.stack(arrays).astype(np.float32) / np.float32(255)


def _image_of(image: Any, name: str) -> str | bytes | npt.NDArray[np.uint8]:
    """A path, the bytes of a file, a PIL image, or an array: bytes, or floats from 0 to 1."""
    if isinstance(image, (str, bytes)):
        return image
    if hasattr(image, "__fspath__"):
        return str(image)
    if hasattr(image, "convert"):
        if image.mode in ("RGBA", "LA", "PA"):  # whose alpha may be asked for
            stream = io.BytesIO()
            image.save(stream, "PNG")
            return stream.getvalue()
        return np.asarray(image.convert("RGB"))
    array = np.asarray(image)
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, 2)
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype.kind not in "uf":
        raise UsageError(f"{name}: expected a path, bytes, a PIL image, or an array [height, width, 3] of "
                         f"bytes or of floats from 0 to 1; got {array.dtype} {list(array.shape)}")
    if array.dtype.kind == "f":
        array = np.rint(np.clip(array, 0, 1) * 255)
    return np.ascontiguousarray(array, dtype=np.uint8)


def _output_of(result: _core.GenerateResult, output_type: str, videos: bool,
               save: Callable[[str, float | None, bool], list[str]]) -> PipelineOutput:
    latents, shown = result.latents, result.images
    images: Any = None
    frames: Any = None
    if output_type == "latent":
        images, frames = (None, latents) if videos else (latents, None)
    elif videos:
        count = shown[-1][2] + 1
        frames = [_as_asked([array for array, _, video, _ in shown if video == i], output_type)
                  for i in range(count)]
        if not isinstance(frames[0], list):
            frames = np.stack(frames)
    else:
        images = _as_asked([array for array, _, _, _ in shown], output_type)
    labels = [label for _, label, _, frame in shown if frame == 0]
    return PipelineOutput(images, frames, latents, labels, json.loads(result.report), save)


class Pipeline(Model):
    """A model of images or videos.

    >>> pipe = Pipeline.from_pretrained("shapes")
    >>> pipe(class_labels="red circle", num_inference_steps=10).images[0].save("circle.png")
    """

    def __init__(self, model: str, options: Mapping[str, Any]) -> None:
        super().__init__(model, options)
        self._loras: dict[str, tuple[str, float]] = {}  # name: file and strength

    def __call__(self, prompt: str | Sequence[str] | None = None,
                 negative_prompt: str | Sequence[str] | None = None, *,
                 class_labels: int | str | Sequence[int | str] | None = None,
                 num_inference_steps: int | None = None, timesteps: Sequence[float] | None = None,
                 sigmas: Sequence[float] | None = None, guidance_scale: float | None = None,
                 true_cfg_scale: float | None = None, guidance_rescale: float | None = None,
                 height: int | None = None, width: int | None = None, num_frames: int | None = None,
                 num_images_per_prompt: int | None = None, num_videos_per_prompt: int | None = None,
                 generator: Seed | Sequence[Seed] | None = None, latents: Any = None,
                 max_sequence_length: int | None = None, clean_caption: bool | None = None,
                 image: Any = None, mask_image: Any = None, strength: float | None = None,
                 soft_mask: bool | None = None, cache: str | None = None,
                 alpha_mask: bool | None = None, resize_mode: str | None = None, outpaint: str | None = None,
                 padding_mask_crop: int | None = None, use_resolution_binning: bool | None = None,
                 fit: bool | None = None, output_type: str = "pil", callback_on_step_end: Callback | None = None,
                 callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
                 scheduler: str | None = None, noise: str | None = None,
                 embeddings: str | None = None, vae_tiling: bool | int | None = None, vae_chunk: int | None = None,
                 trace: str | None = None, overwrite: bool | None = None,
                 plan: str | Mapping[str, Any] | None = None, ranks: int | None = None, threads: int | None = None,
                 cancel: _core.CancelToken | None = None, **fields: Any) -> PipelineOutput:
        """Makes images or videos. None means the model's default; see docs/guides/python.md. Further
        fields of a request are given by the names of the server's guide, as `mask_blur=4`."""
        if output_type not in _OUTPUTS:
            raise UsageError(f"output_type={output_type!r}: expected one of {', '.join(_OUTPUTS)}")
        expect(cancel, _core.CancelToken, "cancel", "a CancelToken")
        expect(callback_on_step_end, Callable, "callback_on_step_end", "a function")
        expect(callback_on_step_end_tensor_inputs, Sequence, "callback_on_step_end_tensor_inputs",
               f"a list of {', '.join(_WATCHED)}")
        tiled, pixels = tiling_of(vae_tiling)
        arguments = dict(_ARGUMENTS)
        if num_videos_per_prompt is not None:
            arguments["count"] = "num_videos_per_prompt"
        request = fill(
            _core.GenerateRequest(), arguments, prompts=listed(prompt), embeddings=embeddings, trace=trace,
            overwrite=overwrite, negative_prompt=one_text(negative_prompt, "negative_prompt"), noise=noise,
            classes=[str(label) for label in listed(class_labels) or ()],
            steps=num_inference_steps, timesteps=listed(timesteps), sigmas=listed(sigmas),
            padding_mask_crop=padding_mask_crop, guidance=guidance_scale, true_guidance=true_cfg_scale,
            guidance_rescale=guidance_rescale, height=height, width=width, frames=num_frames,
            count=num_images_per_prompt if num_videos_per_prompt is None else num_videos_per_prompt,
            text_tokens=max_sequence_length, clean_caption=clean_caption, scheduler=scheduler,
            binning=use_resolution_binning, fit=fit, vae_tiling=tiled, vae_tile=pixels, vae_chunk=vae_chunk,
            decode=output_type != "latent", strength=strength, mask_soft=soft_mask, mask_alpha=alpha_mask,
            image_fit=_FITTINGS.get(resize_mode or "", resize_mode), outpaint=outpaint, cache=cache)
        fill(request, arguments, **fields)
        self._give_files(request, image, mask_image)
        _seed(request, generator)
        watch = self._watch(request, callback_on_step_end, callback_on_step_end_tensor_inputs)
        model = self._opened_for(plan=plan, ranks=ranks, threads=threads)
        initial = {} if latents is None else {"latents": latents}
        with in_python(arguments):
            result = model.generate(request, initial, watch, _log.info, cancel)

        def save(path: str, frame_rate: float | None, overwrite: bool) -> list[str]:
            with in_python({}):
                return result.save(request, self._name, path, frame_rate, overwrite)

        return _output_of(result, output_type, model.makes_videos, save)

    @property
    def _interrupt(self) -> bool:
        return False

    @_interrupt.setter
    def _interrupt(self, value: bool) -> None:
        if value:
            warnings.warn("pipe._interrupt has no effect: CancelToken.cancel() ends a call that was given "
                          "the token as cancel=", stacklevel=2)

    def load_lora_weights(self, path: Any, adapter_name: str | None = None) -> None:
        """Adds an adapter file to every later call, at strength 1 or as `set_adapters` says. Files are
        read, and refused, by a call."""
        path = str(path)
        name = adapter_name if adapter_name is not None else f"default_{len(self._loras)}"
        if name in self._loras:
            raise UsageError(f"adapter_name={name!r}: there is one of this name; unload_lora_weights() ends all")
        self._loras[name] = (path, 1.0)

    def set_adapters(self, adapter_names: str | Sequence[str],
                     adapter_weights: float | Sequence[float] | None = None) -> None:
        """Says which adapters later calls use, and how much of each; the others are off."""
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        weights = adapter_weights if isinstance(adapter_weights, Sequence) else (
            [1.0 if adapter_weights is None else adapter_weights] * len(names))
        if len(weights) != len(names):
            raise UsageError(f"adapter_weights: {len(weights)} for {len(names)} adapters")
        for name in names:
            if name not in self._loras:
                raise UsageError(f"adapter_names: {name!r} is none of {', '.join(self._loras) or 'none'}")
        chosen = dict(zip(names, weights))
        self._loras = {name: (path, float(chosen.get(name, 0.0)))
                       for name, (path, _) in self._loras.items()}

    def unload_lora_weights(self) -> None:
        """Ends all adapters."""
        self._loras = {}

    def _give_files(self, request: _core.GenerateRequest, image: Any, mask_image: Any) -> None:
        for one in image if isinstance(image, (list, tuple)) else [image]:
            if one is not None:
                request.add_image(_image_of(one, "image"))
        if mask_image is not None:
            request.set_mask(_image_of(mask_image, "mask_image"))
        for path, weight in self._loras.values():
            if weight != 0:
                request.add_lora(path, weight)

    def _watch(self, request: _core.GenerateRequest, callback: Callback | None,
               wanted: Sequence[str]) -> _core.StepWatch:
        watch = _core.StepWatch()
        if callback is None:
            return watch
        for name in wanted:
            if name not in _WATCHED:
                raise UsageError(f"callback_on_step_end_tensor_inputs: {name!r} is none of "
                                 f"{', '.join(_WATCHED)}")
        watch.latents, watch.previews = "latents" in wanted, "previews" in wanted
        request.previews = watch.previews

        def on_step(step: int, timestep: float, seen: dict[str, Any]) -> None:
            if "latents" in seen:
                seen["latents"].flags.writeable = False
            if "previews" in seen:
                seen["previews"] = _as_asked([array for array, _, _, _ in seen["previews"]], "pil")
            returned = callback(self, step, timestep, dict(seen))
            for name, value in (returned or {}).items():
                if value is not seen.get(name):
                    raise UsageError(f"callback_on_step_end returned other {name}: a callback looks "
                                     f"on, and cannot change a run")

        watch.on_step = on_step
        return watch


def _seed(request: _core.GenerateRequest, generator: Seed | Sequence[Seed] | None) -> None:
    if isinstance(generator, Sequence):
        if not generator:
            raise UsageError("generator=[]: give a seed, or one for each image")
        fill(request, _ARGUMENTS, seeds=[seed_of(one) for one in generator])
    elif generator is not None:
        fill(request, _ARGUMENTS, seed=seed_of(generator))
