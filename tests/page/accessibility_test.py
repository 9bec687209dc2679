#!/usr/bin/env python3
"""What axe-core says of the page, light and dark, wide and narrow; and the images of it that the guide shows."""

import io
import os

from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from browser import DESKTOP, PHONE, SOURCE, PageTest, expect, main

SERIOUS = ("serious", "critical")
MOST_BYTES = 150_000
# Where images of the page are to be kept (docs/images); without it they are made, and looked at no further.
KEEP = os.environ.get("TESSERA_PAGE_IMAGES")


class Accessibility(PageTest):
    options = ("--plan", "cfg=2")
    models = ("scenes", "tasks-a")

    def faults(self, page):
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        return [f"{v['id']}: {[n['html'] for n in v['nodes']]}" for v in found if v["impact"] in SERIOUS]

    def keep(self, page, name):
        """A screenshot as WebP, small enough that all four of them are."""
        raw = io.BytesIO()
        Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(raw, "WEBP", quality=70, method=6)
        self.assertLess(len(raw.getvalue()), MOST_BYTES / 4)
        if KEEP:
            (SOURCE / KEEP / name).write_bytes(raw.getvalue())

    def both_views(self, window, scheme, name=None):
        page = self.open_window(window, scheme, reduced_motion="reduce")
        self.page = page
        self.visit(page=page)
        self.assertEqual(self.faults(page), [])
        self.generate(prompt="a blue circle left of a yellow cross", steps=30, seed=5)
        expect(self.state()).to_contain_text("Done")
        if name:
            steps = page.get_by_label("Look at an earlier step")
            steps.fill(str(int(steps.get_attribute("max")) * 2 // 3))  # the first ones are noise, which is large
            page.evaluate("document.activeElement.blur()")
            self.keep(page, f"page_images_{name}.webp")
        page.get_by_text("More", exact=True).click()
        self.assertEqual(self.faults(page), [])
        page.locator(".card").first.click()
        self.assertEqual(self.faults(page), [])
        page.keyboard.press("Escape")
        self.visit("chat", page)
        page.get_by_label("Threshold").fill("1")  # a token a pass, or all are there at once
        page.get_by_label("Message").fill("rev igvcmo=")
        page.get_by_label("Message").press("Enter")
        expect(page.locator(".facts")).to_contain_text("1 block")
        page.get_by_text("How it was filled in").click()
        passes = page.get_by_label("Look at a pass")
        passes.fill(str(int(passes.get_attribute("max")) // 2))
        self.assertEqual(self.faults(page), [])
        if name:
            passes.scroll_into_view_if_needed()
            page.evaluate("document.activeElement.blur()")
            self.keep(page, f"page_chat_{name}.webp")

    def test_light(self):
        self.both_views(DESKTOP, "light", "light")

    def test_dark_on_a_phone(self):
        self.both_views(PHONE, "dark", "dark")

    def test_errors_and_the_key(self):
        self.visit()
        self.generate(steps=0)
        self.page.evaluate("document.getElementById('key-dialog').showModal()")
        self.page.evaluate("document.getElementById('banner').classList.add('shown')")
        self.assertEqual(self.faults(self.page), [])

    def test_headings_lead_through_the_page(self):
        self.visit()
        levels = self.page.evaluate("""[...document.querySelectorAll('#images h1, #images h2, #images h3')]
            .map((e) => [e.tagName, e.textContent])""")
        self.assertEqual(levels, [["H1", "Images and videos"], ["H2", "Request"], ["H2", "Result"], ["H2", "Queue"], ["H2", "Ranks"],
                                  ["H2", "Gallery"]])

    def test_nothing_moves_for_who_asks(self):
        page = self.open_window(DESKTOP, "light", reduced_motion="reduce")
        self.visit(page=page)
        moving = page.evaluate("""[...document.querySelectorAll('*')].map((e) => getComputedStyle(e))
            .filter((s) => s.animationName !== 'none' || !/^(none|all 0s.*|all)$/.test(s.transition)).length""")
        self.assertEqual(moving, 0)


if __name__ == "__main__":
    main()
