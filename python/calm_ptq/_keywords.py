"""Names of quantize's keywords in calm's messages; `ninja docs` makes the table from that of ptq/recipe/spec.c."""
from __future__ import annotations

import re

# <!-- keywords -->
KEYWORDS = {
    "accept_keys": "accept_key",
    "accept-key": "accept_key",
    "rotate-seed": "rotate_seed",
    "schemes": "scheme",
    "scale-dtype": "scale_dtype",
    "calibration.text": "calib",
    "calibration.tokens": "tokens",
    "calibration.imatrix": "imatrix",
    "calibration.samples": "samples",
    "calibration.seqlen": "seqlen",
    "calibration.seed": "seed",
    "calibration.special": "no_special",
    "no-special": "no_special",
    "calibration.stream": "stream",
    "calibration.score_samples": "score_samples",
    "score-samples": "score_samples",
    "calibration.guard_samples": "guard_samples",
    "guard-samples": "guard_samples",
    "evaluation.text": "eval_text",
    "eval-text": "eval_text",
    "evaluation.samples": "eval_samples",
    "eval-samples": "eval_samples",
    "keep-float": "keep_float",
    "group-fallback": "group_fallback",
    "choice.expert_tokens": "expert_tokens",
    "expert-tokens": "expert_tokens",
    "act-rule": "act_rule",
    "exact-float": "exact_float",
    "choice.probe_samples": "probe_samples",
    "probe-samples": "probe_samples",
    "calibration.prefix": "prefix",
    "calibration.weight": "weight",
    "calibration.dtype": "calib_dtype",
    "calib-dtype": "calib_dtype",
    "learn-steps": "learn_steps",
    "learn-loss": "learn_loss",
    "choice.budget": "budget",
    "choice.size": "size",
    "choice.bits_per_weight": "bits_per_weight",
    "bits-per-weight": "bits_per_weight",
    "choice.act_budget": "act_budget",
    "act-budget": "act_budget",
    "choice.sensitivity": "sensitivity",
    "choice.unit": "unit",
    "choice.effort": "effort",
    "choice.rule": "rule",
    "choice.shortlist": "shortlist",
    "choice.metric": "metric",
    "choice.keep_hybrid": "keep_hybrid",
    "keep-hybrid": "keep_hybrid",
    "choice.split_v": "split_v",
    "split-v": "split_v",
    "keep-candidates": "keep_candidates",
    "choice.pins": "pin",
    "choice.forbid": "forbid",
    "gates": "gate",
    "formats": "format",
    "export.max_shard_size": "max_shard_size",
    "max-shard-size": "max_shard_size",
    "kv-cache": "kv_cache",
    "gguf-type": "gguf_type",
    "export.gguf_pre": "gguf_pre",
    "gguf-pre": "gguf_pre",
    "export.gguf_float": "gguf_float",
    "gguf-float": "gguf_float",
    "export.embed_scheme": "embed_scheme",
    "embed-scheme": "embed_scheme",
    "export.head_scheme": "head_scheme",
    "head-scheme": "head_scheme",
    "evaluation": "no_eval",
    "no-eval": "no_eval",
}
# <!-- /keywords -->


def spoken(message: str) -> str:
    """Returns a message with keywords instead of recipe keys and flags: `calibration.samples` and "eval-samples" become
    `samples` and "eval_samples"."""
    message = re.sub(r"^recipe: option ([a-z-]+):", r"`\1`:", message)
    message = re.sub(r"^recipe: there is no key ", "quantize has no keyword ", message)
    return re.sub(r"""([`"])([a-z0-9._-]+)\1""", lambda found: found[1] + KEYWORDS.get(found[2], found[2]) + found[1],
                  message)
