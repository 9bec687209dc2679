"""A server with its page, and a browser that looks at it."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from playwright.sync_api import expect, sync_playwright

SOURCE = pathlib.Path(os.environ.get("TESSERA_SOURCE") or pathlib.Path(__file__).parents[2])
PROGRAM = os.environ.get("TESSERA_PROGRAM") or str(SOURCE / "build/release/tessera")
CHROMIUM = os.environ.get("TESSERA_CHROMIUM") or "/usr/bin/chromium"
PATIENCE = 60000  # ms, of a machine that does much else
DESKTOP = {"width": 1360, "height": 900}
PHONE = {"width": 360, "height": 740}

# Answers and events that can be held, and events that come one by one, also where the network brings them together.
NETWORK = r"""
    const original = window.fetch;
    const gates = new Map(); // what -> {reached, body, open(body)}
    window.hold = (what) => {
        const gate = { reached: false };
        gate.opened = new Promise((open) => (gate.open = open));
        gates.set(what, gate);
    };
    window.reached = (what) => gates.get(what).reached && gates.get(what);
    window.release = (what, body) => gates.get(what).open(body ?? gates.get(what).body);
    const pass = async (what, read) => {
        const [, gate] = [...gates].find(([held, gate]) => !gate.reached && what.includes(held)) ?? [];
        if (!gate) return null;
        gate.body = await read();
        gate.reached = true;
        return gate.opened;
    };
    const oneByOne = (stream) => {
        const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
        let rest = '';
        return new ReadableStream({
            async pull(sink) {
                while (!rest.includes('\n\n')) {
                    const { value, done } = await reader.read();
                    if (done) return sink.close();
                    rest += value;
                }
                const end = rest.indexOf('\n\n') + 2;
                const event = rest.slice(0, end);
                rest = rest.slice(end);
                await pass(event, async () => event);
                await new Promise((wake) => setTimeout(wake, 5));
                sink.enqueue(new TextEncoder().encode(event));
            },
            cancel: (why) => reader.cancel(why),
        }, { highWaterMark: 0 });
    };
    window.fetch = async (url, options) => {
        const response = await original(url, options);
        const { status, headers } = response;
        if (response.ok && String(url).endsWith('/events')) return new Response(oneByOne(response.body), { status, headers });
        const body = await pass(`${options?.method ?? 'GET'} ${url}`, () => response.text());
        return body === null ? response : new Response(body, { status, headers });
    };
"""

expect.set_options(timeout=PATIENCE)


def main():
    """Runs the tests of a file; of a program that is built without the server it says that there are none."""
    said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=60).stdout
    if "\n  serve " in said:
        unittest.main()
    name = pathlib.Path(sys.argv[0]).stem
    print(f"page.{name}: Skipped\nthe program is built without 'tessera serve'\n\n[  SKIPPED ] page.{name}")


class Server:
    """`tessera serve`, which can be killed and started again at the same place."""

    def __init__(self, models, options=()):
        self.folder = tempfile.TemporaryDirectory()
        self.log = open(pathlib.Path(self.folder.name) / "log", "a+")
        self.command = [PROGRAM, "serve", *models, "--store", str(pathlib.Path(self.folder.name) / "store"), *map(str, options)]
        for _ in range(20):
            self.port = random.randrange(10000, 32768)  # the system gives none of these to others, also while it is killed
            self.url = f"http://127.0.0.1:{self.port}"
            if self.start():
                return
        raise RuntimeError(f"there is no port for {self.command}: {self.said()}")

    def start(self):
        """Whether the port is its own; RuntimeError where it does not serve for another reason."""
        begin = len(self.said())
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=self.log, stderr=self.log)
        until = time.monotonic() + 60
        while f"listening at {self.url}" not in self.said()[begin:]:
            if self.process.poll() is not None and "Address already in use" in self.said()[begin:]:
                return False
            if self.process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{self.command} does not serve: {self.said()}")
            time.sleep(0.02)
        return True

    def said(self):
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

    def tame(self, page=None):
        """From the next visit on events come one by one, and what `hold` names stays on its way."""
        (page or self.page).add_init_script(NETWORK)

    def hold(self, what):
        """Keeps the next answer ("METHOD address") or event of a stream that has this in it, until `release`."""
        self.page.evaluate("what => window.hold(what)", what)

    def reached(self, what):
        """Waits until it is held; its body."""
        return self.page.wait_for_function("what => window.reached(what)", arg=what).evaluate("gate => gate.body")

    def release(self, what, body=None):
        self.page.evaluate("([what, body]) => window.release(what, body)", [what, body])

    def hold_a_look(self):
        """A look at the jobs that begins now, and whose answer stays on its way; that answer."""
        self.page.evaluate("""async () => {
            const { jobs } = await import('/assets/jobs.js');
            await jobs.look(); // or the next one joins it
            window.hold('GET /jobs?');
            window.looking = jobs.look();
        }""")
        return json.loads(self.reached("GET /jobs?"))

    def end_the_look(self, answer):
        """Brings that answer, and waits until what it changed is drawn."""
        self.release("GET /jobs?", json.dumps(answer))
        self.page.evaluate("window.looking")
        self.drawn()

    def drawn(self):
        """Waits longer than the page does before it draws, by the page's own clock."""
        self.page.evaluate("() => new Promise((wake) => setTimeout(wake, 200))")

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

    def jobs(self):
        with urllib.request.urlopen(self.server.url + "/jobs?limit=50", timeout=30) as answer:
            return json.load(answer)["jobs"]

    def cancel_all(self):
        for job in self.jobs():
            if job["state"] in ("queued", "running"):
                urllib.request.urlopen(urllib.request.Request(f"{self.server.url}/jobs/{job['id']}", method="DELETE"), timeout=30)

    def state(self):
        return self.page.locator("#stage .state")
