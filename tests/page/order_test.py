#!/usr/bin/env python3
"""Answers that come late, or in another order than they were asked for: what the page learnt meanwhile stays."""

import json
import re
import time
import urllib.request

from browser import PageTest, expect, main

NAME = "red circle"


class Order(PageTest):
    models, options = ("shapes", "scenes"), ("--at-once", 1)

    def setUp(self):
        super().setUp()
        self.tame()
        self.visit()

    def make(self, seed):
        self.generate(model="shapes", classes=NAME, steps=6, seed=seed)

    def image(self):
        return self.page.locator("#stage .frame img")

    def card(self, seed):
        return self.page.get_by_role("button", name=f"{NAME}, seed {seed}: show")

    def remove(self, seed):
        self.card(seed).click()
        dialog = self.page.get_by_role("dialog", name=NAME)
        dialog.get_by_role("button", name="Remove").click()
        dialog.get_by_role("button", name="Really remove it?").click()
        expect(self.card(seed)).to_have_count(0)

    def look_at_the_end(self):
        """Waits until the newest job is done, and has the page look at it."""
        until = time.monotonic() + 60
        while self.jobs()[0]["state"] != "done" and time.monotonic() < until:
            time.sleep(0.02)
        self.page.evaluate("async () => (await import('/assets/jobs.js')).jobs.look()")

    def note_states(self):
        """Keeps all that the stage says from now on, and all that is spoken."""
        self.page.evaluate("""() => {
            window.said = [];
            const note = () => window.said.push(document.querySelector('#stage .state').textContent);
            new MutationObserver(note).observe(document.getElementById('stage'), {childList: true, subtree: true, characterData: true});
            window.spoken = [];
            const announcer = document.getElementById('announcer');
            new MutationObserver(() => window.spoken.push(announcer.textContent)).observe(announcer, {childList: true});
        }""")

    def test_a_list_from_before_the_request(self):
        self.hold("event: done")
        old = self.hold_a_look()
        self.make(1)
        self.reached("event: done")
        self.end_the_look(old)
        self.release("event: done")
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 1")
        expect(self.state()).to_contain_text("Done: 1 result")
        expect(self.card(1)).to_be_visible()

    def test_a_list_from_before_a_removal(self):
        self.make(2)
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 2")
        old = self.hold_a_look()
        self.remove(2)
        self.end_the_look(old)
        self.assertEqual(self.card(2).count(), 0)

    def test_a_list_of_older_ones_from_before_a_removal(self):
        self.make(3)
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 3")
        job = self.jobs()[0]
        self.hold("&before=")
        self.page.evaluate("async () => void (window.looking = (await import('/assets/jobs.js')).jobs.older())")
        self.reached("&before=")
        self.remove(3)
        self.release("&before=", json.dumps({"jobs": [job]}))
        self.page.evaluate("window.looking")
        self.drawn()
        self.assertEqual(self.card(3).count(), 0)

    def test_a_list_from_before_a_cancellation(self):
        self.addCleanup(self.cancel_all)
        self.generate(model="scenes", prompt="the first", steps=900, width=256, height=256, count=4)
        self.generate(prompt="the second")
        rows = self.page.locator("#queue li")
        expect(rows).to_have_count(2)
        self.page.get_by_role("button", name="Watch: the first").click()  # or the events of the second tell of its end
        old = self.hold_a_look()
        self.assertEqual({job["state"] for job in old["jobs"][:2]}, {"queued", "running"})
        self.page.get_by_role("button", name="Cancel: the second").click()
        expect(rows).to_have_count(1)
        self.end_the_look(old)
        self.assertEqual(rows.count(), 1)

    def test_a_list_from_before_the_end(self):
        self.hold("event: done")
        self.make(4)
        self.reached("event: done")
        old = self.hold_a_look()
        old["jobs"][0].update(state="running", results=[], ended=None)
        self.release("event: done")
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 4")
        expect(self.state()).to_contain_text("Done: 1 result")
        self.note_states()
        slider = self.page.get_by_label("Look at an earlier step")
        last = slider.input_value()
        self.hold("/jobs?limit=")  # what would set it right again
        self.release("GET /jobs?", json.dumps(old))
        self.reached("/jobs?limit=")
        self.drawn()
        self.release("/jobs?limit=")
        self.page.evaluate("window.looking")
        self.drawn()
        self.assertEqual({text.split(":")[0] for text in self.page.evaluate("window.said")}, {"Done"})
        self.assertEqual(self.page.evaluate("window.spoken"), [])
        self.assertEqual((slider.input_value(), slider.get_attribute("max")), (last, last))

    def test_a_list_that_is_ahead_of_the_events(self):
        self.hold("event: progress")
        self.hold("event: done")
        self.make(5)
        self.reached("event: progress")
        self.look_at_the_end()
        expect(self.state()).to_contain_text("Done: 1 result")
        self.release("event: progress")
        self.reached("event: done")
        self.drawn()
        expect(self.state()).to_contain_text("Done: 1 result", timeout=1)
        self.release("event: done")
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 5")

    def test_a_request_that_is_answered_after_its_end(self):
        self.hold("POST /jobs")
        self.make(6)
        self.reached("POST /jobs")
        self.look_at_the_end()
        expect(self.card(6)).to_be_visible()
        self.hold("GET /jobs?")
        self.hold("id: 1\n")
        self.release("POST /jobs")
        self.reached("GET /jobs?")
        self.reached("id: 1\n")
        self.drawn()
        self.assertEqual(self.card(6).count(), 1)
        self.release("GET /jobs?")
        self.release("id: 1\n")
        expect(self.image()).to_have_attribute("alt", f"{NAME}, seed 6")

    def test_cancel_comes_late(self):
        # The end is on its way, and no look tells of it before.
        busy = {"error": {"message": "busy", "type": "overloaded"}}
        asked = []

        def delete(route):
            if route.request.method != "DELETE":
                return route.continue_()
            asked.append(route.request.url)
            if not route.request.url.endswith("?cancel=1"):
                return route.continue_()
            return route.fulfill(json=self.jobs()[0])  # as the server does; one that knows no such query would remove it

        self.page.route(re.compile(r"/jobs\?"), lambda route: route.fulfill(status=503, json=busy))
        self.page.route(re.compile("/jobs/[^/]+$"), delete)
        for seed, button in ((7, "Cancel"), (8, f"Cancel: {NAME}")):
            self.hold("event: done")
            self.make(seed)
            self.reached("event: done")
            self.note_states()
            self.page.get_by_role("button", name=button, exact=True).click()
            expect(self.state()).to_contain_text("Done: 1 result")
            if seed == 8:
                self.assertIn(f"It had ended: {NAME}", self.page.evaluate("window.spoken"))
            self.release("event: done")
            expect(self.image()).to_have_attribute("alt", f"{NAME}, seed {seed}")
            expect(self.card(seed)).to_be_visible()
            with urllib.request.urlopen(f"{self.server.url}{self.jobs()[0]['results'][0]['url']}", timeout=30) as answer:
                self.assertEqual(answer.status, 200)
        self.assertEqual(len(asked), 2)


if __name__ == "__main__":
    main()
