#!/usr/bin/env python3
"""The line to the server: it dies and comes back while a request runs, and it asks for a key."""

import pathlib
import tempfile

from browser import PageTest, expect, main

KEY = "a-key-of-the-tests-0123456789"


class Lost(PageTest):
    models = ("scenes",)

    def test_a_server_that_is_killed_and_comes_back(self):
        self.visit()
        self.generate(prompt="a green cross above a red circle", steps=200)
        expect(self.state()).to_contain_text("Step ")
        self.server.kill()
        banner = self.page.locator("#banner")
        expect(banner).to_contain_text("The server does not answer.")
        self.generate(prompt="while nobody listens")
        expect(self.page.locator("#form-error")).to_have_text("The request could not be sent: the server does not answer.")
        self.server.start()
        self.page.evaluate("document.querySelector('#banner button')?.click()")  # unless it tried by itself just now
        expect(banner).to_have_text("The server answers again.")
        # A job that ran when the server died begins again, and its stream goes on.
        expect(self.state()).to_contain_text("Done: 1 result", timeout=60000)
        expect(self.page.locator("#stage .frame img")).to_have_attribute("alt", "a green cross above a red circle, seed 0")


class Broken(PageTest):
    models = ("scenes",)

    def test_a_stream_that_breaks_is_taken_up_behind_the_last_event(self):
        asked = []

        def cut(route):
            asked.append(route.request.headers.get("last-event-id"))
            if len(asked) > 1:
                return route.continue_()
            begin = 'id: 1\nevent: state\ndata: {"state":"running"}\n\n'
            return route.fulfill(status=200, content_type="text/event-stream", body=begin)

        self.page.route("**/events", cut)
        self.visit()
        self.generate(prompt="a green cross", steps=8)
        expect(self.state()).to_contain_text("Done: 1 result")
        self.assertEqual(asked, [None, "1"])


class Keys(PageTest):
    models = ("shapes",)

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "keys"
        path.write_text(KEY + "\n")
        path.chmod(0o600)
        cls.options = ("--api-keys", path)
        super().setUpClass()

    def test_a_key_is_asked_for(self):
        self.page.goto(self.server.url)
        dialog = self.page.get_by_role("dialog", name="API key")
        field = dialog.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        expect(dialog).to_contain_text("This server asks for a key.")
        field.fill("wrong")
        field.press("Enter")
        expect(dialog.locator("#key-reason")).to_contain_text("key")
        expect(dialog.locator("#key-reason")).not_to_have_text("This server asks for a key.")
        field.fill(KEY)
        field.press("Enter")
        expect(dialog).to_be_hidden()
        self.generate(steps=4)
        expect(self.state()).to_contain_text("Done: 1 result")
        shown = self.page.locator("#stage .frame img[src^='blob:']")
        self.assertGreater(shown.evaluate("e => e.decode().then(() => e.naturalWidth)"), 0)
        self.page.reload()
        expect(self.page.locator(".cards li")).not_to_have_count(0)
        expect(dialog).to_be_hidden()
        other = self.open_window(self.window, self.scheme)
        other.goto(self.server.url)
        expect(other.get_by_role("dialog", name="API key")).to_be_visible()

    def with_key(self):
        self.page.add_init_script(f"sessionStorage.setItem('tessera.key', '{KEY}')")

    def test_a_key_that_is_long_looked_for(self):
        # Limits are timers of the test's clock here, and all that the banner ever said is kept.
        self.page.clock.install()
        self.page.add_init_script("""
            AbortSignal.timeout = (ms) => {
                const limit = new AbortController();
                setTimeout(() => limit.abort(new DOMException('late', 'TimeoutError')), ms);
                return limit.signal;
            };
            window.said = [];
            new MutationObserver(() => window.said.push(document.getElementById('banner')?.textContent ?? ''))
                .observe(document, {childList: true, subtree: true});
        """)
        refusals = [{"error": {"message": "This key has ended.", "type": "authentication_error"}}]
        self.page.route("**/events", lambda r: r.fulfill(status=401, json=refusals.pop()) if refusals else r.continue_())
        self.page.goto(self.server.url)
        for send, why in ((None, "This server asks for a key."), (self.generate, "This key has ended.")):
            if send:
                send(steps=4)
            dialog = self.page.get_by_role("dialog", name="API key")
            expect(dialog).to_contain_text(why)
            self.page.clock.fast_forward(31_000)
            dialog.get_by_label("Key", exact=True).fill(KEY)
            dialog.get_by_label("Key", exact=True).press("Enter")
            expect(self.page.locator("#model option")).to_have_count(1)
        expect(self.state()).to_contain_text("Done: 1 result")
        self.assertEqual([text for text in self.page.evaluate("window.said") if text], [])

    def test_copies_live_as_long_as_their_results(self):
        self.page.add_init_script("""
            window.copies = new Set();
            const {createObjectURL, revokeObjectURL} = URL;
            URL.createObjectURL = (blob) => {
                const made = createObjectURL(blob);
                window.copies.add(made);
                return made;
            };
            URL.revokeObjectURL = (made) => {
                window.copies.delete(made);
                revokeObjectURL(made);
            };
        """)
        self.with_key()
        self.visit()
        cards = self.page.locator(".cards li")
        self.generate(classes="green ring", seed=77, steps=4)
        card = self.page.get_by_role("button", name="green ring, seed 77: show")
        card.click()
        expect(self.page.locator("#detail img[src^='blob:']")).to_be_visible()
        expect(self.page.locator(".cards img[src^='blob:']")).to_have_count(cards.count())
        self.assertEqual(self.page.evaluate("window.copies.size"), cards.count(), "one for stage, gallery and dialog")
        self.page.get_by_role("button", name="Remove", exact=True).click()
        self.page.get_by_role("button", name="Really remove it?").click()
        expect(card).to_have_count(0)
        self.page.wait_for_function("() => window.copies.size === document.querySelectorAll('.cards li').length")

    def test_a_result_that_cannot_be_had(self):
        error = {"error": {"message": "The disk is gone.", "type": "server_error"}}
        self.page.route("**/results/*", lambda route: route.fulfill(status=500, json=error))
        self.with_key()
        self.visit()
        self.generate(classes="blue star", seed=78, steps=4)
        self.page.get_by_role("button", name="blue star, seed 78: show").click()
        dialog = self.page.get_by_role("dialog", name="blue star")
        expect(dialog.get_by_role("alert")).to_have_text("The disk is gone.")
        expect(dialog.get_by_role("link", name="Download")).to_have_count(0)


if __name__ == "__main__":
    main()
