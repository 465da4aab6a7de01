#!/usr/bin/env python3
"""Compares keys of config.json that transformers reads, family by family, with calm's table of keys (ptq/arch/config_keys.def).

  config_keys.py reads    > ptq/arch/config_reads.def    keys that each family's code reads
  config_keys.py check                                    exit 1: that file differs; a key is listed twice; the table calls
                                                          unread what all families read
  config_keys.py harvest                                  fields of trainers and generation that the table lacks

A key is read if a modeling file has config.KEY or getattr(config, "KEY"), or if the configuration class
computes something from self.KEY.  The script parses sources and does not run them.  Needs transformers (5.23).
"""
import ast
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Folders of transformers with the code of calm's families.
FOLDERS = {"llama": ["llama"], "mistral": ["mistral"], "qwen2": ["qwen2", "qwen2_vl", "qwen2_5_vl"],
           "qwen3": ["qwen3", "qwen3_vl"], "qwen2_moe": ["qwen2_moe"], "qwen3_moe": ["qwen3_moe", "qwen3_vl_moe"],
           "gemma2": ["gemma2"], "gemma3": ["gemma3"], "gemma3n": ["gemma3n"], "gemma4": ["gemma4"], "phi3": ["phi3"], "olmo2": ["olmo2"],
           "mixtral": ["mixtral"],
           "olmoe": ["olmoe"], "glm4_moe": ["glm4_moe"], "minimax_m2": ["minimax_m2"], "phimoe": ["phimoe"],
           "ernie4_5_moe": ["ernie4_5_moe"], "deepseek_v2": ["deepseek_v2"], "deepseek_v3": ["deepseek_v3"],
           "glm4_moe_lite": ["glm4_moe_lite"], "qwen3_5": ["qwen3_5"], "qwen3_5_moe": ["qwen3_5_moe"],
           "qwen3_next": ["qwen3_next"], "lfm2": ["lfm2"], "lfm2_moe": ["lfm2_moe"], "granitemoehybrid": ["granitemoehybrid"],
           "nemotron_h": ["nemotron_h"], "bert": ["bert"],
           "roberta": ["roberta"], "xlm_roberta": ["xlm_roberta"],
           "distilbert": ["distilbert"], "mpnet": ["mpnet"], "modernbert": ["modernbert"], "nomic_bert": ["nomic_bert"],
           "gpt_oss": ["gpt_oss"], "llama4": ["llama4"], "gte": ["gte"], "eurobert": ["eurobert"], "embeddinggemma": ["gemma3"]}
# Files that every family's forward pass uses.
SHARED = ["modeling_rope_utils.py", "masking_utils.py", "cache_utils.py", "modeling_layers.py", "activations.py",
          "integrations/moe.py", "integrations/sdpa_attention.py", "integrations/eager_paged.py",
          "modeling_flash_attention_utils.py"]
# Parts of a wrapper's files that belong to the text model.
VISION = re.compile(r"Vision|Visual|Image|Video|Patch|Projector")


def is_config(node):
    """config, self.config, text_config, self.text_config"""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name == "config" or name == "text_config"


def reads_of(tree, own):
    """Returns the keys that a file reads; `own`: the file has a configuration class, whose attributes count."""
    found = set()
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ClassDef) and VISION.search(node.name))]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            mine = own and isinstance(node.value, ast.Name) and node.value.id == "self"
            if mine or is_config(node.value):
                found.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            target, key = node.args[0], node.args[1]
            if isinstance(key, ast.Constant) and (is_config(target) or own):
                found.add(key.value)
        if own and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and \
                node.func.attr in ("pop", "get") and node.args and isinstance(node.args[0], ast.Constant) and \
                isinstance(node.func.value, ast.Name) and node.func.value.id == "kwargs":
            found.add(node.args[0].value)
        if own and isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "attribute_map":
            found |= {key.value for key in node.value.keys}
    # Methods of the class are no keys, nor are names that begin with an underscore.
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {key for key in found if isinstance(key, str) and not key.startswith("_") and key not in methods}


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def all_reads():
    import transformers
    home = pathlib.Path(transformers.__file__).parent
    shared = set()
    for name in SHARED:
        if (home / name).exists():
            shared |= reads_of(parse(home / name), False)
    out = {"shared": shared}
    for family, folders in FOLDERS.items():
        found = set()
        for folder in folders:
            for path in sorted((home / "models" / folder).glob("*.py")):
                if path.name.startswith("modeling_"):
                    found |= reads_of(parse(path), False)
                elif path.name.startswith("configuration_"):
                    found |= reads_of(parse(path), True)
        out[family] = found - shared
    # Methods of the base class that files call through the config.
    base = {node.name for node in ast.walk(parse(home / "configuration_utils.py"))
            if isinstance(node, ast.FunctionDef)}
    return {family: sorted(keys - base) for family, keys in out.items()}


def reads_text():
    out = ["/* Keys of config.json that transformers 5.23 reads, family by family; \"shared\": code of all of them.",
           " * Made by tests/tools/config_keys.py reads. */"]
    for family, keys in all_reads().items():
        lines = textwrap.wrap(" ".join(keys), 104)
        out.append(f'CALM_CONFIG_READS("{family}",')
        out += [f'    "{line}{" " if i + 1 < len(lines) else ""}"' for i, line in enumerate(lines)]
        out[-1] += ")"
    return "\n".join(out) + "\n"


def table():
    """Returns calm's table in its order: (kind, key)."""
    text = (ROOT / "ptq/arch/config_keys.def").read_text(encoding="utf-8")
    return re.findall(r'^CALM_CONFIG_(\w+)\("(.+?)",', text, re.M)


def check():
    faults, keys = [], [key for _, key in table()]
    faults += [f"{key} stands twice in the table" for key in set(keys) if keys.count(key) > 1]
    shared = all_reads()["shared"]
    faults += [f"{key}: code of all families reads it" for kind, key in table() if kind == "UNREAD" and key in shared]
    if (ROOT / "ptq/arch/config_reads.def").read_text(encoding="utf-8") != reads_text():
        faults.append("ptq/arch/config_reads.def is not what transformers reads")
    print("\n".join(faults) or f"{len(keys)} keys agree with transformers")
    return 1 if faults else 0


def harvest():
    import dataclasses
    import transformers
    known = {key for _, key in table()}
    read = {key for keys in all_reads().values() for key in keys}
    sources = {"trainer": {field.name for field in dataclasses.fields(transformers.TrainingArguments)},
               "generation": {key for key in vars(transformers.GenerationConfig()) if not key.startswith("_")},
               "base": {key for key in transformers.PretrainedConfig().to_dict()}}
    try:
        import peft
        sources["peft"] = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    except ImportError:
        pass
    for source, keys in sources.items():
        for key in sorted(keys):
            if key not in known:
                print(source, key, "READ" if key in read else "")
    return 0


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what == "reads":
        print(reads_text(), end="")
    elif what in ("check", "harvest"):
        sys.exit({"check": check, "harvest": harvest}[what]())
    else:
        sys.exit(__doc__)
