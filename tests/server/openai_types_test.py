#!/usr/bin/env python3
"""Every field that OpenAI's client knows, by its own types: with null, with what asks for nothing, and with more."""

import typing

import openai
from openai.types import completion_create_params, image_generate_params
from openai.types.chat import (ChatCompletionAssistantMessageParam, ChatCompletionContentPartTextParam, ChatCompletionDeveloperMessageParam,
                               ChatCompletionFunctionToolParam, ChatCompletionMessage, ChatCompletionMessageFunctionToolCallParam,
                               ChatCompletionStreamOptionsParam, ChatCompletionSystemMessageParam, ChatCompletionToolMessageParam,
                               ChatCompletionUserMessageParam)
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.shared_params import FunctionDefinition

from serving import ServerTest, main

ASKED = [{"role": "user", "content": "sort hello="}]
TOOL = {"type": "function", "function": {"name": "f"}}
# By address: the client's type, what a request needs, and of its fields values that ask for nothing.
FORMS = {
    "/v1/chat/completions": (chat_create_params.CompletionCreateParamsNonStreaming, {"model": "tasks-a", "messages": ASKED, "max_tokens": 8}, {
        "frequency_penalty": [0, 0.0], "presence_penalty": [0, 0.0], "function_call": ["none", "auto"], "functions": [[]], "logit_bias": [{}],
        "logprobs": [False], "metadata": [{}], "modalities": [["text"]], "moderation": [{}], "n": [1], "parallel_tool_calls": [True],
        "prompt_cache_key": ["", "k"], "prompt_cache_options": [{}, {"mode": None}], "reasoning_effort": ["none", "medium"],
        "response_format": [{"type": "text"}, {"type": "text", "json_schema": None}], "safety_identifier": ["", "k"],
        "service_tier": ["auto", "default"], "stop": [[]], "store": [False], "stream": [False],
        "stream_options": [{}, {"include_usage": False}, {"include_usage": None, "include_obfuscation": None}], "temperature": [0],
        "tool_choice": ["none", "auto"], "tools": [[]], "top_logprobs": [0], "top_p": [1], "user": ["", "u"], "verbosity": ["medium"]}),
    "/v1/completions": (completion_create_params.CompletionCreateParamsNonStreaming, {"model": "tasks-a", "prompt": "sort hello=", "max_tokens": 8}, {
        "best_of": [1], "echo": [False], "frequency_penalty": [0], "logit_bias": [{}], "n": [1], "presence_penalty": [0], "stop": [[]],
        "stream": [False], "stream_options": [{}], "suffix": [""], "temperature": [0], "top_p": [1], "user": ["", "u"]}),
    "/v1/images/generations": (image_generate_params.ImageGenerateParamsNonStreaming, {"model": "shapes", "prompt": "blue star", "steps": 1}, {
        "background": ["auto", "opaque"], "moderation": ["auto", "low"], "n": [1], "output_compression": [100], "output_format": ["png"],
        "partial_images": [0], "quality": ["auto", "standard"], "response_format": ["url"], "safety_identifier": ["", "k"], "size": ["auto"],
        "stream": [False], "style": ["vivid"], "user": ["", "u"]})}
OF_NO_KIND = {"unheard_of": "x"}  # no field takes it


def fields_of(kind):
    return set(typing.get_type_hints(kind))


class Types(ServerTest):
    def taken(self, path, body):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 200, f"{path} {body}: {answer.body.decode()[:300]}")
        return answer.json

    def refused(self, path, body, param):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 400, f"{path} {body}: {answer.body.decode()[:300]}")
        self.assertEqual((answer.json["error"]["param"] or "").split(".")[0].split("[")[0], param, answer.body)

    def test_null_is_an_absent_field(self):
        for path, (kind, body, _) in FORMS.items():
            known = fields_of(kind)
            self.assertGreater(len(known), 15)
            nulls = dict.fromkeys(known - set(body))
            for name in nulls:
                self.taken(path, {**body, name: None})
            self.taken(path, {**nulls, "unheard_of": None, **body})

    def test_neutral_values_ask_for_nothing(self):
        for path, (kind, body, neutral) in FORMS.items():
            self.assertEqual(set(neutral) - fields_of(kind), set(), "the client knows all of them")
            for name, values in neutral.items():
                for value in values:
                    self.taken(path, {**body, name: value})
            self.taken(path, {**body, **{name: values[0] for name, values in neutral.items()}})

    def test_other_values_are_refused_by_name(self):
        for path, (kind, body, _) in FORMS.items():
            for name in fields_of(kind) - {"model"}:
                self.refused(path, {**body, name: OF_NO_KIND}, name)
            for value in (0, 1, False, "", "x", [1], {"a": 1}):
                self.refused(path, {**body, "unheard_of": value}, "unheard_of")
        chat, completion, image = FORMS
        for path, name, value in ((chat, "metadata", {"a": "b"}), (chat, "service_tier", "flex"), (chat, "reasoning_effort", "high"),
                                  (chat, "verbosity", "low"), (chat, "web_search_options", {}), (chat, "store", True),
                                  (chat, "modalities", ["text", "audio"]), (chat, "functions", [{"name": "f"}]),
                                  (chat, "logit_bias", {"1": 2}), (chat, "prediction", {"type": "content", "content": "x"}),
                                  (completion, "best_of", 2), (completion, "echo", True), (completion, "suffix", "x"),
                                  (image, "stream", True), (image, "partial_images", 2), (image, "style", "natural"),
                                  (image, "quality", "hd"), (image, "output_format", "webp"), (image, "output_compression", 50),
                                  (image, "classes", ["red ring"]), (image, "count", 2), (completion, "messages", ASKED)):
            self.refused(path, {**FORMS[path][1], name: value}, name)

    def test_parts_of_a_chat(self):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        text = {"type": "text", "text": "sort hello="}
        assistant = {"role": "assistant", "content": "ehllo"}
        chat, (_, body, _) = next(iter(FORMS.items()))
        messages = ((ChatCompletionSystemMessageParam, {"role": "system", "content": "x"}),
                    (ChatCompletionDeveloperMessageParam, {"role": "developer", "content": "x"}),
                    (ChatCompletionUserMessageParam, ASKED[0]), (ChatCompletionAssistantMessageParam, assistant))
        for kind, message in messages:
            for name in (fields_of(kind) | fields_of(ChatCompletionAssistantMessageParam)) - {"role", "content"}:
                self.taken(chat, {**body, "messages": [{**message, name: None}, *ASKED]})
        for name in fields_of(ChatCompletionContentPartTextParam) - set(text):
            self.taken(chat, {**body, "messages": [{"role": "user", "content": [{**text, name: None}]}]})
        for name, value in (("annotations", []), ("tool_calls", []), ("content", None), ("content", []), ("refusal", ""), ("name", "n")):
            self.taken(chat, {**body, "messages": [*ASKED, {**assistant, name: value}, *ASKED]})
        self.taken(chat, {**body, "messages": [*ASKED, {"role": "assistant"}, *ASKED]})
        for name, value in (("annotations", [{}]), ("audio", {"id": "x"}), ("function_call", {"name": "f", "arguments": ""}), ("refusal", "no"),
                            ("unheard_of", False)):
            self.refused(chat, {**body, "messages": [*ASKED, {**assistant, name: value}]}, "messages")
        for name in fields_of(ChatCompletionStreamOptionsParam):
            self.taken(chat, {**body, "stream_options": {name: None}})
        # tasks-a's template reads no tools: what is wrong is said of the template, not of the fields.
        answers = [self.server.post(chat, {**body, "messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": [made]}]})
                   for made in (*({**call, name: None} for name in fields_of(ChatCompletionMessageFunctionToolCallParam) - {"function"}),
                                {**call, "unheard_of": None}, {**call, "function": {**call["function"], "unheard_of": None}})]
        answers += [self.server.post(chat, {**body, "tools": [{**TOOL, **more}]}) for more in (
            *({name: None} for name in fields_of(ChatCompletionFunctionToolParam) - {"function"}), {"unheard_of": None},
            *({"function": {"name": "f", name: None}} for name in fields_of(FunctionDefinition) - {"name"}))]
        answers += [self.server.post(chat, {**body, "messages": [*ASKED, {"role": "tool", "content": "x", "tool_call_id": "c", name: None}]})
                    for name in fields_of(ChatCompletionToolMessageParam) - {"role", "content", "tool_call_id"} | {"name"}]
        for answer in answers:
            self.assertTrue(answer.status == 200 or "template" in answer.message, answer.body)

    def test_an_answer_comes_back_as_it_was(self):
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)
        self.addCleanup(client.close)
        message = client.chat.completions.create(model="tasks-a", messages=ASKED).choices[0].message
        self.assertEqual(set(message.model_dump()), set(ChatCompletionMessage.model_fields))
        for said in (message, message.model_dump(), message.model_dump(exclude_none=True), message.to_dict(),
                     {**dict.fromkeys(ChatCompletionMessage.model_fields), "role": "assistant"}):
            again = client.chat.completions.create(model="tasks-a", messages=[*ASKED, said, {"role": "user", "content": "rev stone="}])
            self.assertIsInstance(again.choices[0].message.content, str)

    def test_jobs_and_lists(self):
        for model, request in (("shapes", {"classes": ["red circle"], "steps": 1}), ("tasks-a", {"prompt": "sort hello=", "max_tokens": 8}),
                               ("tasks-a", {"messages": [*ASKED, {"role": "assistant", "content": None, "tool_calls": []}, *ASKED], "max_tokens": 8})):
            more = dict.fromkeys(("seeds", "seed", "stop", "tools", "negative_prompt", "unheard_of"))
            body = {"model": model, "request": {**more, **request}, "previews": None, "unheard_of": None}
            job = self.server.post("/jobs", body)
            self.assertEqual(job.status, 202, job.body)
            self.assertEqual(self.server.wait(job.json["id"])["state"], "done")
        self.assertEqual(self.server.post("/jobs", {"model": "shapes", "request": {"classes": "3", "seeds": [], "prompts": [], "steps": 1}}).status, 202)
        self.assertEqual(self.server.get("/jobs?limit=&before=").status, 200)


if __name__ == "__main__":
    main()
