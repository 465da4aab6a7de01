#!/usr/bin/env python3
"""Compares transformers and calm on random checkpoints of every family with one key of config.json changed.

    sweep_configs.py PROGRAMS WORK [--only NAME...] [--part PART...] [--case REGEX] [--log FILE]

PROGRAMS: the build folder.  WORK: a folder for one checkpoint.  Families are the fixtures of $CALM_FIXTURES (default
../shared/fixtures), from whose config.json each change starts.  Parts:

  keys      each key of the text model's class at one to four other values; in a new model with random weights
  sets      sizes and switches that only make sense together (SETS)
  rope      kinds of rotary embedding with their settings
  absent    each key removed from config.json, so that the class's default applies
  null      each key at null
  spelling  older names of keys, rope_theta and rope_scaling in place of rope_parameters
  off       keys of other families at false, which this family's code does not read
  store     bfloat16 and float16, shards, sequences of 1, 3 and 60 tokens

A case is equal (logits or rows within 2e-4 of the largest value, the bound of tests/golden), refused (calm says why),
left out (transformers does not run it), or a fault: DIFFERENT, or a crash.  Prints faults and refusals, one line each,
then the counts; exit status 1 when there is a fault.  Needs transformers 5.
"""

import argparse
import collections
import copy
import json
import logging
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
import torch
import transformers
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 2e-4
# Draws of weights: in the first ones routing may depend on rounding.
DRAWS = 5
# Keys that describe a file, not the computation.
NAMES = {"architectures", "model_type", "transformers_version", "dtype", "id2label", "label2id", "return_dict"}
# Lists with an entry for each block, which follow the number of blocks.
PER_BLOCK = ("layer_types", "no_rope_layers", "mlp_layer_types", "layers_block_type", "activation_sparsity_pattern")
ABSENT = object()
SETS = [
    dict(num_attention_heads=1, num_key_value_heads=1),
    dict(num_attention_heads=3, num_key_value_heads=1, head_dim=20),
    dict(num_attention_heads=5, num_key_value_heads=1, hidden_size=80),
    dict(num_attention_heads=4, num_key_value_heads=4),
    dict(hidden_size=52, intermediate_size=61, num_attention_heads=2, num_key_value_heads=1),
    dict(num_attention_heads=6, num_key_value_heads=2, head_dim=10), dict(num_hidden_layers=1),
    dict(num_hidden_layers=3), dict(num_hidden_layers=8, layer_types=ABSENT),
    dict(num_hidden_layers=5, no_rope_layers=ABSENT, layer_types=ABSENT), dict(tie_word_embeddings=True),
    dict(tie_word_embeddings=False),
    dict(use_sliding_window=True, sliding_window=7, max_window_layers=1, layer_types=ABSENT, num_hidden_layers=3),
    dict(sliding_window=3), dict(sliding_window=None, layer_types=ABSENT),
    dict(sliding_window=9, layer_types=ABSENT), dict(n_group=2, topk_group=1), dict(n_group=4, topk_group=3),
    dict(n_group=3, topk_group=2, n_routed_experts=12),
    dict(n_group=4, topk_group=2, topk_method="group_limited_greedy"),
    dict(n_routed_experts=12, num_experts_per_tok=5), dict(num_experts=12, num_experts_per_tok=5),
    dict(num_local_experts=7, num_experts_per_tok=3), dict(num_experts=1, num_experts_per_tok=1),
    dict(n_shared_experts=3), dict(first_k_dense_replace=0), dict(first_k_dense_replace=2),
    dict(norm_topk_prob=True, routed_scaling_factor=0.7), dict(norm_topk_prob=False),
    dict(q_lora_rank=None, attention_bias=True), dict(q_lora_rank=9, attention_bias=True),
    dict(rope_interleave=False), dict(qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=22),
    dict(attention_bias=True, mlp_bias=True), dict(decoder_sparse_step=2, num_hidden_layers=4),
    dict(mlp_only_layers=[0, 2], num_hidden_layers=4), dict(linear_num_key_heads=1, linear_num_value_heads=3),
    dict(linear_conv_kernel_dim=2),
    dict(linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=7),
    dict(num_hidden_layers=6, num_kv_shared_layers=3), dict(num_kv_shared_layers=0), dict(use_double_wide_mlp=True),
    dict(attention_k_eq_v=True, num_global_key_value_heads=1), dict(hidden_size_per_layer_input=5),
    dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=20, num_kv_shared_layers=0),
    dict(enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=20, num_hidden_layers=4,
         num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2, per_layer_config=ABSENT),
    dict(altup_num_inputs=4, altup_active_idx=2), dict(laurel_rank=3), dict(altup_correct_scale=False),
    dict(mamba_n_heads=4, mamba_d_head=32), dict(mamba_n_groups=4, mamba_d_state=5), dict(mamba_proj_bias=True),
    dict(mamba_d_conv=3, mamba_conv_bias=False),
    dict(mamba_num_heads=4, mamba_head_dim=10, n_groups=4, ssm_state_size=5),
    dict(num_local_experts=0, num_experts_per_tok=0), dict(moe_latent_size=12),
    dict(conv_L_cache=2, conv_bias=True),
    dict(block_auto_adjust_ff_dim=True, block_multiple_of=16, block_ffn_dim_multiplier=1.3),
    dict(use_expert_bias=False), dict(interleave_moe_layer_step=1), dict(attention_chunk_size=7),
    dict(use_qk_norm=False), dict(num_dense_layers=2),
    dict(moe_layer_start_index=1, moe_layer_end_index=1, num_hidden_layers=4), dict(moe_num_shared_experts=0),
    dict(moe_layer_interval=2, num_hidden_layers=4, moe_layer_start_index=0), dict(moe_norm_min=0.9),
    dict(attn_logit_softcapping=None, final_logit_softcapping=None), dict(final_logit_softcapping=4.0),
    dict(local_attention=9), dict(norm_bias=True, attention_bias=True, mlp_bias=True), dict(type_vocab_size=3),
    dict(is_decoder=True), dict(clip_qkv=0.5), dict(swiglu_limit=1.0), dict(router_jitter_noise=0.3),
]  # fmt: skip


def text_of(config):
    return config.get("text_config", config)


def number(value):
    """Reads a number; JSON has no infinity, so transformers writes {"__float__": "Infinity"}."""
    return float(value["__float__"].replace("Infinity", "inf")) if set(value) == {"__float__"} else value


def shorter(config):
    """Returns the fixture's config as arguments of its class, without keys about files."""
    drop = {"architectures", "transformers_version", "dtype", "torch_dtype"}
    return {key: value for key, value in config.items() if key not in drop}


def other_values(key, value):
    """Returns up to four legal other values of a key."""
    if key in ("hidden_act", "hidden_activation", "activation", "mlp_hidden_act"):
        return [act for act in ("quick_gelu", "silu", "gelu", "gelu_pytorch_tanh", "relu2") if act != value][:4]
    if key in PER_BLOCK and isinstance(value, list):
        return [[kind] * len(value) for kind in sorted(set(value), key=str)] + [value[::-1]]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        wide = "size" in key or "dim" in key or "rank" in key
        return [33, value + 2] if wide else [1, value + 1, 3] if "position" not in key else [64]
    if isinstance(value, float):
        return [0.1] if "eps" in key else [value * 1.7 + 0.1, 2]
    if value is None:
        return [8, True] if "window" in key or "cap" in key or "dim" in key else [True]
    return []


def ropes(theta, rotary):
    """Returns kinds of rotary embedding with their settings, by name."""
    def steps(last):
        return [1 + (last - 1) * i / max(1, rotary // 2 - 1) for i in range(rotary // 2)]

    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
    long = {"rope_type": "longrope", "short_factor": steps(2), "long_factor": steps(9)}
    kinds = {
        "plain": {"rope_type": "default"}, "linear": {"rope_type": "linear", "factor": 3.0},
        "dynamic": {"rope_type": "dynamic", "factor": 2.5}, "yarn": yarn, "yarn rough": {**yarn, "truncate": False},
        "yarn scaled": {**yarn, "attention_factor": 1.3}, "yarn bounds": {**yarn, "beta_fast": 8.0, "beta_slow": 2.0},
        "yarn mscale": {**yarn, "mscale": 0.7, "mscale_all_dim": 0.9}, "yarn all": {**yarn, "mscale_all_dim": 0.9},
        "llama3": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                   "original_max_position_embeddings": 32},
        "longrope": {**long, "factor": 4.0, "original_max_position_embeddings": 16},
        "longrope short": {**long, "original_max_position_embeddings": 64},
        "half": {"rope_type": "default", "partial_rotary_factor": 0.5},
    }  # fmt: skip
    return {name: {"rope_theta": theta, **kind} for name, kind in kinds.items()}


def fill(model, seed):
    """Fills in random weights, none of which is the identity, also in norms, biases and sinks."""
    draw = torch.Generator().manual_seed(seed)
    state = model.state_dict()
    tensors = dict(model.named_parameters())
    tensors.update({name: t for name, t in model.named_buffers() if name in state and t.is_floating_point()})
    with torch.no_grad():
        for name, tensor in tensors.items():
            noise = torch.randn(tensor.shape, generator=draw)
            if "A_log" in name:
                values = torch.log(0.5 + 3.5 * torch.rand(tensor.shape, generator=draw))
            elif tensor.ndim < 2 and "bias" not in name and (re.search(r"(?i)norm|\.D$|scale$|scalar$", name)):
                values = (0.0 if float(tensor.abs().max()) == 0 else 1.0) + 0.3 * noise
            elif tensor.ndim < 2:
                values = (1.0 if "sinks" in name else 0.2) * noise
            elif "embed" in name and "proj" not in name:
                values = 0.2 * noise
            else:
                values = noise / math.sqrt(math.prod(tensor.shape[1:]))
            tensor.copy_(values)
    model.tie_weights()


class Family:
    def __init__(self, opts, folder):
        self.opts, self.name = opts, folder.name
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"), object_hook=number)
        self.cls = getattr(transformers, self.config["architectures"][0])
        self.model = pathlib.Path(opts.work, "model")
        self.config_class = self.cls.config_class
        self.known = set(self.keys())
        self.base = None

    def keys(self):
        """Returns the keys of the text model's class with the fixture's values."""
        config = self.config_class(**shorter(copy.deepcopy(self.config))).get_text_config()
        return {key: value for key, value in config.to_dict().items()
                if key not in NAMES and not key.startswith(("_", "output_")) and "_config" not in key}  # fmt: skip

    def arguments(self, change):
        out = shorter(copy.deepcopy(self.config))
        text = text_of(out)
        blocks = text.get("num_hidden_layers")
        for key, value in change.items():
            if value is ABSENT:
                text.pop(key, None)
            else:
                text[key] = value
        for key in PER_BLOCK:
            if isinstance(text.get(key), list) and key not in change and text.get("num_hidden_layers") != blocks:
                text[key] = (text[key] * text["num_hidden_layers"])[: text["num_hidden_layers"]]
        return out

    def ids(self, vocab, length=40):
        return numpy.random.default_rng(7).integers(4, vocab - 6, (2, length))

    def run(self, model, ids):
        inputs = {"input_ids": torch.from_numpy(ids)}
        if not model.config.get_text_config().to_dict().get("is_decoder") and "Model" not in self.name:
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        with torch.no_grad():
            out = model(**inputs)
        return (out.logits if getattr(out, "logits", None) is not None else out.last_hidden_state).float()

    def save(self, config, seed, dtype, shards):
        shutil.rmtree(self.model, ignore_errors=True)
        config._attn_implementation = "eager"
        model = self.cls(config).float().eval()
        fill(model, seed)
        if hasattr(model, "set_experts_implementation"):
            model.set_experts_implementation("eager")
        stored = copy.deepcopy(model).to(getattr(torch, dtype)) if dtype != "float32" else model
        if dtype != "float32":
            model.load_state_dict(stored.state_dict())
        stored.config.dtype = dtype
        stored.save_pretrained(self.model, **({"max_shard_size": shards} if shards else {}))
        return model

    def calm(self, ids):
        """Runs calm; returns exit status, message and tensors."""
        tokens, out = (pathlib.Path(self.opts.work, name) for name in ("tokens.jsonl", "calm.safetensors"))
        out.unlink(missing_ok=True)
        tokens.write_text("".join(json.dumps({"ids": row.tolist()}) + "\n" for row in ids), encoding="utf-8")
        words = [f"{self.opts.programs}/calm", "forward", "--model", self.model, "--tokens", tokens, "--output", out,
                 "--threads=1", "--quiet"]  # fmt: skip
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return -1, "no end within 300 s", None
        text = re.sub(r"^calm( forward)?: \S*config\.json: ", "", done.stderr.strip())
        return done.returncode, text, load_file(out) if done.returncode == 0 else None

    def judge(self, part, case, code, text, found, expected):
        """Judges a case; returns True unless another draw of weights may be equal."""
        if code < 0 or code > 100:
            return self.opts.say(self, part, case, "CRASH", text)
        if code:
            return self.opts.say(self, part, case, "refused", text)
        name = "logits" if "logits" in found else "last_hidden_state"
        if found[name].shape != tuple(expected.shape):
            shapes = f"{found[name].shape}, expected {tuple(expected.shape)}"
            return self.opts.say(self, part, case, "DIFFERENT", shapes)
        largest = max(1.0, float(expected.abs().max()))
        far = float(numpy.abs(found[name] - expected.numpy()).max()) / largest
        if not far <= TOLERANCE:
            return f"by {far:.3g} of the largest value"
        return self.opts.say(self, part, case, "equal", f"{far:.2g}")

    def built(self, part, case, change, dtype="float32", shards=None, length=40):
        """Makes a new model with a changed config."""
        if not re.search(self.opts.case, case):
            return None
        for seed in range(DRAWS):
            try:
                config = self.config_class(**self.arguments(change))
                model = self.save(config, seed, dtype, shards)
                ids = self.ids(config.get_text_config().vocab_size, length)
                expected = self.run(model, ids)
                if not torch.isfinite(expected).all():
                    raise ValueError("not finite")
            except Exception as error:
                return self.opts.say(self, part, case, "left out", f"{type(error).__name__}: {error}")
            said = self.judge(part, case, *self.calm(ids), expected)
            if said is None:
                return None
        return self.opts.say(self, part, case, "DIFFERENT", said)

    def edited(self, part, case, edit, trusted=False):
        """Makes the unchanged model with an edited config.json, which transformers reads again."""
        if self.base is None or not re.search(self.opts.case, case):
            return None
        path, ids, expected, plain = self.base
        config = json.loads(plain)
        if edit(config, text_of(config)) is False:
            return None
        path.write_text(json.dumps(config), encoding="utf-8")
        try:
            if not trusted:
                model, info = self.cls.from_pretrained(self.model, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True)  # fmt: skip
                odd = {key: value for key, value in info.items() if value and key.endswith("_keys")}
                if odd:
                    raise ValueError(str(odd))
                expected = self.run(model.eval(), ids)
        except Exception as error:
            path.write_text(plain, encoding="utf-8")
            return self.opts.say(self, part, case, "left out", f"{type(error).__name__}: {error}")
        said = self.judge(part, case, *self.calm(ids), expected)
        path.write_text(plain, encoding="utf-8")
        return said and self.opts.say(self, part, case, "DIFFERENT", said)

    def prepare(self):
        """Makes the unchanged model with a draw of weights for which calm agrees."""
        for seed in range(DRAWS):
            config = self.config_class(**self.arguments({}))
            model = self.save(config, seed, "float32", None)
            ids = self.ids(config.get_text_config().vocab_size)
            expected = self.run(model, ids)
            code, _, found = self.calm(ids)
            if code == 0 and self.judge("", "", code, "", found, expected) is None:
                path = self.model / "config.json"
                self.base = path, ids, expected, path.read_text(encoding="utf-8")
                return
        self.opts.say(self, "edited", "unchanged", "DIFFERENT", "no draw is equal")

    # ---- parts ----

    def keys_part(self):
        for key, value in self.keys().items():
            for other in [] if key == "rope_parameters" else other_values(key, value):
                self.built("keys", f"{key} = {other}", {key: other})

    def sets_part(self):
        for change in SETS:
            if all(key in self.known or value is ABSENT for key, value in change.items()):
                text = ", ".join(f"{key} {'absent' if value is ABSENT else value}" for key, value in change.items())
                self.built("sets", text, change)

    def rope_part(self):
        text = self.config_class(**self.arguments({})).get_text_config().to_dict()
        given = text.get("rope_parameters")
        if not given:
            return
        width = text.get("qk_rope_head_dim") or text.get("head_dim")
        width = width or text["hidden_size"] // text["num_attention_heads"]
        nested = {kind: value for kind, value in given.items() if isinstance(value, dict)}
        for kind, own in (nested or {"": given}).items():
            share = own.get("partial_rotary_factor") or 1
            for name, rope in ropes(own.get("rope_theta", 1e4), int(width * share)).items():
                rope = {**({"partial_rotary_factor": share} if share != 1 else {}), **rope}
                change = {"rope_parameters": {**copy.deepcopy(given), kind: rope} if kind else rope}
                change["max_position_embeddings"] = 32 if name == "dynamic" else 256
                self.built("rope", f"{kind} {name}".strip(), change)

    def absent_part(self):
        for key in sorted(text_of(json.loads(self.base[3])) if self.base else ()):
            self.edited("absent", key, lambda config, text, key=key: text.pop(key) and None)

    def null_part(self):
        for key in sorted(text_of(json.loads(self.base[3])) if self.base else ()):
            self.edited("null", key, lambda config, text, key=key: text.update({key: None}))

    def spelling_part(self):
        def renamed(old, new):
            return lambda config, text: text.update({new: text.pop(old)}) if old in text else False

        def classic(scaling):
            def edit(config, text):
                if not text.pop("rope_parameters", None):
                    return False
                text.update(rope_theta=5000.0, rope_scaling=scaling)
            return edit

        names = getattr(self.config_class(**self.arguments({})).get_text_config(), "attribute_map", {})
        for new, old in {**names, "torch_dtype": "dtype"}.items():
            self.edited("spelling", f"{new} for {old}", renamed(old, new))
        yarn = {"factor": 4.0, "original_max_position_embeddings": 16}
        for word in ("type", "rope_type"):
            for scaling in (None, {word: "linear", "factor": 2.0}, {word: "yarn", **yarn}):
                self.edited("spelling", f"rope_scaling {scaling}", classic(scaling))

    def off_part(self):
        source = (ROOT / "ptq/arch/config_keys.def").read_text(encoding="utf-8")
        known = set(re.findall(r'^CALM_CONFIG_\w+\("(\w+)"', source, re.M))
        found = set()
        for path in (ROOT / "ptq/model").glob("*.c"):
            found |= set(re.findall(r'root, "([a-z_0-9]+)"', path.read_text(encoding="utf-8")))
        reads = (ROOT / "ptq/arch/config_reads.def").read_text(encoding="utf-8")
        for key in sorted(found - known - self.known):
            if not re.search(rf"[ \"]{key}[ \"]", reads.split('READS("shared"')[1].split(")")[0]):
                self.edited("off", key, lambda config, text, key=key: text.update({key: False}), trusted=True)

    def store_part(self):
        for dtype in ("bfloat16", "float16"):
            self.built("store", dtype, {}, dtype=dtype)
        self.built("store", "shards", {}, shards="60KB")
        for length in (1, 3, 60):
            self.built("store", f"{length} tokens", {}, length=length)


PARTS = [name.removesuffix("_part") for name in vars(Family) if name.endswith("_part")]


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("programs")
    words.add_argument("work")
    words.add_argument("--only", nargs="+", default=[])
    words.add_argument("--part", nargs="+", default=PARTS, choices=PARTS)
    words.add_argument("--case", default="", help="cases whose text has it alone")
    words.add_argument("--log", help="also every case, as JSON lines")
    opts = words.parse_args()
    logging.disable(logging.WARNING)
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    counts = collections.Counter()
    log = open(opts.log or os.devnull, "w", encoding="utf-8")

    def say(family, part, case, what, text):
        text = " ".join(text.split())
        if part:
            counts[what] += 1
            print(json.dumps([family.name, part, case, what, text]), file=log, flush=True)
        # A key that is off in one family often has another type in the next.
        if part and what not in ("equal", "left out") and (part, what) != ("off", "refused"):
            print(f"{family.name}: {part}: {case}: {what}: {text[:200]}", flush=True)

    opts.say = say
    fixtures = pathlib.Path(os.environ.get("CALM_FIXTURES", ROOT.parent / "shared/fixtures"))
    for folder in sorted(path.parent for path in fixtures.glob("*/*/config.json")):
        if opts.only and folder.name not in opts.only:
            continue
        family = Family(opts, folder)
        if set(opts.part) & {"absent", "null", "spelling", "off"}:
            family.prepare()
            for part in ("absent", "null", "spelling", "off"):
                if part in opts.part:
                    getattr(family, part + "_part")()
        for part in ("keys", "sets", "rope", "store"):
            if part in opts.part:
                getattr(family, part + "_part")()
    shutil.rmtree(pathlib.Path(opts.work, "model"), ignore_errors=True)
    print(", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return 1 if counts["DIFFERENT"] or counts["CRASH"] else 0


if __name__ == "__main__":
    sys.exit(main())
