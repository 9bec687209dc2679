"""Language models: the answers of the command line, whole and in pieces."""

import gc
import json
import random
import struct
import threading

import pytest
import tessera
from conftest import DATA, program

MODEL = tessera.LanguageModel.from_pretrained("tasks-b")
LONG = "sum 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8="


def asked(model, *arguments):
    """What of the command line's JSON does not differ from run to run."""
    return json.loads(program("complete", model, "--json", *arguments))["completions"]


@pytest.mark.parametrize("options, arguments", [
    ({}, []),
    ({"max_tokens": 16, "block": 8, "threshold": 0.8}, ["--max-tokens", "16", "--block", "8",
                                                        "--threshold", "0.8"]),
    ({"decode": "steps:4", "cache": "none", "stop_at_eos": "none", "max_tokens": 32},
     ["--decode", "steps:4", "--cache", "none", "--stop-at-eos", "none", "--max-tokens", "32"]),
    ({"temperature": 0.7, "seed": 5, "select": "des-vote:0.4", "select_prefill": True},
     ["--temperature", "0.7", "--seed", "5", "--select", "des-vote:0.4", "--select-prefill"]),
    ({"temperature": 3.0, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.1, "n": 2, "logprobs": 2},
     ["--temperature", "3", "--top-k", "5", "--top-p", "0.9", "--repetition-penalty", "1.1", "--n", "2",
      "--logprobs", "2"]),
    ({"stop": "2", "raw": True, "as_published": True}, ["--stop", "2", "--raw", "--as-published"])])
def test_answers_are_those_of_the_command_line(options, arguments):
    made = MODEL.generate(["add 27+35=", LONG], **options)
    wanted = asked("tasks-b", "--prompt", "add 27+35=", "--prompt", LONG, *arguments)
    assert made.completions == wanted
    assert made.texts == [one["text"] for one in wanted] and made.text == made.texts[0]
    assert len(made.texts) == 2 * options.get("n", 1)


def test_mapped_weights_give_the_same_answer(tmp_path):
    program("quantise", "tasks-b", "-o", str(tmp_path / "q"), "--dense", "int8")
    read, mapped = (tessera.LanguageModel.from_pretrained(tmp_path / "q", map_weights=mapped) for mapped in (False, True))
    assert mapped.generate("add 27+35=").completions == read.generate("add 27+35=").completions


def test_ids_and_plans():
    folder = DATA / "moe/llada_moe/model"
    model = tessera.LanguageModel.from_pretrained(folder, dtype="f32")
    made = model.generate(prompt_ids=[[5, 17], [8]], max_tokens=8)
    arguments = [folder, "--dtype", "f32", "--prompt-ids", "5,17", "--prompt-ids", "8",
                 "--max-tokens", "8"]
    assert made.completions == asked(*arguments)
    spread = model.generate(prompt_ids=[[5, 17], [8]], max_tokens=8, plan="tensor=2")
    assert [one["ids"] for one in spread.completions] == [one["ids"] for one in made.completions]
    assert spread.report["plan"] == "tensor=2"


CANVAS = DATA / "moe/diffusion_gemma_canvas256"


@pytest.fixture
def draws(tmp_path):
    """Draws of two canvases of 16, as --draws takes them."""
    draw, path = random.Random(0), tmp_path / "draws.safetensors"
    ids = lambda rows: [draw.randrange(256) for _ in range(16 * rows)]
    parts = {"init": ("I32", 2, struct.pack("<32i", *ids(2))), "noise": ("I32", 8, struct.pack("<128i", *ids(8))),
             "uniform": ("F32", 8, struct.pack("<128f", *(draw.random() for _ in range(128))))}
    header, at = {}, 0
    for name, (dtype, rows, data) in parts.items():
        header[name] = {"dtype": dtype, "shape": [rows, 16], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in parts.values()))
    return path


def test_canvases_from_stored_draws_and_from_seeds(draws):
    model = tessera.LanguageModel.from_pretrained(CANVAS / "model")
    options = {"prompt_ids": [[5, 17, 99]], "block": 16, "max_tokens": 24, "steps": 4}
    arguments = [CANVAS / "model", "--prompt-ids", "5,17,99", "--block", "16", "--max-tokens", "24", "--steps", "4"]
    stored = model.generate(**options, draws=draws)
    assert stored.completions == asked(*arguments, "--draws", draws) and len(stored.completions[0]["ids"]) == 24
    seeds = model.generate(**options, seed=3, n=2)
    assert seeds.completions == asked(*arguments, "--seed", "3", "--n", "2")
    assert len({tuple(one["ids"]) for one in [*seeds.completions, *stored.completions]}) == 3
    assert (seeds.report["max_tokens"], seeds.report["limit"]) == (24, "request")
    seen = []
    model.generate(**options, draws=str(draws), on_progress=lambda *said: seen.append(said))
    blocks = [block for _, _, block, _, _ in seen if block]
    assert "" in blocks[0] and "" not in blocks[-1], "noise is not shown, a finished canvas is"
    for wrong, kind in (({"draws": 3}, TypeError), ({"draws": draws.parent / "none"}, tessera.ModelError),
                        ({"draws": draws, "n": 2}, ValueError), ({"draws": draws, "block": 8}, ValueError)):
        with pytest.raises(kind):
            model.generate(**{**options, **wrong})
    with pytest.raises(tessera.UsageError, match="fills in masks"):
        MODEL.generate("add 27+35=", draws=draws)


def test_a_switch_of_the_chat_template():
    model = tessera.LanguageModel.from_pretrained("tasks-b")
    chat = [{"role": "user", "content": "rev stone="}]
    assert model.generate(chat=chat, enable_thinking=False).completions == model.generate(chat=chat).completions
    with pytest.raises(tessera.UsageError, match="enable_thinking"):
        model.generate(chat=chat, enable_thinking=True)
    with pytest.raises(tessera.UsageError, match="for chats"):
        model.generate("rev stone=", enable_thinking=True)
    with pytest.raises(TypeError, match="True or False"):
        model.generate(chat=chat, enable_thinking="yes")


def test_a_stream_gives_the_answer_in_pieces():
    wanted = MODEL.generate(LONG)
    stream = MODEL.stream(LONG, block=8)
    pieces = list(stream)
    assert len(pieces) > 1 and "".join(pieces) == stream.result.text
    assert MODEL.generate(LONG, block=8).completions == stream.result.completions
    assert stream.result.text == wanted.text
    assert next(stream, None) is None


def test_a_stream_ends_for_all_who_read_it():
    stream = MODEL.stream(LONG, block=8)
    pieces = []
    readers = [threading.Thread(target=lambda: pieces.extend(stream)) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert not any(reader.is_alive() for reader in readers)
    assert sorted("".join(pieces)) == sorted(stream.result.text)


def test_streams_that_are_left_early_end():
    running = threading.active_count()
    with MODEL.stream(LONG, max_tokens=256, block=4, stop_at_eos="none") as stream:
        assert next(stream)
    assert next(stream, None) is None and stream.result is None
    thrown_away = MODEL.stream(LONG, max_tokens=256, block=4, stop_at_eos="none")
    thread = thrown_away._thread
    del thrown_away
    gc.collect()
    thread.join(60)
    assert not thread.is_alive() and threading.active_count() == running


def test_progress_and_its_exceptions():
    seen = []
    MODEL.generate(LONG, block=8, on_progress=lambda *said: seen.append(said))
    assert "".join(text for _, text, *_ in seen) == MODEL.generate(LONG, block=8).text
    assert seen[-1][4] and any("" in block for _, _, block, *_ in seen)

    def fail(*_):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        MODEL.generate(LONG, on_progress=fail)


def test_turns_share_what_is_computed():
    prefix = tessera.PrefixCache()
    first = MODEL.generate(LONG, prefix=prefix)
    assert first.completions[0]["usage"]["reused_tokens"] == 0
    tokens = first.completions[0]["usage"]["prompt_tokens"] + len(first.completions[0]["ids"])
    assert prefix.tokens == tokens // 32 * 32 > 32  # whole blocks of the prompt and the answer
    kept = prefix.tokens
    again = MODEL.stream(LONG + first.text, prefix=prefix)
    list(again)
    made = again.result.completions[0]
    assert made["usage"]["reused_tokens"] == kept and prefix.bytes > 0
    alone = MODEL.generate(LONG + first.text).completions[0]
    assert (made["ids"], made["confidences"]) == (alone["ids"], alone["confidences"])
    prefix.clear()
    assert (prefix.tokens, prefix.bytes) == (0, 0)


def test_a_chat():
    folder = DATA.parent.parent / "models/tasks-a"
    chat = [{"role": "user", "content": "sort hello="}]
    model = tessera.LanguageModel.from_pretrained(folder)
    try:
        made = model.generate(chat=chat)
    except tessera.UsageError as error:  # a folder without a template says so
        assert "template" in str(error)
    else:
        assert made.texts


@pytest.mark.parametrize("wrong, kind", [
    ({"prompt": None}, ValueError), ({"prompt": 7}, TypeError), ({"max_tokens": -1}, ValueError),
    ({"max_tokens": "many"}, TypeError), ({"decode": "fast"}, ValueError),
    ({"decode": "steps:4", "threshold": 0.5}, ValueError), ({"speed": 3}, TypeError),
    ({"cache": "all"}, ValueError), ({"select": "best"}, ValueError), ({"stop": 3}, TypeError),
    ({"plan": "cfg=2"}, ValueError), ({"chat": "hello"}, (TypeError, ValueError)),
    ({"prompt_ids": [["a"]]}, (TypeError, ValueError))])
def test_wrong_arguments(wrong, kind):
    with pytest.raises(kind):
        MODEL.generate(**{"prompt": LONG, **wrong})


@pytest.mark.parametrize("wrong, says", [
    ({"prompt": 7}, r"^prompt=\[7\]"), ({"max_tokens": -1}, "^max_tokens -1"), ({"top_k": -1}, "^top_k -1"),
    ({"n": 2}, "add temperature"), ({"stop": ""}, "^stop '': an empty text"), ({"cancel": 3}, "^cancel=3"),
    ({"prefix": 3}, "^prefix=3: expected a PrefixCache"), ({"on_progress": 3}, "^on_progress=3"),
    ({"chat": "hello"}, "^chat='hello': expected a list of"), ({"chat": [3]}, "^a message of the chat=3"),
    ({"prompt_ids": 3}, "^prompt_ids=3"), ({"prompt_ids": [["a"]]}, "^prompt_ids="),
    ({"threshold": "x"}, "^threshold='x'"), ({"prompt": None}, "give prompt, prompt_ids or chat$")])
def test_wrong_arguments_are_named_as_they_are_called(wrong, says):
    with pytest.raises((TypeError, ValueError), match=says) as caught:
        MODEL.generate(**{"prompt": LONG, **wrong})
    assert "--" not in str(caught.value)


def test_wrong_streams():
    with pytest.raises(TypeError):
        MODEL.stream(["one", "two"])
    with pytest.raises(TypeError):
        MODEL.stream(LONG, speed=3)
    with pytest.raises(tessera.UsageError):
        next(MODEL.stream(LONG, max_tokens=-1))
    with pytest.raises(tessera.UsageError):
        tessera.LanguageModel.from_pretrained("shapes").generate("hello")


def test_cancel():
    token = tessera.CancelToken()
    with pytest.raises(tessera.Cancelled):
        MODEL.generate(LONG, cancel=token, block=4, on_progress=lambda *_: token.cancel())
