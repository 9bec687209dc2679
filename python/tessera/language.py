"""Text, by masked diffusion language models."""

from __future__ import annotations

import dataclasses
import json
import logging
import operator
import os
import queue
import reprlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, SupportsFloat

from . import _core
from .errors import UsageError
from .model import Model
from .requests import expect, fill, in_python, listed

_log = logging.getLogger("tessera")

Chat = Sequence[Mapping[str, Any]]
_CHAT = "a list of {'role': ..., 'content': ...}"
Progress = Callable[[int, str, "list[str]", int, bool], None]


@dataclasses.dataclass
class GenerateOutput:
    """Answers in the order of the prompts.

    texts: of each; "" for a folder without a tokenizer.
    completions: ids, confidences, passes, finish and usage of each.
    report: the whole, as --json of the command line shows it.
    """

    texts: list[str]
    completions: list[dict[str, Any]]
    report: dict[str, Any]

    @property
    def text(self) -> str:
        """The first answer."""
        return self.texts[0]


def _output_of(report: str) -> GenerateOutput:
    read: dict[str, Any] = json.loads(report)
    completions: list[dict[str, Any]] = read["completions"]
    return GenerateOutput([answer.get("text", "") for answer in completions], completions, read)


class TextStream(Iterator[str]):
    """The pieces of an answer as they become final; `result` is there when it has ended. close(),
    the end of a with block, and an iterator that is thrown away end the run."""

    def __init__(self, run: Callable[[Callable[[str], None], _core.CancelToken], str]) -> None:
        self.result: GenerateOutput | None = None
        self._pieces: queue.SimpleQueue[str | BaseException | GenerateOutput] = queue.SimpleQueue()
        self._cancel = _core.CancelToken()
        self._ended = False
        pieces, cancel = self._pieces, self._cancel  # not self: it ends the run when thrown away

        def work() -> None:
            try:
                pieces.put(_output_of(run(pieces.put, cancel)))
            except BaseException as error:  # it comes out where the pieces are read
                pieces.put(error)

        self._thread = threading.Thread(target=work, name="tessera-stream")
        self._thread.start()

    def __next__(self) -> str:
        if self._ended:
            raise StopIteration
        try:
            piece = self._pieces.get()
        except BaseException:  # such as KeyboardInterrupt, which holds this stream in its traceback
            self._cancel.cancel()
            raise
        if isinstance(piece, str):
            return piece
        self._ended = True
        self._pieces.put(piece)  # for another thread that waits in here
        if isinstance(piece, BaseException):
            raise piece
        self.result = piece
        raise StopIteration

    def close(self) -> None:
        """Ends the run within a pass, and waits for that."""
        self._cancel.cancel()
        self._thread.join()
        self._ended = True

    def __enter__(self) -> TextStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._cancel.cancel()


class LanguageModel(Model):
    """A masked diffusion language model.

    >>> model = LanguageModel.from_pretrained("tasks-a")
    >>> model.generate("sort hello=").text
    'ehllo'
    """

    def generate(self, prompt: str | Sequence[str] | None = None, *,
                 prompt_ids: Sequence[Sequence[int]] | None = None, chat: Chat | None = None,
                 enable_thinking: bool | None = None, on_progress: Progress | None = None,
                 plan: str | Mapping[str, Any] | None = None, ranks: int | None = None,
                 threads: int | None = None, cancel: _core.CancelToken | None = None,
                 prefix: _core.PrefixCache | None = None, **options: Any) -> GenerateOutput:
        """Completes prompts, lists of ids, or one chat of {"role": ..., "content": ...}; all are
        one batch, and each answer is that of its prompt alone.

        options, as those of `tessera complete`: raw, max_tokens, block, decode, threshold, steps,
        as_published, cache, stop_at_eos, select, select_refresh, select_prefill, temperature, top_k,
        top_p, repetition_penalty, seed, n, logprobs, stop, draws (a path). enable_thinking is a
        switch that the chat template of a folder may have. on_progress hears after each pass: the
        prompt's number, what has become final, the block's tokens with "" for a mask, the first
        one's position, and whether it ended. A PrefixCache that the turns of one talk share spares
        them what the one before has computed; the answers are the same.
        """
        expect(cancel, _core.CancelToken, "cancel", "a CancelToken")
        expect(prefix, _core.PrefixCache, "prefix", "a PrefixCache")
        expect(on_progress, Callable, "on_progress", "a function")
        request = _request(prompt, prompt_ids, chat, enable_thinking, options)
        model = self._opened_for(plan=plan, ranks=ranks, threads=threads)
        with in_python():
            return _output_of(model.complete(request, on_progress, _log.info, cancel, prefix))

    def stream(self, prompt: str | None = None, *, prompt_ids: Sequence[int] | None = None,
               chat: Chat | None = None, enable_thinking: bool | None = None,
               plan: str | Mapping[str, Any] | None = None,
               ranks: int | None = None, threads: int | None = None,
               prefix: _core.PrefixCache | None = None, **options: Any) -> TextStream:
        """The answer to one prompt in pieces, as they become final; options as of generate."""
        if prompt is not None and not isinstance(prompt, str):
            raise TypeError(f"stream answers one prompt, a str, not a {type(prompt).__name__}")
        expect(prefix, _core.PrefixCache, "prefix", "a PrefixCache")
        request = _request(prompt, None if prompt_ids is None else [prompt_ids], chat,
                           enable_thinking, options)
        model = self._opened_for(plan=plan, ranks=ranks, threads=threads)

        def run(take: Callable[[str], None], cancel: _core.CancelToken) -> str:
            def on_progress(_prompt: int, text: str, _block: list[str], _from: int,
                            _ended: bool) -> None:
                if text:
                    take(text)

            with in_python():
                return model.complete(request, on_progress, _log.info, cancel, prefix)

        return TextStream(run)


_OPTIONS = {"raw", "max_tokens", "block", "decode", "threshold", "steps", "as_published", "cache",
            "stop_at_eos", "select", "select_refresh", "select_prefill", "temperature", "top_k", "top_p",
            "repetition_penalty", "seed", "n", "logprobs", "stop", "draws"}


def _request(prompt: str | Sequence[str] | None, prompt_ids: Sequence[Sequence[int]] | None,
             chat: Chat | None, enable_thinking: bool | None, options: dict[str, Any]) -> _core.CompleteRequest:
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise TypeError(f"{unknown[0]!r} is no option; there are {', '.join(sorted(_OPTIONS))}")
    fields = dict(options)
    threshold = fields.pop("threshold", None)
    if threshold is not None:
        if fields.get("decode") is not None:
            raise UsageError("give one of decode and threshold, not both")
        expect(threshold, SupportsFloat, "threshold", "a number")
        fields["decode"] = f"threshold:{float(threshold):f}"
    fields["stop"] = listed(fields.get("stop"))
    if fields.get("draws") is not None:
        fields["draws"] = os.fspath(fields["draws"])
    return fill(_core.CompleteRequest(), {"prompts": "prompt"}, prompts=listed(prompt),
                prompt_ids=_ids_of(prompt_ids), chat=_text_of(chat, enable_thinking), **fields)


def _ids_of(prompt_ids: Sequence[Sequence[int]] | None) -> list[list[int]] | None:
    if prompt_ids is None:
        return None
    try:
        return [[operator.index(token) for token in one] for one in prompt_ids]
    except TypeError:
        raise TypeError(f"prompt_ids={reprlib.repr(prompt_ids)}: expected whole numbers in a list for each "
                        f"prompt, or of stream in one list") from None


def _text_of(chat: Chat | None, enable_thinking: bool | None) -> str | None:
    expect(chat, Sequence, "chat", _CHAT)
    expect(enable_thinking, bool, "enable_thinking", "True or False")
    for message in chat or ():
        expect(message, Mapping, "a message of the chat", _CHAT)
    if chat is None:
        if enable_thinking is not None:
            raise UsageError("enable_thinking is for chats; give one as chat")
        return None
    messages = list(map(dict, chat))
    return json.dumps(messages if enable_thinking is None else
                      {"messages": messages, "enable_thinking": enable_thinking})
