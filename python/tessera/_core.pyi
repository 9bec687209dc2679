from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__version__: str

class CancelToken:
    """Ends the runs that it is given to, from any thread, within a step."""
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def cancelled(self) -> bool: ...

class OpenOptions:
    dtype: str
    device: str
    plan: str
    threads: int
    ranks: int
    memory_budget: int
    comm_timeout: float
    keep_parts: bool
    map_weights: bool
    quantise_rules: str
    exact_quants: bool
    transformer: str
    text_encoders: list[str]
    vae: str
    preview_vae: str
    def __init__(self) -> None: ...

class GenerateRequest:
    classes: list[str]
    prompts: list[str]
    negative_prompt: str | None
    embeddings: str
    clean_caption: bool | None
    text_tokens: int
    steps: int | None
    timesteps: list[float]
    sigmas: list[float]
    padding_mask_crop: int | None
    guidance: float | None
    true_guidance: float
    guidance_rescale: float
    cfg_normalization: float
    cfg_truncation: float
    guidance_start: float
    width: int
    height: int
    binning: bool
    fit: bool
    frames: int
    count: int
    seed: int
    seeds: list[int]
    noise: str
    scheduler: str
    trace: str
    overwrite: bool
    decode: bool
    vae_tiling: bool
    vae_tile: int
    vae_chunk: int
    compare_steps: bool
    previews: bool
    strength: float | None
    mask_alpha: bool
    mask_soft: bool
    mask_blur: float
    image_fit: str
    outpaint: str
    cache: str
    merge_lora: bool
    def __init__(self) -> None: ...
    def add_image(self, image: str | bytes | npt.NDArray[np.uint8]) -> None: ...
    def add_lora(self, file: str, strength: float) -> None: ...
    def set_mask(self, image: str | bytes | npt.NDArray[np.uint8]) -> None: ...

class CompleteRequest:
    prompts: list[str]
    prompt_ids: list[list[int]]
    chat: str
    raw: bool
    max_tokens: int
    block: int
    decode: str
    as_published: bool
    steps: int
    cache: str
    stop_at_eos: str
    select: str
    select_refresh: bool
    select_prefill: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    seed: int
    n: int
    logprobs: int | None
    stop: list[str]
    draws: str
    def __init__(self) -> None: ...

class ForwardOptions:
    component: str
    trace: bool
    moe: str
    vae_tiling: bool
    vae_tile: int
    vae_chunk: int
    def __init__(self) -> None: ...

class TokenizeRequest:
    prompts: list[str]
    chat: str
    raw: bool
    tokenizer: str
    def __init__(self) -> None: ...

class StepWatch:
    on_step: Callable[[int, float, dict[str, Any]], None] | None
    latents: bool
    previews: bool
    def __init__(self) -> None: ...

class GenerateResult:
    def save(self, request: GenerateRequest, model: str, path: str,
             frame_rate: float | None = None, overwrite: bool = False) -> list[str]: ...
    @property
    def images(self) -> list[tuple[npt.NDArray[np.uint8], str, int, int]]: ...
    @property
    def latents(self) -> npt.NDArray[np.float32]: ...
    @property
    def report(self) -> str: ...
    @property
    def steps(self) -> int: ...
    @property
    def guidance(self) -> float: ...
    @property
    def sampler(self) -> str: ...

class PrefixCache:
    def __init__(self) -> None: ...
    @property
    def tokens(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def clear(self) -> None: ...

class OpenModel:
    def __init__(self, model: str, options: OpenOptions,
                 cancel: CancelToken | None = None) -> None: ...
    @property
    def classes(self) -> int: ...
    @property
    def makes_videos(self) -> bool: ...
    @property
    def frame_rate(self) -> float: ...
    def generate(self, request: GenerateRequest, initial: dict[str, Any], watch: StepWatch,
                 on_note: Callable[[str], None] | None = None,
                 cancel: CancelToken | None = None) -> GenerateResult: ...
    def complete(self, request: CompleteRequest,
                 on_progress: Callable[[int, str, list[str], int, bool], None] | None = None,
                 on_note: Callable[[str], None] | None = None,
                 cancel: CancelToken | None = None,
                 prefix: PrefixCache | None = None) -> str: ...
    def forward(self, options: ForwardOptions, inputs: dict[str, Any],
                on_note: Callable[[str], None] | None = None,
                cancel: CancelToken | None = None) -> dict[str, npt.NDArray[Any]]: ...
    def inspect(self, request: GenerateRequest) -> str: ...
    def tokenize(self, request: TokenizeRequest) -> str: ...
