#!/usr/bin/env python3
"""The official client of OpenAI, unchanged, against the server."""

import base64
import contextlib
import io
import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import openai

from serving import PROGRAM, SOURCE, ServerTest, main

# Letters that tasks-a knows.
TOOLS_TEMPLATE = """\
{%- for tool in tools or [] %}{% for name in tool.function.parameters %}{{ name }} {% endfor %}{% endfor %}
{%- for m in messages %}{{ ' ' if not loop.first }}
{%- for call in m.tool_calls or [] %}{{ call.function.name }}
{%- for name, value in call.function.arguments.items() %} {{ name }} {{ value }}{% endfor %}{% endfor %}
{%- if m.role == 'tool' %}{{ m.tool_call_id }} {% endif %}{{ m.content or '' }}
{%- endfor -%}
"""

class Client(ServerTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["shapes", "tasks-a"])
        self.assertEqual(self.client.models.retrieve("shapes").owned_by, "tessera")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nothing")

    def test_images(self):
        made = self.client.images.generate(model="shapes", prompt="blue star", n=2, size="128x128",
                                           response_format="b64_json", extra_body={"steps": 4})
        images = [base64.b64decode(image.b64_json) for image in made.data]
        self.assertEqual([image[:4] for image in images], [b"\x89PNG"] * 2)
        self.assertNotEqual(images[0], images[1])
        again = [self.client.images.generate(model="shapes", prompt="blue star", response_format="b64_json",
                                             extra_body={"steps": 4, "seed": 5}).data[0].b64_json for _ in range(2)]
        self.assertEqual(again[0], again[1])

    def test_each_image_has_a_seed_that_gives_it_again(self):
        def images(**more):
            made = self.client.images.generate(model="shapes", prompt="blue star", response_format="b64_json",
                                               extra_body={"steps": 2, **more.pop("extra", {})}, **more)
            return [(image.model_extra["seed"], image.b64_json) for image in made.data]

        for asked, seeds in (({"seed": 5}, [5, 6, 7]), ({"seeds": [9, 2, 2**64 - 1]}, [9, 2, 2**64 - 1]), ({"seed": 2**64 - 1}, [2**64 - 1, 0, 1]),
                             ({}, None)):
            several = images(n=3, extra=asked)
            self.assertEqual(len({pixels for _, pixels in several}), 3)
            if seeds:
                self.assertEqual([seed for seed, _ in several], seeds)
            for seed, pixels in several:
                self.assertEqual(images(extra={"seed": seed}), [(seed, pixels)])
        raw = base64.b64decode(several[1][1])
        self.assertIn(b"Seed: %d," % several[1][0], raw)
        self.assertNotIn(b"Batch", raw, "it is not one of several of a seed")
        for more, param in (({"seed": 1, "seeds": [1, 2]}, "seeds"), ({"seeds": [1]}, "seeds"), ({"seed": -1}, "seed")):
            with self.assertRaises(openai.BadRequestError) as refused:
                images(n=2, extra=more)
            self.assertEqual(refused.exception.body["param"], param)

    def test_fields_of_jobs_stand_beside_the_forms(self):
        sizes = ({"size": "64x96"}, {"extra_body": {"width": 64, "height": 96}})
        made = [self.client.images.generate(model="shapes", prompt="blue star", response_format="b64_json",
                                            **{**size, "extra_body": {"steps": 1, "seed": 1, "noise": "philox", "scheduler": "rectified-flow",
                                                                      "guidance_rescale": 0.5, **size.get("extra_body", {})}}) for size in sizes]
        self.assertEqual(made[0].data[0].b64_json, made[1].data[0].b64_json)
        self.client.completions.create(model="tasks-a", prompt="sort hello=",
                                       extra_body={"steps": 4, "block": 8, "stop_at_eos": "block", "select_prefill": True})

    def test_edits_and_variations_of_images(self):
        server = self.another(models=("scenes",))
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        prompt, seed = "a red circle left of a blue square", {"steps": 4, "seed": 1}
        drawn = base64.b64decode(client.images.generate(model="scenes", prompt=prompt, response_format="b64_json",
                                                        extra_body=seed).data[0].b64_json)
        changed = [client.images.edit(model="scenes", image=image, prompt=prompt, response_format="b64_json",
                                      extra_body={**seed, "strength": 0.5}).data[0].b64_json
                   for image in (drawn, [("a.png", drawn, "image/png")], io.BytesIO(drawn))]
        self.assertEqual(len(set(changed)), 1)
        self.assertNotEqual(base64.b64decode(changed[0]), drawn)
        others = client.images.create_variation(model="scenes", image=drawn, n=2, response_format="b64_json", extra_body=seed)
        self.assertEqual(len({one.b64_json for one in others.data}), 2)
        with self.assertRaises(openai.BadRequestError) as refused:
            client.images.edit(model="scenes", image=drawn[:200], prompt=prompt)
        self.assertEqual(refused.exception.body["param"], "image")

    def test_images_by_address(self):
        (image,) = self.client.images.generate(model="shapes", prompt="red ring", extra_body={"steps": 2}).data
        self.assertTrue(image.url.startswith(f"http://127.0.0.1:{self.server.port}/jobs/"))
        self.assertEqual(self.server.get("/" + image.url.split("/", 3)[3]).body[:4], b"\x89PNG")

    def test_completions(self):
        made = self.client.completions.create(model="tasks-a", prompt="sort hello=", max_tokens=32)
        self.assertEqual((made.choices[0].text, made.choices[0].finish_reason), ("ehllo", "stop"))
        self.assertEqual(made.usage.total_tokens, made.usage.prompt_tokens + made.usage.completion_tokens)
        both = self.client.completions.create(model="tasks-a", prompt=["sort hello=", "rev abcdef="])
        self.assertEqual([choice.text for choice in both.choices], ["ehllo", "fedcba"])

    def test_streams(self):
        chunks = list(self.client.completions.create(model="tasks-a", prompt="rev abcdef=", stream=True,
                                                     stream_options={"include_usage": True}, extra_body={"block": 4}))
        self.assertEqual("".join(c.choices[0].text for c in chunks if c.choices), "fedcba")
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertGreater(chunks[-1].usage.completion_tokens, 0)

    def test_chat(self):
        messages = [{"role": "user", "content": "sort hello="}]
        said = self.client.chat.completions.create(model="tasks-a", messages=messages)
        self.assertEqual((said.choices[0].message.content, said.choices[0].message.role), ("ehllo", "assistant"))
        parts = [{"role": "user", "content": [{"type": "text", "text": "sort "}, {"type": "text", "text": "hello="}]}]
        stream = self.client.chat.completions.create(model="tasks-a", messages=parts, stream=True, temperature=0,
                                                     max_completion_tokens=32)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), "ehllo")

    def with_template(self, template):
        """A client of a server whose tasks-a has another chat template, and the server."""
        return self.with_folder("tools", lambda folder: (folder / "chat_template.jinja").write_text(template))

    def with_folder(self, name, change):
        """A client of a server whose tasks-a was changed and has another name, and the server."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / name
        shutil.copytree(SOURCE / "models/tasks-a", folder)
        change(folder)
        server = self.another(models=(str(folder),))
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        return client, server

    def test_what_tools_said_reaches_the_template(self):
        client, server = self.with_template(TOOLS_TEMPLATE)
        tools = [{"type": "function", "function": {"name": "add", "parameters": {"zeta": {}, "beta": {}}}}]
        call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"z": "p", "b": "q"}'}}
        first = client.chat.completions.create(model="tools", messages=[{"role": "user", "content": "go"}], tools=tools,
                                               max_tokens=8).choices[0]
        self.assertEqual(first.finish_reason in ("stop", "length"), True)
        self.assertIsNone(first.message.tool_calls, "an answer is text")
        messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c", "content": "done"}, first.message]
        for choice, known in (("auto", "zeta beta "), ("none", "")):
            client.chat.completions.create(model="tools", messages=messages, tools=tools, tool_choice=choice, max_tokens=8)
            job = server.get("/jobs/" + server.get("/jobs?limit=1").json["jobs"][0]["id"]).json
            wanted = f"{known}go add z p b q c done {first.message.content}"
            ids = subprocess.run([PROGRAM, "tokenize", "tasks-a", "--raw", "--json", "--prompt", wanted], check=True,
                                 capture_output=True, text=True).stdout
            self.assertEqual(job["report"]["completions"][0]["prompt_ids"], json.loads(ids)[0]["ids"])

    def test_a_template_that_knows_no_tools_refuses_them(self):
        client, _ = self.with_template("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}"
                                       "{% endif %}{{ m.content or '' }}{% endfor %}")
        asked = {"role": "user", "content": "x"}
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for more, says in (({"messages": [asked, {"role": "tool", "tool_call_id": "c", "content": "4"}]}, "no tools here"),
                           ({"messages": [asked, {"role": "assistant", "tool_calls": [call]}]}, "tool_calls"),
                           ({"messages": [asked], "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools")):
            for stream in (False, True):
                with self.assertRaisesRegex(openai.BadRequestError, says) as caught:
                    client.chat.completions.create(model="tools", stream=stream, **more)
                self.assertNotIn("/tools/", str(caught.exception), "a folder of the server is no client's business")

    def test_several_answers_to_one_prompt(self):
        ask = {"model": "tasks-a", "prompt": "sort hello=", "temperature": 0.7, "top_p": 0.9, "seed": 5}
        more = {"top_k": 40, "repetition_penalty": 1.05}
        three = self.client.completions.create(**ask, n=3, extra_body=more)
        self.assertEqual([choice.index for choice in three.choices], [0, 1, 2])
        for i, choice in enumerate(three.choices):  # of seeds that follow one another
            alone = self.client.completions.create(**{**ask, "seed": 5 + i}, extra_body=more)
            self.assertEqual(choice.text, alone.choices[0].text)
        said = ["", "", ""]
        for chunk in self.client.completions.create(**ask, n=3, extra_body=more, stream=True):
            for choice in chunk.choices:
                said[choice.index] += choice.text
        self.assertEqual(said, [choice.text for choice in three.choices])

    def test_log_probabilities(self):
        answer = self.client.completions.create(model="tasks-a", prompt="sort hello=", logprobs=2).choices[0]
        said = answer.logprobs
        self.assertTrue("".join(said.tokens).startswith(answer.text))
        self.assertEqual(said.text_offset[:3], [0, len(said.tokens[0]), len(said.tokens[0] + said.tokens[1])])
        for token, sure, top in zip(said.tokens, said.token_logprobs, said.top_logprobs):
            self.assertLessEqual(sure, 0)
            self.assertEqual(len(top), 2)
            self.assertEqual(top[token], sure, "a greedy answer takes the likeliest")
        chat = self.client.chat.completions.create(model="tasks-a", messages=[{"role": "user", "content": "sort hello="}],
                                                   logprobs=True, top_logprobs=2).choices[0].logprobs.content
        self.assertEqual([token.token for token in chat], said.tokens)
        self.assertEqual(bytes(chat[0].bytes).decode(), chat[0].token)
        self.assertEqual([top.logprob for top in chat[0].top_logprobs], sorted(said.top_logprobs[0].values(), reverse=True))

    def test_bytes_of_parts_of_characters(self):
        def respell(folder):  # k, m and q become the three bytes of a euro sign
            file = json.loads((folder / "tokenizer.json").read_text())
            vocab = file["model"]["vocab"]
            for letter, byte in zip("kmq", "\u00e2\u0124\u00ac"):
                vocab[byte] = vocab.pop(letter)
            (folder / "tokenizer.json").write_text(json.dumps(file))

        client, _ = self.with_folder("euro", respell)
        chat = client.chat.completions.create(model="euro", messages=[{"role": "user", "content": "sort e\u20acz="}],
                                              logprobs=True, top_logprobs=1).choices[0]
        self.assertEqual(chat.message.content, "e\u20acz")
        content = chat.logprobs.content
        self.assertEqual(b"".join(bytes(token.bytes) for token in content).decode(), chat.message.content)
        self.assertEqual([token.token for token in content][:5], ["e", "\\xe2", "\\x82", "\\xac", "z"])
        self.assertEqual([top.bytes for token in content for top in token.top_logprobs], [token.bytes for token in content])
        plain = client.completions.create(model="euro", prompt="sort e\u20acz=", logprobs=1).choices[0]
        self.assertEqual(plain.text, "e\u20acz")
        self.assertEqual(plain.logprobs.tokens[:5], ["e", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "z"])
        self.assertEqual(plain.logprobs.text_offset[:5], [0, 1, 1, 1, 2])
        self.assertEqual([list(top) for top in plain.logprobs.top_logprobs], [[token] for token in plain.logprobs.tokens])
        cut = client.completions.create(model="euro", prompt="sort e\u20acz=", logprobs=1, stop="z").choices[0]
        self.assertEqual((cut.text, cut.logprobs.tokens), ("e\u20ac", plain.logprobs.tokens[:4]))

    def test_a_prompt_counts_once(self):
        ask = {"model": "tasks-a", "prompt": "sort hello=", "max_tokens": 8}
        alone = self.client.completions.create(**ask).usage.prompt_tokens
        other = self.client.completions.create(**{**ask, "prompt": "rev stone"}).usage.prompt_tokens
        self.assertNotEqual(alone, other)
        chat = {"model": "tasks-a", "messages": [{"role": "user", "content": "sort hello="}], "max_tokens": 8}
        in_chat = self.client.chat.completions.create(**chat).usage.prompt_tokens
        several = {"n": 3, "temperature": 1, "seed": 1}
        usages = [(alone, self.client.completions.create(**ask, **several).usage),
                  (alone + other, self.client.completions.create(**{**ask, "prompt": ["sort hello=", "rev stone"]}, **several).usage),
                  (2 * alone, self.client.completions.create(**{**ask, "prompt": ["sort hello="] * 2}, **several).usage),
                  (in_chat, self.client.chat.completions.create(**chat, **several).usage)]
        last = {"stream": True, "stream_options": {"include_usage": True}}
        usages += [(alone, list(self.client.completions.create(**ask, **several, **last))[-1].usage),
                   (in_chat, list(self.client.chat.completions.create(**chat, **several, **last))[-1].usage)]
        for prompt, usage in usages:
            self.assertEqual((usage.prompt_tokens, usage.total_tokens), (prompt, prompt + usage.completion_tokens))
            self.assertGreater(usage.completion_tokens, 3)
        job = self.server.wait(self.server.submit({"prompt": "sort hello=", **several}, "tasks-a"))
        self.assertEqual(job["usage"]["prompt_tokens"], alone)

    def test_streams_are_kept_back_by_no_proxy(self):
        job = self.server.submit()
        for path, body in ((f"/jobs/{job}/events", None), ("/v1/completions", {"model": "tasks-a", "prompt": "sort hello=", "stream": True}),
                           ("/v1/chat/completions", {"model": "tasks-a", "messages": [{"role": "user", "content": "x"}], "stream": True})):
            headers = self.server.ask("POST" if body else "GET", path, body).headers
            self.assertEqual((headers["X-Accel-Buffering"], headers.get_all("Cache-Control")), ("no", ["no-cache"]), path)
            self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))

    def test_the_guide(self):
        blocks = re.findall(r"(?ms)^```python\n(.*?)^```", (SOURCE / "docs/guides/server.md").read_text())
        self.assertEqual(len(blocks), 1)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(blocks[0].replace(":8080", f":{self.server.port}"), {})
        self.assertEqual(said.getvalue(), "fedcba")

    def test_what_is_refused(self):
        for error, ask in (
                (openai.NotFoundError, lambda: self.client.completions.create(model="x", prompt="x")),
                (openai.BadRequestError, lambda: self.client.images.generate(model="shapes", prompt="purple cow")),
                (openai.BadRequestError, lambda: self.client.images.generate(model="shapes", prompt="red ring", size="big")),
                (openai.BadRequestError, lambda: self.client.images.generate(model="tasks-a", prompt="x")),
                (openai.BadRequestError, lambda: self.client.completions.create(model="shapes", prompt="x")),
                (openai.BadRequestError, lambda: self.client.completions.create(model="tasks-a", prompt="x", n=2)),
                (openai.BadRequestError, lambda: self.client.completions.create(model="tasks-a", prompt="x", logprobs=21))):
            with self.assertRaises(error) as refused:
                ask()
            self.assertTrue(refused.exception.body["message"])

    def test_keys(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a-key-of-many-characters\n")
            file.flush()
            server = self.another("--api-keys", file.name)
        base = f"http://127.0.0.1:{server.port}/v1"
        with openai.OpenAI(base_url=base, api_key="another-key-of-many-characters", max_retries=0) as client:
            self.assertRaises(openai.AuthenticationError, client.models.list)
        with openai.OpenAI(base_url=base, api_key="a-key-of-many-characters", max_retries=0) as client:
            self.assertEqual([model.id for model in client.models.list()], ["shapes"])


if __name__ == "__main__":
    main()
