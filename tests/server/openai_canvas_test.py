#!/usr/bin/env python3
"""The official client of OpenAI, unchanged, against a model that denoises canvases."""

import canvas_model
import openai

from serving import Server, ServerTest, main

CHAT = [{"role": "user", "content": "Why is the sky blue?"}]


class Client(ServerTest):
    @classmethod
    def setUpClass(cls):
        cls.folder = canvas_model.written_for(cls)
        cls.server = Server(models=(str(cls.folder),))
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        self.client = self.client_of(self.server)

    def client_of(self, server):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        return client

    def completed(self, **more):
        return self.client.completions.create(model="canvas", prompt="The sky", **more)

    def test_whose_limit_ended_an_answer(self):
        folders, asked = self.completed(seed=3), self.completed(seed=3, max_tokens=50)
        self.assertEqual([one.choices[0].finish_reason for one in (folders, asked)], ["length"] * 2)
        self.assertEqual([one.choices[0].model_extra["limit"] for one in (folders, asked)], ["generation_config.json", "request"])
        self.assertEqual([one.usage.completion_tokens for one in (folders, asked)], [40, 50])
        self.assertTrue(asked.choices[0].text.startswith(folders.choices[0].text[:20]))

    def test_streams(self):
        whole = self.completed(seed=3).choices[0].text
        chunks = list(self.completed(seed=3, stream=True, stream_options={"include_usage": True}))
        texts = [c.choices[0].text for c in chunks if c.choices]
        self.assertEqual("".join(texts), whole)
        self.assertIn(len([text for text in texts if text]), (3, 4), "one for each canvas, and what half a character becomes")
        self.assertEqual(chunks[-2].choices[0].finish_reason, "length")
        self.assertEqual(chunks[-2].choices[0].model_extra["limit"], "generation_config.json")
        self.assertEqual(chunks[-1].usage.completion_tokens, 40)

    def test_chats_and_their_thinking_switch(self):
        def said(**more):
            made = self.client.chat.completions.create(model="canvas", messages=CHAT, max_tokens=8, seed=3, **more)
            return made.choices[0].message.content, made.usage.prompt_tokens

        plain, tokens = said()
        self.assertEqual(said(extra_body={"chat_template_kwargs": {"enable_thinking": False}}), (plain, tokens))
        thought, more = said(extra_body={"chat_template_kwargs": {"enable_thinking": True}})
        self.assertEqual(more - tokens, 11, "a system turn with the switch")
        self.assertNotEqual(thought, plain)
        stream = self.client.chat.completions.create(model="canvas", messages=CHAT, max_tokens=8, seed=3, stream=True)
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in stream), plain)
        with self.assertRaises(openai.BadRequestError) as refused:
            said(extra_body={"chat_template_kwargs": {"think_harder": True}})
        self.assertEqual(refused.exception.body["param"], "chat_template_kwargs.think_harder")

    def test_the_folder_s_tokens_end_an_answer(self):
        ids = self.server.wait(self.server.submit({"prompt": "The sky", "seed": 3}, "canvas"))["report"]["completions"][0]["ids"]
        end = next(i for i in ids[20:] if i not in ids[:20])
        folder = self.folder.parent / "ends"
        if not folder.exists():
            canvas_model.write(folder, generation={"eos_token_id": [1, end]})
        client = self.client_of(self.another(models=(str(folder),)))
        made = client.completions.create(model="ends", prompt="The sky", seed=3)
        self.assertEqual(made.choices[0].finish_reason, "stop")
        self.assertIsNone((made.choices[0].model_extra or {}).get("limit"))
        self.assertEqual(made.usage.completion_tokens, ids.index(end) + 1)

    def test_a_stop_text_ends_an_answer(self):
        whole = self.completed(seed=3).choices[0].text
        stop = whole[10:12]
        made = self.completed(seed=3, stop=stop).choices[0]
        self.assertEqual((made.text, made.finish_reason), (whole[:whole.index(stop)], "stop"))

    def test_an_image_and_a_temperature_are_refused_by_name(self):
        for part, says in (({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, "image_url"),
                           ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "input_audio")):
            messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, part]}]
            with self.assertRaisesRegex(openai.BadRequestError, says) as refused:
                self.client.chat.completions.create(model="canvas", messages=messages)
            self.assertEqual(refused.exception.body["param"], "messages[0].content[1]")
        with self.assertRaisesRegex(openai.BadRequestError, "t_max"):
            self.completed(temperature=0.5)
        warm = self.completed(seed=3, extra_body={"decode": "canvas:t_max=2,t_min=1"})
        self.assertNotEqual(warm.choices[0].text, self.completed(seed=3).choices[0].text)


if __name__ == "__main__":
    main()
