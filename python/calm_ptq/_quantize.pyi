# The keywords of quantize, as editors complete them and mypy checks them: made from the option table of
# ptq/recipe/spec.c by `ninja docs`.
from os import PathLike
from typing import Literal, Mapping, Optional, Sequence, Union

from calm_ptq._outcome import Outcome
from calm_ptq._progress import Shown

_Path = Union[str, PathLike[str]]
_Words = Union[str, Sequence[str]]
_Paths = Union[_Path, Sequence[_Path]]
_Numbers = Union[float, Sequence[float]]

# <!-- python -->
def quantize(
    model: Optional[_Path] = ...,
    output: Optional[_Path] = ...,
    *,
    recipe: Optional[_Path] = ...,
    lock: Optional[_Path] = ...,
    threads: int = ...,
    progress: Shown = ...,
    adapter: Optional[_Path] = ...,
    accept_key: Optional[_Paths] = ...,
    rotate: Optional[Literal["none", "r1", "r1r2", "r1r2r4", "inputs"]] = ...,
    rotate_seed: Optional[int] = ...,
    bits: Optional[int] = ...,
    scheme: Optional[_Words] = ...,
    preset: Optional[Literal["fast", "balanced", "best"]] = ...,
    scale_dtype: Optional[Literal["bf16", "f16"]] = ...,
    algorithms: Optional[_Words] = ...,
    calib: Optional[_Paths] = ...,
    tokens: Optional[_Path] = ...,
    imatrix: Optional[_Path] = ...,
    samples: Optional[int] = ...,
    seqlen: Optional[int] = ...,
    seed: Optional[int] = ...,
    no_special: Optional[bool] = ...,
    stream: Optional[bool] = ...,
    score_samples: Optional[int] = ...,
    guard_samples: Optional[int] = ...,
    eval_text: Optional[_Path] = ...,
    eval_samples: Optional[int] = ...,
    store: Optional[_Path] = ...,
    blocks: Optional[Union[int, str]] = ...,
    keep_float: Optional[_Paths] = ...,
    group_fallback: Optional[_Path] = ...,
    ignore: Optional[_Paths] = ...,
    expert_tokens: Optional[int] = ...,
    memory: Optional[_Path] = ...,
    act_rule: Optional[Literal["compressed-tensors", "vllm"]] = ...,
    exact_float: Optional[bool] = ...,
    probe_samples: Optional[int] = ...,
    prefix: Optional[Literal["float", "quantized", "asymmetric"]] = ...,
    weight: Optional[Literal["none", "gradient", "first", "auto"]] = ...,
    calib_dtype: Optional[Literal["f32", "bf16", "bf16x2", "auto"]] = ...,
    learn: Optional[Literal["none", "blocks", "kl", "both"]] = ...,
    learn_steps: Optional[int] = ...,
    learn_loss: Optional[Literal["output", "mini"]] = ...,
    budget: Optional[_Numbers] = ...,
    size: Optional[_Path] = ...,
    bits_per_weight: Optional[float] = ...,
    act_budget: Optional[float] = ...,
    sensitivity: Optional[Literal["auto", "probe", "gradient"]] = ...,
    unit: Optional[Literal["job", "sublayer", "block"]] = ...,
    effort: Optional[Literal["full", "light", "high"]] = ...,
    rule: Optional[Literal["token", "argmax"]] = ...,
    shortlist: Optional[float] = ...,
    metric: Optional[_Path] = ...,
    keep_hybrid: Optional[bool] = ...,
    split_v: Optional[bool] = ...,
    keep_candidates: Optional[bool] = ...,
    pin: Optional[Mapping[str, str]] = ...,
    forbid: Optional[_Words] = ...,
    gate: Optional[_Words] = ...,
    format: Optional[_Words] = ...,
    max_shard_size: Optional[_Path] = ...,
    kv_cache: Optional[Literal["none", "fp8"]] = ...,
    gguf_type: Optional[_Path] = ...,
    gguf_pre: Optional[_Path] = ...,
    gguf_float: Optional[Literal["stored", "f16", "bf16", "f32"]] = ...,
    embed_scheme: Optional[_Path] = ...,
    head_scheme: Optional[_Path] = ...,
    target: Optional[_Path] = ...,
    kernels: Optional[_Path] = ...,
    no_eval: Optional[bool] = ...,
    force: Optional[bool] = ...,
) -> Outcome:
    """Quantize a checkpoint.

    model, output
        directory or known name; directory to write
    recipe
        a recipe file, or the name of a shipped recipe; other arguments replace its values
    lock
        file for the digests of inputs and outputs
    progress
        True: a bar; or a function of stage, done and total
    adapter
        LoRA adapter to merge into the model
    accept_key
        accept a key of config.json that calm does not know; may be repeated
    rotate
        rotate the float model first. r1: the residual stream; r1r2: also each head between v and o; r1r2r4: also the input of down while the model runs; inputs: only the inputs of linears, while the model runs, in almost any decoder (both only compressed-tensors) (default none)
    rotate_seed
        seed of the rotations' signs (default 0)
    bits
        4: w4a16_g128, 3: w3a16_g128, 2: w2a16_g64, 8: w8a16 (default 4)
    scheme
        number format instead of --bits: w4a16_g64, w8a8, w4a4_g128, ...
    preset
        fast: half the time; best: 3 to 5 times the time, learns and rotates (default balanced)
    scale_dtype
        dtype to which scales are rounded before codes are computed; bf16 is exact in every format (default bf16)
    algorithms
        names or chains that compete; one alone is a uniform run
    calib
        calibration text, or JSON documents: lines or an array of {\"text\": ...} (default: bundled WikiText-2); may be repeated: the texts share the windows
    tokens
        JSON lines {\"ids\": [...]} instead of a calibration text; calm need not be able to read the tokenizer
    imatrix
        importance matrix of llama-imatrix, .gguf or .dat: its mean squares replace those of the calibration inputs; correlations stay
    samples
        calibration windows (default 128)
    seqlen
        tokens per window (default 512)
    seed
        draw the windows at random with this seed (default: the first windows)
    no_special
        calibrate without the special tokens (BOS) that the tokenizer puts before a text
    stream
        encoders: calibrate on windows of running text, without special tokens, instead of sentences
    score_samples
        held-out calibration windows on which candidates are scored (default: the beginnings of 8 windows, 4096 tokens in all or what takes a tenth of the run; a single algorithm at a single scheme is not scored); 0: no scores and no activation statistics
    guard_samples
        windows outside calibration on which the guard compares the hybrid with uniform runs; up to four times as many if the difference is within its standard error (default: 16; if windows are longer than 512 tokens, those of 8192 tokens, at least 4; 0 if --preset fast leaves one algorithm)
    eval_text
        text to evaluate on (default: bundled WikiText-2 test)
    eval_samples
        test windows, the first ones; 0: all (default: spread over the text, as many as take 15 % of the run, in short runs up to 64 in a third)
    store
        SQLite file of candidates, scores and choices (default calm-out/calm.db)
    blocks
        quantize only blocks FIRST-LAST (or one block N); the others stay float
    keep_float
        linears that stay float: a name in the checkpoint or re:PATTERN; linears that engines fuse with them also stay float; !NAME: quantize one that calm keeps float; may be repeated
    group_fallback
        for linears whose input columns the group size does not divide: float: they stay float; row: one scale per row; a number: that group size (default: calm refuses the model)
    ignore
        llm-compressor's name for --keep-float
    expert_tokens
        experts with fewer calibration tokens are rounded to nearest, without data; 0: four times the group size (default 0)
    memory
        limit of resident memory: 6GB, 1500MiB (default: 70 % of what is free)
    act_rule
        scales of quantized activations as in transformers (compressed-tensors) or as in vLLM's kernels (default compressed-tensors)
    exact_float
        simulate quantized inputs in float in guard, probes and evaluation, instead of exact integer sums
    probe_samples
        held-out calibration windows on which single units are probed (default 16)
    prefix
        inputs of a block in calibration. float: from the float blocks before it; quantized: from the quantized blocks before it (choices then depend on each other); asymmetric: from the quantized blocks, with the float outputs as targets, for the transform asym (default float)
    weight
        weights of calibration rows in fits. none: all equal; gradient: from gradients of the float model at the output of each job (decoders); first: the first token of a window, to which all others attend, counts up to 32 times; auto: first in a decoder with float activations whose windows all begin with one token, such as <bos> (default auto)
    calib_dtype
        operands of matrix products. f32: as they are; bf16x2: sums of two bfloat16 with 16 bits, 8 while learning (half the time with AMX, else f32); bf16: rounded, in calibration alone (half the time with AVX512-BF16, a third with AMX); auto: bf16x2 with AMX where no kernels are named, else f32, and the lock says which (default auto)
    learn
        learn from the result by gradients. blocks: rounding, scales and norms of each block; kl: scales and norms of the whole model (default none)
    learn_steps
        gradient steps per block, each on 512 tokens or one longer window (default 200)
    learn_loss
        loss of --learn kl for encoders. output: 1 - cosine of the embeddings; mini: also the relations between tokens in the last attention, queries to keys and values to values (default output)
    budget
        mean bits per weight, for which the schemes of --scheme compete; several budgets (2.5,3,3.5) give a table
    size
        largest size of the written file, embedding and head included: 3.0MB, 350MB; the schemes of --scheme compete for it
    bits_per_weight
        as --size, in bits per weight over all tensors of the file, float ones included
    act_budget
        mean bits of activations, for which the schemes of --scheme with a4, a8 and a16 (float) compete
    sensitivity
        how a budget predicts the loss of each unit. probe: quantize only that unit and measure; gradient: from gradients of the float model, faster with many units (decoders); auto: gradient where it agrees with probes (default auto)
    unit
        what gets one algorithm: a job (linears with the same input), a sublayer or a block (default job)
    effort
        light: skip smoothing of quantized inputs without outliers; high: the same as --learn both (default full)
    rule
        argmax: the candidate with the least score (CALM as published: --metric cka); token: among candidates within --shortlist of the least score, the one with the least log_rel_mse (default argmax)
    shortlist
        --rule token: candidates up to this factor of the least score compete (default 1.05); 1000000: all
    metric
        score that the rule reads (default rel_mae; cka_token with --rule token)
    keep_hybrid
        keep the hybrid even if a uniform run is as good or better, and the rotated model even if the given model is
    split_v
        treat v as a separate job, so that a budget or size may give it another type than q and k (gguf and mlx, whose readers do not fuse the three)
    keep_candidates
        keep the codes of all candidates in the store (default: only of the chosen ones; calm computes others again when needed)
    pin
        give units of this name or pattern this candidate; if several candidates match, the rule chooses
    forbid
        never choose this candidate: a name, a pattern (mkq*) or #NUMBER
    gate
        condition on the result, such as 'ppl_ratio <= 1.05'; exit status 3 if it does not hold; may be repeated
    format
        compressed-tensors (the default), gptq, awq, mlx, gguf, imatrix, tensor-types; several: one folder each
    max_shard_size
        largest total size of the tensors in a file (default: 5GB of safetensors, one GGUF file)
    kv_cache
        fp8: the engine keeps keys and values in 8 bits, with scales of each block from the calibration (compressed-tensors: vLLM, SGLang) (default none)
    gguf_type
        the types that llama-quantize gives matrices under this name: Q4_K_M, Q3_K_S, IQ4_XS, ...
    gguf_pre
        llama.cpp's name of the pre-tokenizer, if calm cannot tell it from the split pattern
    gguf_float
        dtype of float tensors in a GGUF file (default stored)
    embed_scheme
        number format of the embedding, or float (default: GGUF and MLX: as their own tools, else float)
    head_scheme
        number format of the head, or float; a tied table has one format for both
    target
        engine that must run the result; calm uses its format, and only schemes and shapes of its kernels
    kernels
        OpenBLAS kernels: a core type (Haswell, SkylakeX, ...)
    no_eval
        skip the evaluation
    force
        replace the output
    """
# <!-- /python -->
