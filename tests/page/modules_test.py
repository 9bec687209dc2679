#!/usr/bin/env python3
"""The modules of the page that need no page: the readers of event streams, PNG files and parameters, and numbers."""

import struct
import zlib

from browser import PageTest, main

PARAMETERS = ("a cat, red\non two lines\nNegative prompt: dark,\nblurred\nSteps: 4, Sampler: DPMSolverMultistepScheduler, "
              'CFG scale: 2.5, Seed: 7, Size: 64x32, Model: "a, \\"b\\"", Batch size: 3, Version: Tessera 1')


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(*chunks):
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + chunk(b"IEND", b"")


class Modules(PageTest):
    models = ("shapes",)

    def setUp(self):
        super().setUp()
        self.visit()

    def call(self, module, code, argument=None):
        """What `code`, a function of the module and the argument, returns."""
        return self.page.evaluate(f"async (argument) => ({code})(await import('/assets/{module}.js'), argument)", argument)

    def events(self, *pieces):
        return self.call("sse", """(m, pieces) => {
            const parser = new m.EventParser();
            return pieces.flatMap((p) => parser.push(p)).map((e) => [e.name, e.data, e.id]);
        }""", list(pieces))

    def texts(self, raw):
        return self.call("png_text", """(m, raw) => {
            try { return Object.fromEntries(m.pngTexts(Uint8Array.from(raw))); } catch (e) { return e.message; }
        }""", list(raw))

    def test_events_however_they_are_cut(self):
        stream = "\ufeff: hello\n\nid: 1\nevent: state\ndata: {}\n\ndata: a\r\ndata:b\r\n\r\nid: 2\rdata: c\r\rdata: never"
        wanted = [["state", "{}", "1"], ["message", "a\nb", "1"], ["message", "c", "2"]]
        self.assertEqual(self.events(stream), wanted)
        self.assertEqual(self.events(*stream), wanted)
        for cut in range(len(stream)):
            self.assertEqual(self.events(stream[:cut], stream[cut:]), wanted, cut)

    def test_events_with_nothing_in_them(self):
        self.assertEqual(self.events("event: x\n\nid: 9\n\n:\n\ndata\n\n"), [["message", "", "9"]])
        self.assertEqual(self.events("id: 3\0\ndata:  two spaces\nretry: 5\nother\n\n"), [["message", " two spaces", ""]])

    def test_png_texts(self):
        self.assertEqual(self.texts(png(chunk(b"tEXt", b"Software\0caf\xe9"), chunk(b"iTXt", b"parameters\0\0\0en\0\0" + "ü\n☃".encode()))),
                         {"Software": "café", "parameters": "ü\n☃"})
        self.assertEqual(self.texts(png(chunk(b"tEXt", b"a\0first"), chunk(b"tEXt", b"a\0second"))), {"a": "first"})
        compressed = chunk(b"iTXt", b"parameters\0\1\0\0\0" + zlib.compress(b"x"))
        self.assertEqual(self.texts(png(compressed, chunk(b"tEXt", b"no zero"), chunk(b"tEXt", b"\0no key"))), {})

    def test_png_that_is_hostile(self):
        whole = png(chunk(b"tEXt", b"parameters\0text"))
        self.assertEqual(self.texts(b"GIF89a"), "it is no PNG file")
        for end in range(8, len(whole) - 12):
            self.assertEqual(self.texts(whole[:end]), "the PNG file is cut off", end)
        self.assertEqual(self.texts(whole[:8] + b"\xff\xff\xff\xff" + whole[12:]), "the PNG file is cut off")
        self.assertEqual(self.texts(png(chunk(b"iTXt", b"parameters\0\0\0never ends"))), {})

    def test_parameters(self):
        found = self.call("parameters", "(m, text) => m.requestOf(text)", PARAMETERS)
        self.assertEqual(found, {"model": 'a, "b"', "subject": "a cat, red\non two lines", "negative_prompt": "dark,\nblurred",
                                 "steps": 4, "guidance": 2.5, "seed": 7, "width": 64, "height": 32, "count": 3,
                                 "scheduler": "DPMSolverMultistepScheduler"})
        self.assertEqual(self.call("parameters", "(m, text) => m.requestOf(text)", "only words"), {"subject": "only words"})
        odd = self.call("parameters", "(m, text) => m.requestOf(text)", "x\nSteps: 4, Seed: no number, Size: 3")
        self.assertEqual(odd, {"subject": "x", "steps": 4})

    def test_parameters_that_are_hostile(self):
        for line in ("a" * 1000000, 'a: "' * 250000, 'a: "\\", ' * 120000, ": " * 500000, "a b " * 250000, "a: , " * 200000, "\n" * 1000000):
            milliseconds = self.call("parameters", "(m, text) => { const begun = performance.now(); m.parseParameters(text); return performance.now() - begun; }", "x\nSteps: 1, " + line)
            self.assertLess(milliseconds, 5000, line[:20])  # quadratic: minutes
        self.assertEqual(self.call("parameters", "(m, text) => m.requestOf(text)", 'x\nSteps: 1, Model: "a, Seed: 3, no name!: 4, Size: 8x9'),
                         {"subject": "x", "model": '"a', "steps": 1, "seed": 3, "width": 8, "height": 9})

    def test_numbers(self):
        def formatted(name, values):
            return [s.replace("\u00a0", " ") for s in self.call("format", f"(m, v) => v.map(m.{name})", values)]

        self.assertEqual(formatted("bytes", [0, 999, 1000, 99600, 999600, 1234567, 5e12]),
                         ["0 B", "999 B", "1.0 kB", "100 kB", "1.0 MB", "1.2 MB", "5.0 TB"])
        self.assertEqual(formatted("seconds", [0, 0.0421, 0.9996, 3.24, 9.96, 59.6, 75, 3700]),
                         ["0 ms", "42 ms", "1.0 s", "3.2 s", "10 s", "1 min 0 s", "1 min 15 s", "1 h 1 min"])
        self.assertEqual(self.call("format", "m => [m.counted(1, 'image'), m.counted(0, 'pass')]"), ["1 image", "0 passes"])
        self.assertEqual(self.call("format", "(m, jobs) => jobs.map(m.line)", [{"position": 0}, {"position": 2}, {}, {"position": 0, "waits_for": {"type": "memory"}}]),
                         ["next", "2 before it", "waiting", "waits for room in memory"])

    def test_ages_of_what_was_read(self):
        self.assertEqual(self.call("ranks", "(m, ages) => m.ages(ages)", {"kv": [3, 1, 0], "experts": [4, 0], "none": [0]}).replace("\u00a0", " "),
                         "kv: 25 % stale, up to 1 step old; experts: fresh")


if __name__ == "__main__":
    main()
