"""Writes what transformers gives for the chat templates in tests/data/chat_templates, each in the style of the family in
its name, and for everything.jinja, to cases.jsonl and expected.jsonl there.

    pip install transformers jinja2; python tests/golden/make_chat_templates.py

A line of the first has variables, one of the second a template's name, the number of the case from 0, and the text, null
where the template refuses the chat.  strftime_now returns the fixed date that calm uses."""

import json
from datetime import datetime
from pathlib import Path

from transformers.utils.chat_template_utils import _compile_jinja_template

FOLDER = Path(__file__).parent.parent / "data/chat_templates"
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a <place> & 'time'", "parameters": {
            "type": "object", "required": ["place"], "properties": {
                "place": {"type": "string", "description": "Where, e.g. \"Zürich\""},
                "days": {"type": "integer", "enum": [1, 2, 3]}, "tags": {"type": "array", "items": {"type": "string"}},
                "unit": {"type": ["string", "null"], "default": None}}}}},
    {"type": "function", "function": {"name": "stop", "description": "Stop.",
                                      "parameters": {"type": "object", "properties": {}, "required": []}}},
]
CALL = {"id": "call_0001", "type": "function", "function": {
    "name": "get_weather", "arguments": {"place": "Zürich", "days": 2, "x": 1.5, "t": True, "n": None, "l": [1, "a"]}}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


CHATS = [
    [message("user", "Hi"), message("assistant", "Hello! How are you?")],
    [message("system", "You are terse.\n"), message("user", "  What is 2+2?  "), message("assistant", "4")],
    [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nanswer", reasoning_content="because",
                                   thinking="because"), message("user", "你好 😀\t\u00a0"),
     message("assistant", "<think>\nhm\n</think>\n\nmore \"x\" <b>")],
    [message("user", "weather?"), message("assistant", "", tool_calls=[CALL]),
     message("tool", "{\"t\": 21}", name="get_weather", tool_call_id="call_0001"), message("assistant", "21 degrees")],
    [message("user", [{"type": "text", "text": "part one "}, {"type": "text", "text": "two"}]), message("assistant", "ok")],
    [message("assistant", "first"), message("user", "last")],
]
SETTINGS = [{}, {"tools": TOOLS, "documents": [{"title": "T", "text": "body"}]},
            {"enable_thinking": False, "add_generation_prompt": True}]


def render(template, variables):
    try:
        return template.render(**variables, strftime_now=lambda form: datetime(2024, 7, 26, 12).strftime(form))
    except Exception:
        return None


def main():
    cases = [{"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, "bos_token": "<s>",
              "eos_token": "</s>", **more} for messages in CHATS for more in SETTINGS]
    lines = []
    for path in sorted(FOLDER.glob("*.jinja")):
        template = _compile_jinja_template(path.read_text(encoding="utf-8"))
        for number, variables in enumerate(cases[:1] if path.stem == "everything" else cases):
            lines.append({"template": path.name, "case": number, "text": render(template, variables)})
    for name, of in (("cases", cases), ("expected", lines)):
        with open(FOLDER / f"{name}.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in of)


main()
