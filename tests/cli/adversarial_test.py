#!/usr/bin/env python3
"""Texts, templates and headers that were made to take long: none takes more than a second of the
processor per megabyte, and each run ends soon after SIGTERM. One in five by default, all of them
with TESSERA_READERS=long."""

import itertools
import json
import os
import shutil
import signal
import struct
import subprocess
import time
import unittest

from program import DATA, PROGRAM, SHAPES, SOURCE, ProgramTest

LONG = os.environ.get("TESSERA_READERS") == "long"
EVERY = 1 if LONG else 5
BYTES = 1_000_000 if LONG else 200_000
START = 0.5  # seconds of the processor that a run takes without any work, with room
HEARD = 0.3  # from a signal to the end

TOKENIZERS = {
    "bert": "diffusers/hunyuandit_v11",
    "spiece": "diffusers/cogvideox_2b",
    "json": "diffusers/flux_transformers5_layout",
    "clip": SOURCE / "models/scenes",
    "bpe": SOURCE / "models/tasks-a",
}

# The worst that is known of each step: marks, words, blanks, signs, characters of every width.
TEXTS = ["a\u0301\u0327", "\u0301\u0327", "\u0f73", "\uff9e\u0334", "\u1100\u1161\u11a8", "a", "a ",
         " ", "'", "\u00e9", "\u4e2d", "\U0001f600", "\U0001f1e6", "\ufdfa", "##", "<", "&#x", "1",
         "\u200d", "\u03a3"]

HEX = "'a' * 1000000"
TEMPLATES = [
    "{% if ('a' * 500000 + 'b') in 'a' * 1000000 %}{% endif %}",
    "{% if ('a' * 8000000 + 'b') in 'a' * 16000000 %}{% endif %}",
    "{{ ('a' * 16000000).strip('b' * 16000000 ~ 'a') }}",
    "{{ (['z' * 1000000] + ['a'] * 400)|max|length }}",
    "{{ (['z' * 1000000] + ['a'] * 100000)|max|length }}",
    "{{ range(100000)|map(attribute='a' * 1000000)|list|length }}",
    "{{ range(100000)|map(attribute='a.' * 100000)|list|length }}",
    "{{ range(100000)|map('tojson', separators=(" + HEX + ", 'a'))|list|length }}",
    "{{ range(100000)|map('default', " + HEX + ")|map('title')|list|length }}",
    "{{ ([" + HEX + "] * 100000)|select('in', " + HEX + ")|list|length }}",
    "{{ ([" + HEX + "] * 100000)|unique|list|length }}",
    "{{ ([" + HEX + "] * 100000)|sort|length }}",
    "{{ (" + HEX + ").startswith([" + HEX + "] * 10000) }}",
    "{{ ([[[[[[[[" + HEX + "]]]]]]]] * 100)|string|length }}",
    "{{ ([[[[[[[[" + HEX + "]]]]]]]] * 1000)|sort|length }}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}",
    "{% set n = namespace(t='a') %}{% for i in range(1000) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "{% set n = namespace(t=[1]) %}{% for i in range(1000) %}{% set n.t = n.t + n.t %}{% endfor %}",
    "{{ '%s' * 1000000 }}{{ 'a' * 60000000 }}",
    "{{ ('\u03a3' * 8000000)|lower|length }}", "{{ ('\u0301' * 8000000)|upper|length }}",
    "{{ ('\ue000' * 8000000)|tojson|length }}", "{{ ['\ue000' * 8000000]|string|length }}",
    "{{ ('a ' * 4000000)|title|length }}", "{{ ('a ' * 4000000).split()|length }}",
    "{{ ('a\n' * 4000000)|indent(1000)|length }}", "{{ ('\u00e9' * 4000000)[::-1]|length }}",
    "{{ 1" + "<1" * 250000 + " }}", "{{ [" + "1," * 250000 + "] }}", "{{ " + "(" * 500000,
    "{" * 900000, "{# " * 200000, "{% raw %}" + "{% endra" * 100000, "{% if 0 %}" + "{% elif 0 %}" * 60000 + "{% endif %}",
    "{% macro m(" + ",".join(f"a{i}" for i in range(50000)) + ") %}{% endmacro %}"
    "{% for i in range(100000) %}{{ m(a49999=1) }}{% endfor %}",
] + ["{{ ('a' * 4000000)." + call + " is none }}" for call in (
    "find('a' * 2000000 ~ 'b')", "rfind('b' ~ 'a' * 2000000)", "count('a' * 2000000 ~ 'b')",
    "split('a' * 2000000 ~ 'b')", "rsplit('b' ~ 'a' * 2000000)", "partition('a' * 2000000 ~ 'b')",
    "rpartition('b' ~ 'a' * 2000000)", "replace('a' * 2000000 ~ 'b', 'c')", "zfill(60000000)",
    "lstrip('b' * 2000000 ~ 'a')", "splitlines()", "join(['a'] * 1000)", "title()", "islower()")]


def entry(name, shape="[0]", offsets="[0,0]"):
    return f'"{name}":{{"dtype":"U8","shape":{shape},"data_offsets":{offsets}}}'


def headers(size):
    """Beginnings of safetensors files."""
    count = size // 60
    names = {
        "numbers": lambda i: f"{i}.{i * 7919 % count}.x", "axis": lambda i: f"blocks.{3 * i}.w",
        "plain": lambda i: f"name{i}", "long": lambda i: "a" * 4000 + str(i),
        "dots": lambda i: "1." * 500 + str(i), "experts": lambda i: f"l.{i}.experts.down_proj",
        "escapes": lambda i: "\\u0001" * 100 + str(i), "same": lambda i: "a",
    }
    for name, one in names.items():
        made, at = [], 0
        while at < size:
            made.append(entry(one(len(made))))
            at += len(made[-1]) + 1
        yield name, "{" + ",".join(made) + "}"
    notes = ",".join(f'"{i}":""' for i in range(size // 10))
    yield "notes", '{"__metadata__":{' + notes + "}}"
    yield "levels", '{"a":' + "[" * size
    yield "axes", "{" + entry("a", "[" + "1," * (size // 2) + "1]") + "}"
    yield "a number", "{" + entry("a", "[" + "1" * size + "]") + "}"
    yield "a word", "{" + " " * size + "}"
    yield "text", '{"a":"' + "a" * size + '"}'
    yield "blanks", "{" + "\n" * size
    yield "bytes", "{\"" + "\\" * size


def documents(size):
    """What a JSON file may hold."""
    yield "lists", "[" + "[]," * (size // 3) + "0]"
    yield "objects", "[" + '{"":0},' * (size // 7) + "0]"
    yield "levels", "[" * size
    yield "numbers", "[" + "1," * (size // 2) + "1]"
    yield "a number", "1" * size
    yield "a text", '"' + "a" * size + '"'
    yield "escapes", '"' + "\\u00e9" * (size // 6) + '"'
    yield "NaN", "[" + "NaN," * (size // 4) + "NaN]"
    yield "keys", "{" + ",".join(f'"{i}":{i}' for i in range(size // 14)) + "}"


class Adversarial(ProgramTest):
    def linked(self, source, name):
        """A folder of links to the files of a model, some of which a test replaces."""
        folder = self.folder / name
        shutil.copytree(source, folder, copy_function=os.symlink)
        return folder

    def pipeline(self, tokenizer):
        """A folder of links to a pipeline and to the tokenizer of another."""
        folder = self.linked(DATA / "diffusers/flux_dev/model", tokenizer.replace("/", "-"))
        index = folder / "model_index.json"
        content = json.loads(index.read_text())
        content["tokenizer"] = ["transformers", "AutoTokenizer"]
        index.unlink()
        index.write_text(json.dumps(content))
        (folder / "tokenizer").symlink_to(DATA / tokenizer / "model/tokenizer")
        return folder

    def texts(self):
        folders = {kind: self.pipeline(model) if isinstance(model, str) else model
                   for kind, model in TOKENIZERS.items()}
        for (kind, model), part in itertools.product(folders.items(), TEXTS):
            path = self.folder / "prompt.txt"
            text = ("a" + part * (BYTES // len(part.encode())))
            path.write_text(text, encoding="utf-8")
            yield f"{kind} {part!r}", BYTES, ("tokenize", model, "--prompt-file", path)

    def templates(self):
        folder = self.linked(SOURCE / "models/tasks-a", "templates")
        config = folder / "tokenizer_config.json"
        content = json.loads(config.read_text())
        chat = self.folder / "chat.json"
        chat.write_text('[{"role": "user", "content": "hi"}]')
        config.unlink()
        for template in TEMPLATES:
            content["chat_template"] = template
            config.write_text(json.dumps(content))
            yield template[:60], len(template), ("tokenize", folder, "--chat", chat)

    def model_headers(self):
        folder = self.linked(SHAPES, "headers")
        weights = folder / "vae/diffusion_pytorch_model.safetensors"
        weights.unlink()
        for name, text in headers(BYTES):
            raw = text.encode()
            weights.write_bytes(struct.pack("<Q", len(raw)) + raw)
            yield "header: " + name, BYTES, ("inspect", folder)

    def model_documents(self):
        for model, file in ((SHAPES, "vae/config.json"), (SHAPES, "model_index.json"),
                            (SOURCE / "models/tasks-a", "tokenizer_config.json"),
                            (SOURCE / "models/tasks-a", "tokenizer.json")):
            folder = self.linked(model, "json" + file.replace("/", "-"))
            (folder / file).unlink()
            for name, text in documents(BYTES):
                (folder / file).write_text(text)
                yield f"{file}: {name}", BYTES, ("inspect", folder)

    def cases(self):
        every = itertools.chain(self.texts(), self.templates(), self.model_headers(),
                                self.model_documents())
        return ((i, *case) for i, case in enumerate(every) if i % EVERY == 0)

    def processor_seconds(self, arguments, signal_after=None):
        """(seconds of the processor that a run takes, or takes after a signal; status)."""
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = 0.0
        if signal_after is not None:
            time.sleep(signal_after)
            with open(f"/proc/{process.pid}/stat") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            before = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            os.kill(process.pid, signal.SIGTERM)  # it is there until it is waited for
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_utime + usage.ru_stime - before, process.returncode

    @staticmethod
    def statuses(arguments):
        """A text is taken, or, by the small vocabulary of tasks-a, refused; files are refused."""
        if "--prompt-file" not in arguments:
            return (0, 2, 3, 6)
        return (0, 2) if TOKENIZERS["bpe"] in arguments else (0,)

    def test_takes_a_second_per_megabyte(self):
        count = 0
        for _, name, size, arguments in self.cases():
            most = START + max(size / 1e6, 1)
            for _ in range(3):
                seconds, status = self.processor_seconds(arguments)
                if seconds <= most:
                    break
            with self.subTest(name):
                count += 1
                self.assertIn(status, self.statuses(arguments))
                self.assertLessEqual(seconds, most)
        self.assertGreaterEqual(count, 190 // EVERY)

    def test_hears_a_signal(self):
        for _, name, _, arguments in self.cases():
            for tries in range(3):
                seconds, status = self.processor_seconds(arguments, 0.15 * (tries + 1))
                if seconds <= HEARD:
                    break
            with self.subTest(name):
                self.assertIn(status, (0, 2, 3, 6, 130, -signal.SIGTERM))
                self.assertLessEqual(seconds, HEARD)


if __name__ == "__main__":
    unittest.main()
