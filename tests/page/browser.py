"""A server with its page, and a browser that looks at it."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
CHROMIUM = os.environ.get("TESSERA_CHROMIUM") or "/usr/bin/chromium"
PATIENCE = 15000  # ms, of a machine that does much else
DESKTOP = {"width": 1360, "height": 900}
PHONE = {"width": 360, "height": 740}

expect.set_options(timeout=PATIENCE)


def main():
    """Runs the tests of a file; of a program that is built without the server it says that there are none."""
    said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=60).stdout
    if "\n  serve " in said:
        unittest.main()
    name = pathlib.Path(sys.argv[0]).stem
    print(f"page.{name}: Skipped\nthe program is built without 'tessera serve'\n\n[  SKIPPED ] page.{name}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """`tessera serve`, which can be killed and started again at the same place."""

    def __init__(self, models, options=()):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.command = [PROGRAM, "serve", *models, "--port", str(self.port), "--store",
                        str(pathlib.Path(self.folder.name) / "store"), *map(str, options)]
        self.process = None
        self.start()

    def start(self):
        self.log = open(pathlib.Path(self.folder.name) / "log", "a+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(self.url + "/healthz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"{self.command} does not serve: {self.said()}") from None
                time.sleep(0.05)

    def said(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=30)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.log.close()
            self.folder.cleanup()


class PageTest(unittest.TestCase):
    """Each class has a server and a browser, each test a window of its own, in which nothing may go wrong."""

    models, options = ("shapes", "scenes", "tasks-a"), ()
    window, scheme = DESKTOP, "light"

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.models, cls.options)
        cls.addClassCleanup(cls.server.close)
        playwright = sync_playwright().start()
        cls.addClassCleanup(playwright.stop)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        cls.browser = playwright.chromium.launch(executable_path=CHROMIUM,
                                                 args=[*sandbox, "--disable-dev-shm-usage"])
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.problems = []
        self.page = self.open_window(self.window, self.scheme)

    def tearDown(self):
        self.assertEqual(self.problems, [], self.server.said())

    def open_window(self, window, scheme, **options):
        context = self.browser.new_context(viewport=window, color_scheme=scheme, **options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self.note)
        return page

    def note(self, message):
        # A request that was refused, or found nobody, is the page's business, and it shows it.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def visit(self, view="images", page=None):
        page = page or self.page
        page.goto(self.server.url + ("" if view == "images" else f"/#{view}"))
        expect(page.locator(f"#{view}")).to_be_visible()
        return page

    def generate(self, **fields):
        """Fills the form, and sends it."""
        for name, value in fields.items():
            field = self.page.locator(f"#form [name={name}]")
            if field.evaluate("e => e.tagName") == "SELECT":
                field.select_option(value)
            else:
                field.fill(str(value))
        self.page.get_by_role("button", name="Generate").click()

    def state(self):
        return self.page.locator("#stage .state")
