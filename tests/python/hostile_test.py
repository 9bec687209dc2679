"""What goes wrong is an exception that says what to do, and leaves the next run alone."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tessera
from conftest import DATA, SOURCE, python

SHAPES = tessera.Pipeline.from_pretrained("shapes")
REQUEST = {"class_labels": 1, "num_inference_steps": 2, "output_type": "latent"}
USUAL = SHAPES(**REQUEST).latents


@pytest.fixture(autouse=True)
def the_next_run_is_as_usual():
    yield
    np.testing.assert_array_equal(SHAPES(**REQUEST).latents, USUAL)


def test_folders_that_are_none(tmp_path):
    for name in ("no_such_model", tmp_path / "none"):
        with pytest.raises(tessera.ModelNotFoundError) as caught:
            tessera.Pipeline.from_pretrained(name)
        assert isinstance(caught.value, FileNotFoundError) and caught.value.code == 3
    with pytest.raises(tessera.ModelError) as damaged:
        tessera.Pipeline.from_pretrained(tmp_path)
    assert not isinstance(damaged.value, FileNotFoundError)


@pytest.mark.parametrize("wrong, kind, says", [
    ({"class_labels": "red circel"}, ValueError, "did you mean 'red circle'"),
    ({"width": 10**7}, ValueError, "width"),
    ({"width": 2**70}, TypeError, "width"),
    ({"width": 1 << 20, "height": 1 << 20}, tessera.Error, ""),
    ({"num_inference_steps": "ten"}, TypeError, "^num_inference_steps='ten'"),
    ({"num_inference_steps": 0}, ValueError, "steps"),
    ({"guidance_scale": float("nan")}, ValueError, "^guidance_scale nan"),
    ({"num_images_per_prompt": 0}, ValueError, "^num_images_per_prompt 0"),
    ({"num_videos_per_prompt": 0}, ValueError, "^num_videos_per_prompt 0"),
    ({"num_frames": 3}, ValueError, "^num_frames 3"),
    ({"max_sequence_length": "x"}, TypeError, "^max_sequence_length='x'"),
    ({"use_resolution_binning": "x"}, TypeError, "^use_resolution_binning='x'"),
    ({"prompt": 7}, TypeError, r"^prompt=\[7\]"),
    ({"negative_prompt": 7}, TypeError, "^negative_prompt=7: expected a text"),
    ({"cancel": 3}, TypeError, "^cancel=3: expected a CancelToken"),
    ({"callback_on_step_end": 3}, TypeError, "^callback_on_step_end=3: expected a function"),
    ({"callback_on_step_end": print, "callback_on_step_end_tensor_inputs": 3}, TypeError,
     "^callback_on_step_end_tensor_inputs=3"),
    ({"generator": -1}, TypeError, "generator=-1"),
    ({"generator": "7"}, TypeError, "generator='7'"),
    ({"generator": 1.5}, TypeError, "generator=1.5"),
    ({"output_type": "jpeg"}, ValueError, "pil, np, latent"),
    ({"scheduler": "fastest"}, ValueError, "^scheduler 'fastest'"),
    ({"cache": "fbcache,threshold=-1"}, ValueError, "threshold=.-1.: expected a number from 0"),
    ({"cache": "x"}, ValueError, "known are fbcache"),
    ({"cache": "fbcache", "plan": "pipefusion=2,patches=2"}, tessera.PlanError, "pipefusion=2"),
    ({"noise": "brown"}, ValueError, "brown"),
    ({"plan": "cfg=3"}, tessera.PlanError, "cfg=3"),
    ({"plan": "cfg=2", "ranks": 3}, ValueError, "cannot run"),
    ({"threads": -2}, ValueError, "^threads -2"),
    ({"negative_prompt": ["a", "b"]}, ValueError, "negative_prompt"),
    ({"latents": [[1.0]]}, TypeError, "latents"),
    ({"latents": np.zeros((1, 2, 3), np.float32)}, ValueError, "latents"),
    ({"latents": np.zeros((1, 4, 16, 16))}, TypeError, "float32"),
    ({"prompt": "text"}, ValueError, "give class_labels$"),
    ({"num_steps": 3}, TypeError, "num_steps")])
def test_wrong_arguments(wrong, kind, says):
    with pytest.raises(kind, match=says):
        SHAPES(**{**REQUEST, **wrong})


def test_sentences_of_the_library_name_arguments():
    from tessera.requests import in_arguments
    for said, here in (("`top_k` 0: add `temperature` 0.8", "top_k 0: add temperature 0.8"),
                       ("the model's file '`steps` 3' and `steps`", "the model's file '`steps` 3' and num_inference_steps"),
                       ("a ` b `` `c` 'x' `threads` y", "a ` b `` c 'x' threads y")):
        assert in_arguments(said, {"steps": "num_inference_steps"}) == here


def test_wrong_options_of_the_opening():
    for wrong, kind in (({"dtype": "f64"}, ValueError), ({"threads": "many"}, TypeError),
                        ({"device": "tpu"}, ValueError), ({"comm_timeout": 0}, ValueError),
                        ({"memory_budget": -1}, ValueError), ({"speed": 2}, TypeError),
                        ({"plan": "cfg="}, tessera.PlanError)):
        with pytest.raises(kind):
            tessera.Pipeline.from_pretrained("shapes", **wrong)
    with pytest.raises(TypeError):
        tessera.Pipeline.from_pretrained(7)
    with pytest.raises(TypeError, match="no_field"):
        SHAPES.inspect(no_field=1)
    with pytest.raises(tessera.OutOfMemoryError) as caught:
        tessera.Pipeline.from_pretrained("shapes", memory_budget=1000)(**REQUEST)
    assert caught.value.code == 6


def test_names_that_are_no_utf_8():
    array = np.zeros(1, np.float32)
    with pytest.raises(TypeError, match=r"the name '.udc80' of an array cannot be written as UTF-8"):
        SHAPES.forward("transformer", {"\udc80": array})
    with pytest.raises(TypeError, match=r"^class_labels=\['.udc80'\]|^classes="):
        SHAPES(**{**REQUEST, "class_labels": "\udc80"})
    with pytest.raises(ValueError, match=r"^model='.udc80': expected a name in UTF-8"):
        tessera.Pipeline.from_pretrained("\udc80")


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_comes_out_of_an_argument(kind):
    class Ends:
        def __dlpack__(self, **_):
            raise kind(3)

        def __index__(self):
            raise kind(3)

    with pytest.raises(kind):
        SHAPES.forward("transformer", {"x": Ends()})
    with pytest.raises(kind):
        SHAPES(**REQUEST, latents=Ends())
    with pytest.raises(kind):
        SHAPES(**REQUEST, width=Ends())

    class Fails:
        def __dlpack__(self, **_):
            raise ValueError("not now")

    with pytest.raises(TypeError, match="^'x' is no array"):
        SHAPES.forward("transformer", {"x": Fails()})


def test_requests_that_another_thread_changes():
    from tessera import _core
    model = _core.OpenModel("tasks-a", _core.OpenOptions())
    request, tokens, size = _core.CompleteRequest(), _core.TokenizeRequest(), _core.GenerateRequest()
    request.prompts = tokens.prompts = ["sort hello="]
    request.max_tokens = 8
    usual, cut = model.complete(request), model.tokenize(tokens)
    ended = threading.Event()

    def change():
        while not ended.is_set():
            for stop in ([], ["x" * 3000] * 50):
                request.stop, request.chat = stop, ""
                tokens.prompts = ["sort hello="]
                size.prompts = ["x" * 3000] * 50

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(20):
            made = json.loads(model.complete(request))["completions"][0]["ids"]
            assert made == json.loads(usual)["completions"][0]["ids"]
            assert model.tokenize(tokens) == cut
            model.inspect(size)
    finally:
        ended.set()
        changer.join()


def test_an_exception_in_a_callback_comes_out():
    class Mine(Exception):
        pass

    steps = []

    def fail(pipe, step, timestep, kwargs):
        steps.append(step)
        raise Mine("enough")

    with pytest.raises(Mine, match="enough"):
        SHAPES(**{**REQUEST, "num_inference_steps": 100}, callback_on_step_end=fail)
    assert steps == [0]


def test_a_callback_cannot_change_the_run():
    with pytest.raises(ValueError, match="other latents"):
        SHAPES(**REQUEST, callback_on_step_end=lambda p, i, t, seen: {
            "latents": seen["latents"] * 2})
    with pytest.raises(ValueError, match="prompt_embeds"):
        SHAPES(**REQUEST, callback_on_step_end=print,
               callback_on_step_end_tensor_inputs=["prompt_embeds"])


def test_a_preview_without_a_vae_is_an_error():
    pipe = tessera.Pipeline.from_pretrained(DATA / "moe/dit_moe_flash/model")
    with pytest.raises(tessera.ModelError, match="no VAE"):
        pipe(**REQUEST, callback_on_step_end=lambda *_: None,
             callback_on_step_end_tensor_inputs=["previews"])


def test_cancel_from_another_thread_and_from_a_callback():
    token = tessera.CancelToken()
    assert not token.cancelled
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait() and token.cancel()).start()
    with pytest.raises(tessera.Cancelled) as caught:
        SHAPES(class_labels=1, num_inference_steps=1000, cancel=token,
               callback_on_step_end=lambda *_: begun.set())
    assert caught.value.code == 130 and token.cancelled
    with pytest.raises(tessera.Cancelled):
        SHAPES(**REQUEST, cancel=token)


@pytest.mark.parametrize("plan", ["", "cfg=2"])
def test_ctrl_c_ends_a_run_without_a_callback(plan):
    done = subprocess.Popen([sys.executable, "-c", f"""
import tessera
pipe = tessera.Pipeline.from_pretrained("shapes", plan="{plan}")
pipe(class_labels=1, num_inference_steps=1)
try:
    print("begun", flush=True)
    pipe(class_labels=1, num_inference_steps=1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(pipe(class_labels=1, num_inference_steps=1).images[0].size)
"""], stdout=subprocess.PIPE, text=True)
    assert done.stdout.readline() == "begun\n"
    time.sleep(0.2)
    done.send_signal(signal.SIGINT)
    assert done.communicate(timeout=120)[0] == "interrupted\n(128, 128)\n"
    assert done.returncode == 0


def test_ctrl_c_ends_the_reading_of_a_long_text():
    done = subprocess.Popen([sys.executable, "-c", """
import signal, tessera, time
model = tessera.LanguageModel.from_pretrained("tasks-a")
model.tokenize("a")

def raised(*_):
    global heard
    heard = time.process_time()
    raise KeyboardInterrupt

signal.signal(signal.SIGINT, raised)
try:
    print("begun", flush=True)
    for _ in range(100):
        model.tokenize("a b" * 3000000, raw=True)
except KeyboardInterrupt:
    print("interrupted", time.process_time() - heard < 0.5, flush=True)
"""], stdout=subprocess.PIPE, text=True)
    assert done.stdout.readline() == "begun\n"
    time.sleep(0.5)
    done.send_signal(signal.SIGINT)
    assert done.communicate(timeout=60)[0] == "interrupted True\n"


def test_other_threads_of_python_go_on():
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0.0001)

    other = threading.Thread(target=count)
    other.start()
    SHAPES(class_labels=1, num_inference_steps=20)
    during = counted[0]
    ended.set()
    other.join()
    assert during > 5


def test_threads_share_a_pipeline():
    wanted = [SHAPES(**REQUEST, generator=seed).latents for seed in range(3)]
    made = [None] * 6

    def run(i):
        made[i] = SHAPES(**REQUEST, generator=i % 3,
                         callback_on_step_end=lambda *_: None).latents

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(6):
        np.testing.assert_array_equal(made[i], wanted[i % 3])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_opens_its_models_itself():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = b"?"
        try:
            try:
                SHAPES(**REQUEST)
            except tessera.UsageError as error:
                said = b"refused " if "fork" in str(error) else b"other "
            opened = tessera.Pipeline.from_pretrained("shapes")
            said += b"same" if np.array_equal(opened(**REQUEST).latents, USUAL) else b"differs"
        finally:
            os.write(writing, said)
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"refused same"


def test_a_fork_after_the_import_alone():
    assert python("""
import os, tessera
child = os.fork()
made = tessera.Pipeline.from_pretrained("shapes")(class_labels=1, num_inference_steps=1)
if child == 0:
    os._exit(len(made.images))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") == "1\n"


def test_results_outlive_what_made_them():
    pipe = tessera.Pipeline.from_pretrained("shapes")
    made = pipe(class_labels=1, num_inference_steps=1, output_type="np")
    copy = made.images.copy()
    del pipe
    np.testing.assert_array_equal(made.images, copy)
