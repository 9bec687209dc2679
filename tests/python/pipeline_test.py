"""Pipelines: the bits of the command line, by diffusers' names."""

import threading

import numpy as np
import pytest
import tessera
from conftest import DATA, SOURCE, program

PIL = pytest.importorskip("PIL.Image")
SHAPES = tessera.Pipeline.from_pretrained("shapes")
SCENES = tessera.Pipeline.from_pretrained("scenes")
CAPTION = "a red circle left of a blue square"


@pytest.mark.parametrize("said, asked", [
    ({"class_labels": 3}, ["--class", "3"]),
    ({"class_labels": "red circle", "num_inference_steps": 3, "generator": 7},
     ["--class", "red circle", "--steps", "3", "--seed", "7"]),
    ({"class_labels": ["red circle", 7], "num_images_per_prompt": 2, "guidance_scale": 3.0},
     ["--class", "red circle,7", "--count", "2", "--guidance", "3"]),
    ({"class_labels": 5, "width": 64, "height": 96, "noise": "philox", "num_inference_steps": 2},
     ["--class", "5", "--width", "64", "--height", "96", "--rng", "philox", "--steps", "2"]),
    ({"class_labels": 5, "plan": "cfg=2", "num_inference_steps": 3},
     ["--class", "5", "--plan", "cfg=2", "--steps", "3"]),
    ({"class_labels": 5, "plan": {"distrifusion": 2, "warmup": 1}, "ranks": 2, "threads": 2,
      "num_inference_steps": 4},
     ["--class", "5", "--plan", "distrifusion=2,warmup=1", "--threads", "2", "--steps", "4"])])
def test_classes_have_the_bits_of_the_command_line(latents_of, said, asked):
    made = SHAPES(**said, output_type="latent")
    assert made.images is made.latents and made.latents.dtype == np.float32
    np.testing.assert_array_equal(made.latents, latents_of("shapes", *asked))


def test_diffusers_interrupt_warns():
    with pytest.warns(UserWarning, match="_interrupt has no effect.*CancelToken"):
        SHAPES._interrupt = True
    SHAPES._interrupt = False
    assert SHAPES._interrupt is False


@pytest.mark.parametrize("said, asked", [
    ({}, []),
    ({"negative_prompt": "a green star", "guidance_scale": 4}, ["--negative-prompt", "a green star",
                                                               "--guidance", "4"]),
    ({"scheduler": "UniPCMultistepScheduler", "guidance_rescale": 0.5},
     ["--scheduler", "unipc", "--guidance-rescale", "0.5"])])
def test_prompts_have_the_bits_of_the_command_line(latents_of, said, asked):
    made = SCENES(CAPTION, num_inference_steps=4, output_type="latent", **said)
    np.testing.assert_array_equal(
        made.latents, latents_of("scenes", "--prompt", CAPTION, "--steps", "4", *asked))


def test_a_batch_of_prompts_is_each_of_them():
    prompts = [CAPTION, "a green star above a red square"]
    together = SCENES(prompts, num_inference_steps=3, generator=[4, 5], output_type="latent")
    for i, prompt in enumerate(prompts):
        alone = SCENES(prompt, num_inference_steps=3, generator=4 + i, output_type="latent")
        np.testing.assert_array_equal(together.latents[i:i + 1], alone.latents)


class Generator:
    """What of torch.Generator is asked for."""

    def __init__(self, seed):
        self.seed = seed

    def initial_seed(self):
        return self.seed


def test_a_seed_for_each_image(latents_of):
    made = SHAPES(class_labels=3, num_images_per_prompt=2, generator=[1, Generator(2)],
                  num_inference_steps=2, output_type="latent")
    for i, seed in enumerate((1, 2)):
        wanted = latents_of("shapes", "--class", "3", "--seed", seed, "--steps", "2")
        np.testing.assert_array_equal(made.latents[i:i + 1], wanted)
    with pytest.raises(tessera.UsageError, match="3 seeds for 1 images"):
        SHAPES(class_labels=3, generator=[1, 2, 3])


def test_images_are_those_of_the_command_line(tmp_path):
    program("generate", "shapes", "--class", "red circle", "--steps", "4", "-o", tmp_path / "i.png")
    wanted = np.asarray(PIL.open(tmp_path / "i.png"))
    made = SHAPES(class_labels="red circle", num_inference_steps=4)
    assert len(made.images) == 1 and made.frames is None and made.labels == ["red circle"]
    np.testing.assert_array_equal(np.asarray(made.images[0]), wanted)
    plain = SHAPES(class_labels="red circle", num_inference_steps=4, output_type="np").images
    assert plain.shape == (1, 128, 128, 3) and plain.dtype == np.float32
    np.testing.assert_array_equal(plain[0], wanted.astype(np.float32) / np.float32(255))


def test_sizes_that_do_not_fit_are_computed_larger_and_cropped():
    made = SHAPES(class_labels=1, num_inference_steps=1, width=60, height=100, fit=True)
    assert made.images[0].size == (60, 100)
    whole = SHAPES(class_labels=1, num_inference_steps=1, width=64, height=112)
    np.testing.assert_array_equal(np.asarray(made.images[0]), np.asarray(whole.images[0])[6:106, 2:62])
    with pytest.raises(tessera.UsageError, match="^width 60: expected a multiple"):
        SHAPES(class_labels=1, num_inference_steps=1, width=60)


def test_saved_files_are_the_command_lines(tmp_path):
    made = SHAPES(class_labels="red circle", num_inference_steps=2, generator=3, num_images_per_prompt=2)
    names = [str(tmp_path / f"x-000{i}.png") for i in (0, 1)]
    assert made.save(tmp_path / "x.png") == names
    program("generate", "shapes", "--class", "red circle", "--steps", "2", "--seed", "3", "--count", "2",
            "-o", str(tmp_path / "y.png"))
    for i in (0, 1):
        assert (tmp_path / f"x-000{i}.png").read_bytes() == (tmp_path / f"y-000{i}.png").read_bytes()
    with pytest.raises(tessera.UsageError, match="'.*x-0000.gif' is no name for an image"):
        made.save(tmp_path / "x.gif")
    (tmp_path / "x-0000.png").write_bytes(b"mine")
    with pytest.raises(tessera.UsageError, match="x-0000.png.*Tessera wrote.*overwrite"):
        made.save(tmp_path / "x.png")
    assert made.save(tmp_path / "x.png", overwrite=True) == names
    latents = SHAPES(class_labels=1, num_inference_steps=1, output_type="latent")
    with pytest.raises(tessera.UsageError, match="no images"):
        latents.save(tmp_path / "z.png")


def test_a_video_has_frames():
    pipe = tessera.Pipeline.from_pretrained(DATA / "diffusers/cogvideox_2b/model")
    assert pipe.makes_videos and pipe.frame_rate == 8
    request = {"prompt": "waves", "width": 48, "height": 32, "num_frames": 9,
               "num_inference_steps": 1, "num_videos_per_prompt": 2}
    made = pipe(**request)
    assert made.images is None and [len(video) for video in made.frames] == [9, 9]
    assert made.frames[1][8].size == (48, 32) and made.labels == ["waves", "waves"]
    assert pipe(**request, output_type="np").frames.shape == (2, 9, 32, 48, 3)


def test_given_latents_start_a_run():
    drawn = SHAPES(class_labels=1, num_inference_steps=2, output_type="latent").latents
    first = SHAPES(class_labels=1, latents=drawn, num_inference_steps=2, output_type="latent")
    turned = np.asfortranarray(drawn)
    assert not turned.flags.c_contiguous
    again = SHAPES(class_labels=1, latents=turned, num_inference_steps=2, output_type="latent")
    np.testing.assert_array_equal(first.latents, again.latents)
    assert not np.array_equal(first.latents, drawn)


def test_the_report_and_the_model_say_what_they_are():
    made = SHAPES(class_labels=1, num_inference_steps=2, plan="cfg=2", output_type="latent")
    assert made.report["plan"] == "cfg=2" and len(made.report["step_seconds"]) == 2
    assert SHAPES.classes == 32 and not SHAPES.makes_videos
    assert "red circle" in tessera.inspect("shapes")["classes"]
    assert SHAPES.inspect(width=64, height=64)["run"]["width"] == 64
    assert SCENES.tokenize("a red circle", tokenizer="tokenizer")[0]["tokenizer"] == "tokenizer"


def test_numbers_may_be_numpy_s(latents_of):
    made = SHAPES(class_labels=np.array([1, 2]), num_inference_steps=np.int64(2),
                  guidance_scale=np.float32(3), generator=np.uint64(2**64 - 1), width=np.int32(64),
                  output_type="latent")
    np.testing.assert_array_equal(made.latents, latents_of(
        "shapes", "--class", "1,2", "--steps", "2", "--guidance", "3", "--width", "64",
        "--seed", str(2**64 - 1)))


def test_options_of_the_opening(latents_of):
    pipe = tessera.Pipeline.from_pretrained("shapes", torch_dtype="torch.float32", threads=1,
                                            memory_budget=100_000_000, keep_parts=False).to("cpu")
    np.testing.assert_array_equal(
        pipe(class_labels=2, num_inference_steps=2, output_type="latent").latents,
        latents_of("shapes", "--class", "2", "--steps", "2", "--dtype", "f32"))


def test_a_callback_looks_on():
    seen = []

    def look(pipe, step, timestep, kwargs):
        assert pipe is SHAPES and threading.current_thread() is threading.main_thread()
        with pytest.raises(ValueError):
            kwargs["latents"][...] = 0
        seen.append((step, timestep, kwargs["latents"], kwargs["previews"]))
        return kwargs

    made = SHAPES(class_labels=1, num_inference_steps=3, callback_on_step_end=look,
                  callback_on_step_end_tensor_inputs=["latents", "previews"])
    assert [step for step, *_ in seen] == [0, 1, 2]
    assert seen[0][1] > seen[1][1] > seen[2][1]
    np.testing.assert_array_equal(seen[2][2], made.latents)
    np.testing.assert_array_equal(np.asarray(seen[2][3][0]), np.asarray(made.images[0]))
    calls = []
    SHAPES(class_labels=1, num_inference_steps=2,
           callback_on_step_end=lambda *_, **__: calls.append(1))
    assert calls == [1, 1]


def test_without_pillow_there_are_arrays():
    from conftest import python
    print(python("""
import sys
sys.modules["PIL"] = None
import numpy, tessera
made = tessera.Pipeline.from_pretrained("shapes")(class_labels=1, num_inference_steps=1)
assert isinstance(made.images, numpy.ndarray) and made.images.shape == (1, 128, 128, 3)
"""))


def test_a_folder_may_be_a_path(tmp_path):
    (tmp_path / "shapes").symlink_to(SOURCE / "models/shapes")
    pipe = tessera.Pipeline.from_pretrained(tmp_path / "shapes")
    assert pipe(class_labels=1, num_inference_steps=1).images[0].size == (128, 128)


def test_a_step_cache_says_what_it_left_out():
    request = {"class_labels": 1, "num_inference_steps": 5, "output_type": "latent"}
    made = SHAPES(**request, cache="dbcache,warmup=1,threshold=2,max_cached=2")
    sizes = [len(blocks) for blocks in made.report["computed_blocks"]]
    assert sizes[1:3] == [1, 1] and sizes[0] == sizes[3] == sizes[4] > 1
    assert made.report["flops_saved"] > 0 and "computed_blocks" not in SHAPES(**request).report
