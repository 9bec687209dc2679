#!/usr/bin/env python3
"""Images in the browser: a request by keyboard, the image forming, the queue, the gallery, parameters of a file."""

import base64
import io
import json
import pathlib
import subprocess
import tempfile
import urllib.request

from PIL import Image

from browser import PHONE, PROGRAM, PageTest, expect, main

LONG = 900  # steps that nobody waits for


def pixels(png):
    return Image.open(io.BytesIO(png)).tobytes()


class Images(PageTest):
    options = ("--at-once", 1)

    def setUp(self):
        super().setUp()
        self.visit()

    def test_a_request_by_keyboard_alone(self):
        keys, page = self.page.keyboard, self.page
        page.locator("body").press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        for _ in range(3):
            keys.press("Tab")
        expect(page.get_by_label("Model", exact=True).first).to_be_focused()
        keys.press("Tab")
        expect(page.get_by_label("Class", exact=True)).to_be_focused()
        keys.type("green star")
        keys.press("Tab")
        keys.type("6")
        for _ in range(8):
            if page.evaluate("document.activeElement.id") == "seed":
                break
            keys.press("Tab")
        keys.type("11")
        keys.press("Enter")
        expect(self.state()).to_contain_text("Done: 1 result")
        shown = page.locator("#stage .frame img")
        expect(shown).to_have_attribute("alt", "green star, seed 11")
        job = self.jobs()[0]
        self.assertEqual((job["request"]["classes"], job["request"]["steps"]), (["green star"], 6))
        expect(page.locator("#announcer")).to_contain_text("Done: 1 result")

    def test_a_run_starts_from_an_image_with_a_painted_mask(self):
        page = self.page
        expect(page.locator("#source")).to_be_hidden()  # the first model has classes
        page.locator("#model").select_option("scenes")
        page.get_by_label("Prompt", exact=True).fill("a red circle left of a blue square")
        page.get_by_text("Start from an image").click()
        stream = io.BytesIO()
        Image.new("RGB", (64, 64), (200, 30, 30)).save(stream, "PNG")
        page.locator("#image").set_input_files({"name": "start.png", "mimeType": "image/png", "buffer": stream.getvalue()})
        expect(page.locator("#source-hint")).to_contain_text("Runs start from start.png")
        page.locator("#strength").fill("0.7")
        page.locator("#steps").fill("4")
        box = page.locator("#mask-canvas").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.up()
        page.locator("#generate").click()
        expect(self.state()).to_contain_text("Done: 1 result")
        request = self.jobs()[0]["request"]
        self.assertEqual(request["strength"], 0.7)
        self.assertRegex(request["image"], "bytes$")
        self.assertRegex(request["mask"], "bytes$")
        page.locator("#mask-clear").click()
        page.locator("#source-remove").click()
        expect(page.locator("#source-shown")).to_be_hidden()
        page.locator("#generate").click()
        expect(page.locator("#source-hint")).to_contain_text("start from noise")
        page.locator("#image").set_input_files({"name": "no.png", "mimeType": "image/png", "buffer": b"none"})
        expect(page.locator("#source-hint")).to_contain_text("no.png cannot be used")

    def test_the_image_forms_from_step_to_step(self):
        self.tame()
        self.visit()
        self.page.evaluate("""window.seen = new Set();
            new MutationObserver(() => window.seen.add(document.querySelector('#stage .frame img')?.alt))
                .observe(document.getElementById('stage'), {childList: true, subtree: true, attributes: true})""")
        self.generate(model="scenes", prompt="a red circle left of a blue square", steps=24, seed=3, count=2)
        expect(self.state()).to_contain_text("Done: 2 results")
        shown = self.page.locator("#stage .frame img")
        expect(shown).to_have_attribute("alt", "a red circle left of a blue square, seed 3")
        steps = [alt for alt in self.page.evaluate("[...window.seen]") if alt and alt.startswith("Step ")]
        self.assertGreater(len(steps), 3)
        slider = self.page.get_by_label("Look at an earlier step")
        expect(slider).to_have_value(slider.get_attribute("max"))
        self.assertGreater(int(slider.get_attribute("max")), 5)
        slider.press("Home")
        expect(slider).to_have_attribute("aria-valuetext", "step 2")
        first = self.page.locator("#stage .frame img[src^='data:image/png']")
        expect(first).to_have_attribute("alt", "Step 2 of a red circle left of a blue square")
        slider.press("End")
        expect(shown).to_have_attribute("alt", "a red circle left of a blue square, seed 3")
        self.page.get_by_role("button", name="Result 2, seed 3").or_(self.page.get_by_role("button", name="Result 2, seed 4")).click()
        expect(shown).to_have_attribute("src", f"{self.server.url}/jobs/{self.jobs()[0]['id']}/results/1")
        self.assertGreater(shown.evaluate("e => e.decode().then(() => e.naturalWidth)"), 0)

    def test_queue_and_cancel(self):
        self.addCleanup(self.cancel_all)
        self.generate(model="scenes", prompt="the first", steps=LONG, width=256, height=256, count=4)
        expect(self.state()).to_contain_text("Step ")
        self.generate(prompt="the second")
        expect(self.state()).to_contain_text("In the queue: next")
        self.generate(prompt="the third")
        expect(self.state()).to_contain_text("In the queue: 1 before it")
        rows = self.page.locator("#queue li")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("the first")
        expect(rows.nth(2)).to_contain_text("1 before it")
        rows.nth(1).get_by_role("button", name="Cancel: the second").click()
        expect(rows).to_have_count(2)
        expect(self.state()).to_contain_text("next")
        rows.nth(0).get_by_role("button", name="Watch: the first").click()
        expect(self.state()).to_contain_text("of 900")
        self.page.get_by_role("button", name="Cancel", exact=True).click()
        expect(self.state()).to_have_text("Cancelled")
        self.page.get_by_role("button", name="Cancel: the third").press("Enter")
        expect(self.page.locator("#queue")).to_contain_text("Nothing waits.")
        expect(self.page.get_by_role("heading", name="Queue")).to_be_focused()

    def test_what_is_wrong_in_the_servers_words(self):
        self.generate(model="scenes", prompt="x", width=999)
        error = self.page.locator("#form-error")
        expect(error).to_contain_text("999")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            order = {"model": "scenes", "request": {"prompt": "x", "width": 999}}
            urllib.request.urlopen(urllib.request.Request(self.server.url + "/jobs", json.dumps(order).encode(), {"Content-Type": "application/json"}), timeout=30)
        self.assertEqual(error.text_content(), json.load(refused.exception)["error"]["message"])
        self.page.get_by_label("Width").fill("")
        self.generate(steps=0)
        expect(error).to_contain_text("Steps: ")
        steps = self.page.get_by_label("Steps", exact=True)
        expect(steps).to_be_focused()
        expect(steps).to_have_attribute("aria-invalid", "true")
        expect(steps).to_have_attribute("aria-describedby", "form-error")

    def test_gallery(self):
        self.generate(model="shapes", classes="blue ring", steps=5, seed=21, guidance=3)
        expect(self.state()).to_contain_text("Done")
        card = self.page.get_by_role("button", name="blue ring, seed 21: show")
        card.focus()
        card.press("Enter")
        dialog = self.page.get_by_role("dialog", name="blue ring")
        expect(dialog.locator(".parameters")).to_contain_text("Guidance3")
        with self.page.expect_download() as download:
            dialog.get_by_role("link", name="Download").click()
        self.assertRegex(download.value.suggested_filename, r"^shapes-.*-0\.png$")
        raw = pathlib.Path(download.value.path()).read_bytes()
        self.assertIn(b"parameters\0blue ring\nSteps: 5", raw)
        self.page.keyboard.press("Escape")
        expect(card).to_be_focused()
        self.generate(classes="red bar", seed=1)
        card.click()
        dialog.get_by_role("button", name="Use again").click()
        for name, value in {"classes": "blue ring", "steps": "5", "guidance": "3", "seed": "21"}.items():
            expect(self.page.locator(f"#{name}")).to_have_value(value)
        card.click()
        dialog.get_by_role("button", name="Remove").click()
        dialog.get_by_role("button", name="Really remove it?").click()
        expect(card).to_have_count(0)
        self.assertNotIn(["blue ring"], [job["request"]["classes"] for job in self.jobs() if "classes" in job["request"]])

    def test_a_long_prompt_is_used_again_whole(self):
        prompt = "a red circle left of " + "a very " * 60 + "blue square"
        self.generate(model="scenes", prompt=prompt, steps=2, seed=77)
        expect(self.state()).to_contain_text("Done")
        self.page.reload()  # what a list says of it is its begin alone
        self.assertIn("request", self.jobs()[0]["shortened"])
        self.page.get_by_role("button", name="seed 77: show").click()
        self.page.get_by_role("dialog").get_by_role("button", name="Use again").click()
        expect(self.page.locator("#prompt")).to_have_value(prompt)

    def test_parameters_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.png"
            subprocess.run([PROGRAM, "generate", "scenes", "--prompt", "a snail, bl\u00e5", "--negative-prompt", "fog", "--steps", "3",
                            "--seed", "9", "--guidance", "2.5", "--progress", "none", "-o", path],
                           check=True, timeout=120, capture_output=True)
            raw = path.read_bytes()
            self.page.get_by_label("Load from an image").set_input_files(path)
        expect(self.page.locator("#load-hint")).to_have_text("The parameters of a.png are in the form.")
        wanted = {"model": "scenes", "prompt": "a snail, bl\u00e5", "negative_prompt": "fog", "steps": "3", "guidance": "2.5", "seed": "9",
                  "width": "128", "height": "128", "count": "1"}
        for name, value in wanted.items():
            expect(self.page.locator(f"#{name}")).to_have_value(value)
        self.page.reload()
        self.drop("b.png", raw)
        expect(self.page.locator("#load-hint")).to_have_text("The parameters of b.png are in the form.")
        expect(self.page.locator("#seed")).to_have_value("9")
        self.drop("c.png", b"no image")
        expect(self.page.locator("#load-hint")).to_have_text("c.png cannot be loaded: it is no PNG file.")
        self.page.get_by_role("button", name="Generate").click()
        expect(self.state()).to_contain_text("Done")
        with urllib.request.urlopen(self.server.url + self.jobs()[0]["results"][0]["url"], timeout=30) as made:
            again = made.read()
        self.assertEqual(pixels(again), pixels(raw), "the same parameters make the same image")

    def drop(self, name, raw):
        expect(self.page.locator("#form")).to_be_visible()
        expect(self.page.locator("#model option")).not_to_have_count(0)
        self.page.evaluate("""([name, text]) => {
            const files = new DataTransfer();
            files.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, {type: "image/png"}));
            for (const event of ["dragover", "drop"])
                document.body.dispatchEvent(new DragEvent(event, {bubbles: true, cancelable: true, dataTransfer: files}));
        }""", [name, base64.b64encode(raw).decode()])

    def test_a_prompt_that_looks_like_markup_is_text(self):
        text = "<img src=x onerror=document.title='taken'><b>bold</b>"
        self.generate(model="scenes", prompt=text, steps=2)
        expect(self.state()).to_contain_text("Done")
        expect(self.page.locator(".cards .caption").first).to_have_text(text)
        self.assertEqual(self.page.locator("b").count(), 0)
        self.assertEqual(self.page.title(), "Images - Tessera")


class Phone(PageTest):
    window, scheme = PHONE, "dark"
    models = ("shapes", "tasks-a")

    def test_nothing_sticks_out(self):
        self.visit()
        self.generate(steps=4)
        expect(self.state()).to_contain_text("Done")
        self.page.get_by_text("More", exact=True).click()
        wide = "document.documentElement.scrollWidth - innerWidth"
        self.assertEqual(self.page.evaluate(wide), 0)
        self.visit("chat")
        self.assertEqual(self.page.evaluate(wide), 0)


class Ranks(PageTest):
    models = ("shapes",)
    options = ("--plan", "cfg=2")

    def test_who_computes_and_who_waits(self):
        self.visit()
        expect(self.page.locator("#plan")).to_have_text("Plan: cfg=2, on 2 ranks")
        self.generate(steps=12)
        expect(self.state()).to_contain_text("Done")
        rows = self.page.locator(".ranks li")
        expect(rows).to_have_count(2)
        for i in range(2):
            expect(rows.nth(i).locator("rect.compute")).to_have_count(12)
            self.assertRegex(rows.nth(i).inner_text().replace("\u00a0", " "), rf"Rank {i}\s+computes \d+ %, waits \d+ %\s+sent [\d.]+ kB")


if __name__ == "__main__":
    main()
