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
        expect(self.page.locator(".cards li")).to_have_count(1)
        expect(dialog).to_be_hidden()
        other = self.open_window(self.window, self.scheme)
        other.goto(self.server.url)
        expect(other.get_by_role("dialog", name="API key")).to_be_visible()


if __name__ == "__main__":
    main()
