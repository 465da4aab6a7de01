"""chat_templates.py WORK TEMPLATES TOKENIZERS [MORE_TEMPLATES]: compares chats in calm and in transformers.

Texts: render_template for each NAME.jinja and case, against transformers' template.  Ids: `calm tokenize --json` for
chats, against apply_chat_template(tokenize=True), for each tokenizer with the template of its family."""

import json
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

work, templates, tokenizers = map(Path, sys.argv[1:4])
cases = [json.loads(line) for line in open(templates / "cases.jsonl", encoding="utf-8")]


class FixedDay(datetime):
    """The day of calm's strftime_now."""
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, 12)


chat_template_utils.datetime = FixedDay


def reference(source, variables):
    """Returns the text, or None if the template refuses the chat."""
    try:
        return chat_template_utils._compile_jinja_template(source).render(**variables)
    except Exception:
        return None


def run(command, lines):
    answer = subprocess.run(command, input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True)
    if answer.returncode:
        sys.exit(f"{command}: {answer.stderr}")
    return [json.loads(line) for line in answer.stdout.split("\n") if line]


def check_texts(folder):
    n = 0
    for path in sorted(folder.glob("*.jinja")):
        for case, found in zip(cases, run(["render_template", path], cases), strict=True):
            expected = reference(path.read_text(encoding="utf-8"), case)
            if found.get("text") != expected:
                sys.exit(f"{path.name}: {found}\nexpected: {expected!r}")
            n += 1
    print(f"{folder.name}: {n} texts as transformers writes them")


PAIRS = [("bpe_llama3", "llama3_tools"), ("bpe_qwen2", "qwen3_think"), ("bpe_qwen2", "chatml"), ("sp_bpe_llama2", "llama2"),
         ("sp_bpe_mistral", "mistral"), ("sp_bpe_gemma", "gemma"), ("bpe_gpt2", "olmo2"), ("sp_bpe_llama2", "zephyr")]


def check_ids(tokenizer, template):
    folder = work / f"{tokenizer}-{template}"
    shutil.copytree(tokenizers / tokenizer, folder)
    shutil.copy(templates / f"{template}.jinja", folder / "chat_template.jinja")
    reader = AutoTokenizer.from_pretrained(folder)
    lines, expected = [], []
    for case in cases:
        more = {key: case[key] for key in ("tools", "documents", "enable_thinking") if key in case}
        try:
            ids = reader.apply_chat_template(case["messages"], tokenize=True, return_dict=False, **more)
        except Exception:
            continue    # refused; that calm refuses it too is shown above
        line = {"messages": case["messages"], "tools": case["tools"], "documents": case["documents"]}
        if "enable_thinking" in case:
            line["chat_template_kwargs"] = {"enable_thinking": case["enable_thinking"]}
        lines.append(line)
        expected.append(ids)
    for line, found, ids in zip(lines, run(["calm", "tokenize", "--model", folder, "--json"], lines), expected, strict=True):
        if found["ids"] != ids:
            sys.exit(f"{tokenizer}, {template}: {line}\n{found['ids']}\nexpected {ids}")
    if not lines:
        sys.exit(f"{tokenizer}, {template}: no chat was compared")
    print(f"{tokenizer} with {template}: ids of {len(lines)} chats as apply_chat_template gives them")


for place in [templates, *map(Path, sys.argv[4:])]:
    check_texts(place)
if tokenizers.is_dir():
    for pair in PAIRS:
        check_ids(*pair)
