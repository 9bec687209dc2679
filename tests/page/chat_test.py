#!/usr/bin/env python3
"""A conversation in the browser: masks that are filled, the experts of a block, a stop."""

import re

from browser import PageTest, expect, main

PROMPT, ANSWER = "rev igvcmo=", "omcvgi"


class Chat(PageTest):
    models = ("tasks-a",)

    def setUp(self):
        super().setUp()
        self.tame()
        self.page.add_init_script(r"""
            // What the masks were between the passes, as nobody could look fast enough.
            window.seen = [];
            new MutationObserver(() => {
                const tiles = [...document.querySelectorAll('.tiles span')];
                if (tiles.length > 0) window.seen.push(tiles.map((t) => t.className === 'mask' ? '_' : t.textContent));
            }).observe(document, {childList: true, subtree: true, attributes: true});
        """)
        self.visit("chat")

    def pass_by_pass(self):
        """The answer is sure at once, else."""
        self.page.get_by_label("Threshold").fill("1")

    def say(self, text):
        self.page.get_by_label("Message").fill(text)
        self.page.get_by_label("Message").press("Enter")

    def test_masks_are_filled(self):
        self.assertFalse(self.page.get_by_role("navigation").get_by_role("link").first.is_visible(), "one view needs no links")
        self.pass_by_pass()
        self.say(PROMPT)
        answer = self.page.locator(".turn.assistant").first
        expect(answer.locator(".said")).to_have_text(ANSWER)
        expect(answer.locator(".facts")).to_contain_text(re.compile(r"^1 block, \d+ pass(es)?, [\d.]+ experts? a pass, [\d.]+.m?s$"))
        expect(answer.get_by_role("img", name=re.compile(r"Experts by pass: \d"))).to_be_visible()
        expect(self.page.locator("#announcer")).to_have_text(f"Answer: {ANSWER}")
        expect(self.page.get_by_label("Message")).to_be_focused()
        seen = self.page.evaluate("window.seen")
        masks = [tiles.count("_") for tiles in seen]
        self.assertGreater(masks[0], 0)
        self.assertIn(ANSWER, "".join(seen[-1]))
        self.assertEqual(masks, sorted(masks, reverse=True), "within a block masks only become fewer")

    def test_the_passes_of_an_answer_again(self):
        self.pass_by_pass()
        self.say(PROMPT)
        answer = self.page.locator(".turn.assistant").first
        answer.get_by_text("How it was filled in").click()
        slider = answer.get_by_label("Look at a pass")
        slider.press("Home")
        expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^Block 1, pass 1, \d+ of \d+ filled, [\d.]+ experts?$"))
        masks = answer.locator(".tiles .mask").count()
        slider.press("End")
        self.assertLess(answer.locator(".tiles .mask").count(), masks)

    def test_an_old_look_at_the_jobs_is_not_the_end(self):
        self.hold("event: done")
        self.say(PROMPT)
        self.reached("event: done")
        old = self.hold_a_look()
        old["jobs"][0].update(state="running", ended=None)
        self.release("event: done")
        self.drawn()
        self.end_the_look(old)
        answer = self.page.locator(".turn.assistant").first
        expect(answer.locator(".facts")).to_contain_text(re.compile(r" a pass, [\d.]+.m?s$"))

    def test_a_message_alone(self):
        self.page.get_by_label("Send the earlier turns, too").uncheck()
        for i in range(2):
            self.say(PROMPT)
            expect(self.page.locator(".turn.assistant .said").nth(i)).to_have_text(ANSWER)
            expect(self.page.get_by_role("button", name="Send")).to_be_visible()
        self.page.get_by_role("button", name="Start again").click()
        expect(self.page.locator(".turn")).to_have_count(0)

    def play(self):
        """The shipped models answer faster than anybody stops them: what the server says is played; the DELETEs."""
        streams = ['id: 1\nevent: block\ndata: {"sequence":0,"begin":9,"ids":[1,2],"texts":["a",null],"experts":5}\n\n',
                   "id: 2\nevent: cancelled\ndata: {}\n\n"]
        dropped = []

        def job(route):
            if route.request.method == "DELETE":
                dropped.append(route.request.url)
                return route.fulfill(json={"id": route.request.url.rsplit("/", 1)[1].split("?")[0], "state": "cancelled"})
            return route.continue_()

        self.page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=streams[len(dropped)]))
        self.page.route(re.compile("/jobs/[^/]+$"), job)
        return dropped

    def test_stop(self):
        dropped = self.play()
        self.say(PROMPT)
        expect(self.page.locator(".tiles .mask")).to_have_count(1)
        self.page.get_by_role("button", name="Stop").click()
        expect(self.page.locator(".facts")).to_contain_text(re.compile(r"^1 block, \d+ pass(es)?, 5 experts a pass, cancelled"))
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()
        self.assertEqual(len(dropped), 1)
        self.assertTrue(dropped[0].endswith("?cancel=1"), "an answer that is there meanwhile is not removed")

    def test_stop_before_the_server_has_answered(self):
        dropped = self.play()
        self.hold("POST /jobs")
        self.say(PROMPT)
        self.page.get_by_role("button", name="Stop").click()
        self.reached("POST /jobs")
        self.assertEqual(dropped, [])
        self.release("POST /jobs")
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()
        expect(self.page.locator(".turn.assistant .facts, .turn.assistant .hint").last).to_contain_text("cancelled")
        self.assertEqual(len(dropped), 1)

    def test_what_is_wrong_in_the_servers_words(self):
        self.page.get_by_label("Rule for the experts of a block").fill("nonsense:9")
        self.say(PROMPT)
        expect(self.page.locator("#chat-error")).to_contain_text("nonsense")
        expect(self.page.get_by_label("Message")).to_have_value(PROMPT)


if __name__ == "__main__":
    main()
