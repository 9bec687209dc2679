#!/usr/bin/env python3
"""Writes expected.json: what jinja2, set up as transformers does, makes of the templates beside it.

Needs jinja2 (PyPI). The templates are in the form that the models' documentation describes; the
texts are what any engine must give.
"""

import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parent
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(Extension):
    """{% generation %}: marks what a trainer learns from; the text is as without."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = NOW.strftime
    return env


TOOLS = [{"type": "function",
          "function": {"name": "weather", "description": "The weather of a city, \u00e9t\u00e9 & <hiver>. ",
                       "parameters": {"type": "object",
                                      "properties": {"city": {"type": "string", "description": "Which"},
                                                     "days": {"type": "integer", "enum": [1, 2], "default": 1.5}},
                                      "required": ["city"]}}},
         {"type": "function",
          "function": {"name": "time", "description": "Now",
                       "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "abcdefghi", "type": "function",
        "function": {"name": "weather", "arguments": {"city": "K\u00f6ln", "days": 2, "z": {"b": None, "a": [True]}}}}
CHATS = {
    "one": {"messages": [{"role": "user", "content": "Hi"}]},
    "turns": {"messages": [{"role": "system", "content": " Be brief. "},
                           {"role": "user", "content": "Was ist \u00dcbung? \U0001f600\n"},
                           {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nTraining."},
                           {"role": "user", "content": "  Danke "}]},
    "answered": {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}],
                 "add_generation_prompt": False},
    "system_only": {"messages": [{"role": "system", "content": "You are \"x\"."}]},
    "bad_order": {"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]},
    "tools": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Weather?"}],
              "tools": TOOLS},
    "called": {"messages": [{"role": "user", "content": "Weather in K\u00f6ln?"},
                            {"role": "assistant", "content": None, "tool_calls": [CALL]},
                            {"role": "tool", "tool_call_id": "abcdefghi", "content": "{\"rain\": true}"}],
               "tools": TOOLS[:1]},
    "called_twice": {"messages": [{"role": "user", "content": "Both"},
                                  {"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]},
                                  {"role": "tool", "tool_call_id": "abcdefghi", "content": "1"},
                                  {"role": "tool", "tool_call_id": "abcdefghi", "content": "2"},
                                  {"role": "assistant", "content": "Done"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " what? "}]}]},
    "thinking": {"messages": [{"role": "user", "content": "x"}], "enable_thinking": False},
}
SNIPPETS = (FOLDER / "snippets.txt").read_text(encoding="utf-8").split("\n----\n")
VALUES = {"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "H\u00ef \U0001f600"},
                       {"role": "assistant", "content": "Yes", "n": 3}],
          "tools": None, "documents": None, "add_generation_prompt": True,
          "s": "\u00fcber \u00c4pfel, stra\u00dfe", "d": {"b": 1, "a": [1.0, None, True], "items": 3, "C": "x"},
          "n": 7, "x": 2.5, "list": [3, 1, 2], "empty": "", "words": ["b", "A", "c", "a"]}


def rendered(env, template, values):
    try:
        return {"text": env.from_string(template).render(**values)}
    except Exception as error:  # what Jinja refuses, any engine refuses
        return {"refused": str(error)[:80]}


def main():
    env = environment()
    cases = []
    for template in sorted(FOLDER.glob("*.jinja")):
        for name, chat in CHATS.items():
            values = {"tools": None, "documents": None, "add_generation_prompt": True,
                      "bos_token": "<s>", "eos_token": "</s>"} | chat
            cases.append({"template": template.name, "chat": name}
                         | rendered(env, template.read_text(encoding="utf-8"), values))
    snippets = [{"template": text} | rendered(env, text, VALUES) for text in SNIPPETS]
    out = {"jinja2": jinja2.__version__, "now": int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp()),
           "chats": CHATS, "cases": cases, "values": VALUES, "snippets": snippets}
    (FOLDER / "expected.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n",
                                          encoding="utf-8")


if __name__ == "__main__":
    main()
