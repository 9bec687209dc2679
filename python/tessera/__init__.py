"""Tessera: diffusion transformers on the machine you have.

    import tessera
    pipe = tessera.Pipeline.from_pretrained("shapes")
    pipe(class_labels="red circle").images[0].save("circle.png")
"""

from ._core import CancelToken, PrefixCache, __version__
from .errors import (Cancelled, Error, ModelError, ModelNotFoundError, OutOfMemoryError, PlanError,
                     RankError, UsageError)
from .language import GenerateOutput, LanguageModel, TextStream
from .model import Model, forward, inspect
from .pipeline import Pipeline, PipelineOutput

__all__ = ["CancelToken", "Cancelled", "Error", "GenerateOutput", "PrefixCache", "LanguageModel",
           "Model", "ModelError", "ModelNotFoundError", "OutOfMemoryError", "Pipeline", "PipelineOutput",
           "PlanError", "RankError", "TextStream", "UsageError", "__version__", "forward", "inspect"]
