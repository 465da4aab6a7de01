"""Reads write_gguf's files with other readers.

    gguf_reader.py parse FOLDER...            gguf parses them; its dequantized tensors equal calm's, bit for bit
    gguf_reader.py blocks FOLDER              every type's sample blocks have calm's values, bit for bit
    gguf_reader.py load FOLDER...             llama.cpp loads them (where it is installed; else a line says so)
    gguf_reader.py logits LIMIT MODEL FOLDER [MODEL FOLDER]...
                                              llama.cpp's logits and those of transformers with the file's dequantized weights
                                              differ by less than LIMIT of their standard deviation
    gguf_reader.py wide LIMIT MODEL FOLDER [MODEL FOLDER]...
                                              the same for a quantized file that gguf widens to float32, because llama.cpp rounds the
                                              inputs of quantized products to 8 bits, which may change a router's choice
    gguf_reader.py rows LIMIT MODEL FOLDER [MODEL FOLDER]...
                                              the same for an encoder's hidden states, with llama.cpp's GELU in transformers
    gguf_reader.py sentences LIMIT MODEL FOLDER [MODEL FOLDER]...
                                              llama.cpp gives the ids of MODEL's tokenizer.json, and embeddings of length 1
                                              that differ by less than LIMIT from transformers' pooled ones
    gguf_reader.py dense MODEL FOLDER         write MODEL to FOLDER with two dense layers behind its pooling
    gguf_reader.py near LEAST FILE FLOAT      llama.cpp's embeddings by FILE have a cosine of at least LEAST to those by FLOAT
    gguf_reader.py same MODEL FOLDER TEXT     llama.cpp gives the ids of MODEL's tokenizer.json on TEXT, and the greedy
                                              tokens and the perplexity of MODEL with the file's dequantized weights
"""

import json
import math
import os
import sys
import tempfile

import numpy

GREEDY, WINDOW, WINDOWS = 64, 256, 8
TIE = 0.05    # of two logits; llama.cpp's 8-bit activations move each by about .02 rms


def tensors(folder):
    """Returns {name: values} of calm.safetensors."""
    from safetensors.numpy import load_file

    return load_file(f"{folder}/calm.safetensors")


def turned(rows, heads):
    """Permutes the rows of q and k as llama.cpp does in the architecture llama, by the definition."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def check_parsed(folder):
    import gguf

    reader = gguf.GGUFReader(f"{folder}/model.gguf")
    ours = tensors(folder)
    arch = reader.get_field("general.architecture").contents()
    heads = {w: int(reader.get_field(f"{arch}.attention.head_count{s}").contents()) for w, s in (("q", ""), ("k", "_kv"))}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH_NAMES and next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch),
                                     int(reader.get_field(f"{arch}.block_count").contents()))
    theirs = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    used = set()
    for name, values in ours.items():
        parts = name.split(".")
        expert = int(parts[parts.index("experts") + 1]) if "experts" in parts else None
        if expert is not None:
            del parts[parts.index("experts") + 1]
        mapped = names.get_name(".".join(parts), try_suffixes=(".weight", ".bias"))
        assert mapped in theirs, f"{folder}: {name}: no {mapped}"
        used.add(mapped)
        found = theirs[mapped] if expert is None else theirs[mapped][expert]
        expected = values.reshape(found.shape)
        if arch == "llama" and parts[-2] in ("q_proj", "k_proj"):
            expected = turned(expected, heads[parts[-2][0]])
        if arch.startswith("gemma") and name.endswith("norm.weight"):
            expected = expected + numpy.float32(1)
        assert found.astype(numpy.float32).tobytes() == expected.tobytes(), f"{folder}: {name} differs"
    rest = set(theirs) - used - {"rope_freqs.weight"}
    assert rest <= {"output.weight"}, f"{folder}: {rest}"
    print(f"{folder}: {len(theirs)} tensors of {arch}, {len(ours)} of the checkpoint, equal")


def check_blocks(folder):
    import gguf

    ours = numpy.fromfile(f"{folder}/values.f32", dtype="<f4")
    at = 0
    for tensor in gguf.GGUFReader(f"{folder}/model.gguf").tensors:
        with numpy.errstate(all="ignore"):
            theirs = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32).reshape(-1)
        found = ours[at : at + theirs.size]
        at += theirs.size
        # NaN payloads may differ; all other values have the same bits, also the sign of zero.
        same = (theirs.view(numpy.uint32) == found.view(numpy.uint32)) | (numpy.isnan(theirs) & numpy.isnan(found))
        assert same.all(), f"{tensor.name}: element {numpy.argmin(same)}: {theirs[~same][0]}, calm {found[~same][0]}"
        print(f"{tensor.name}: {theirs.size} values, equal")
    assert at == ours.size


def llama(folder, **more):
    import llama_cpp

    return llama_cpp.Llama(f"{folder}/model.gguf", n_ctx=1024, n_batch=1024, n_threads=2, verbose=False, **more)


def check_loaded(folder):
    import llama_cpp

    model = llama(folder, logits_all=True)
    model.eval(list(range(1, 20)))
    logits = numpy.array(model.scores[:19])
    assert numpy.isfinite(logits).all() and logits.std() > 0, f"{folder}: logits"
    print(f"{folder}: loaded by llama-cpp-python {llama_cpp.__version__}")


def torch_model(model, folder):
    """Returns MODEL with the file's weights, in float32."""
    import fused_experts
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    # For a wrapper the file holds the text model.
    out = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model).get_text_config(), dtype=torch.float32)
    out.set_experts_implementation("eager")    # the default needs rows of experts that are multiples of 16 bytes
    values = {k: torch.from_numpy(v) for k, v in tensors(folder).items()}
    # transformers 5 has Mixtral's mixture under the usual name.
    if not any(".block_sparse_moe." in k for k in out.state_dict()):
        values = {k.replace(".block_sparse_moe.", ".mlp."): v for k, v in values.items()}
    # In transformers ERNIE's selection bias is in the router, and Phi's router has another name.
    for ours, theirs in {".mlp.moe_statics.": ".mlp.gate.moe_statics.", ".mlp.gate.weight": ".mlp.router.weight"}.items():
        if any(theirs in k for k in out.state_dict()):
            values = {k if theirs in k else k.replace(ours, theirs): v for k, v in values.items()}
    router = "block_sparse_moe.router"    # Granite's, which transformers 5 has without the word "layer"
    if any(k.endswith(router + ".weight") for k in out.state_dict()):
        values = {k.replace(router + ".layer.", router + "."): v for k, v in values.items()}
    if any(fused_experts.is_fused(k) for k in out.state_dict()):
        values = fused_experts.fuse(values, out)
    # GGUF stores a depthwise convolution as a matrix.
    values = {k: v.reshape(out.state_dict()[k].shape) if k.endswith("conv.weight") else v for k, v in values.items()}
    # Gemma 3n's loader needs keys for blocks that share keys of others, and rows for all ids.
    values = {k: v for k, v in values.items() if k in out.state_dict() or v.any()}
    table = "model.embed_tokens_per_layer.weight"
    if table in values:
        values[table] = values[table][: len(out.state_dict()[table])]
    missing, extra = out.load_state_dict(values, strict=False)
    assert not extra and set(missing) <= {"lm_head.weight"}, (missing, extra)
    out.tie_weights()
    return out.eval()


def use_table(model):
    """Replaces GELU by that of ggml's CPU kernels: tanh, from a table of float16 for -10 < x < 10.  Returns True if the model has
    one."""
    import torch

    class Table(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
            return torch.where(x <= -10, torch.zeros_like(x), torch.where(x >= 10, x, y))

    found = False
    for module in model.modules():
        for name, child in list(module.named_children()):
            if "GELU" in type(child).__name__:
                setattr(module, name, Table())
                found = True
    return found


def encoder(model):
    import torch
    from transformers import AutoModel

    return AutoModel.from_pretrained(model, dtype=torch.float32).eval()


def check_rows(model, folder):
    """Checks that llama.cpp gives transformers' hidden states of an encoder."""
    import llama_cpp
    import torch

    engine = llama(folder, embedding=True, pooling_type=0, n_ubatch=1024)
    reference = encoder(model)
    ids = [(7 * i * i + 3 * i + 1) % 61 for i in range(48)]
    # Padding has no position there.
    padding = reference.config.pad_token_id
    ids = [padding + 3 if i == padding else i for i in ids]
    # Llama.eval needs a cache, which encoders lack.
    engine._batch.set_batch(batch=ids, n_past=0, logits_all=True)
    assert llama_cpp.llama_encode(engine._ctx.ctx, engine._batch.batch) == 0
    width = reference.config.hidden_size
    found = numpy.ctypeslib.as_array(llama_cpp.llama_get_embeddings(engine._ctx.ctx), (len(ids) * width,))
    errors = []
    for _ in range(2):
        with torch.no_grad():
            expected = reference(torch.tensor([ids])).last_hidden_state[0].numpy().astype(numpy.float64)
        errors.append(numpy.abs(found.reshape(expected.shape) - expected).max() / expected.std())
        use_table(reference)
    print(f"{folder}: rows differ by {errors[0]:.2g} of their standard deviation, by {errors[1]:.2g} with ggml's GELU")
    return errors[1]


SENTENCES = ["A small brown dog ran across the quiet street.", "Das Caf\u00e9, na\u00efve r\u00e9sum\u00e9 \u2014 42% off!", "x",
             "\u65e5\u672c\u8a9e \u3068 \u4e2d\u6587 text", "Hello,  world\n\tnew line ", "\uff21\uff22\uff23 \ufb01ne \u2460"]  # fmt: skip


def dense_layers(model):
    """Returns the matrices of the dense layers after pooling, if there are any."""
    import glob

    from safetensors.numpy import load_file

    return [load_file(path)["linear.weight"].astype(numpy.float64) for path in sorted(glob.glob(f"{model}/*_Dense/*.safetensors"))]


def check_sentences(model, folder):
    """Checks llama.cpp's whole path from a text to its embedding."""
    import os

    import torch
    from tokenizers import Tokenizer

    engine = llama(folder, embedding=True, n_ubatch=1024)
    reference, tokenizer = encoder(model), Tokenizer.from_file(f"{model}/tokenizer.json")
    use_table(reference)
    tokenizer.no_padding()
    mode = "mean"
    if os.path.exists(f"{model}/1_Pooling/config.json"):
        with open(f"{model}/1_Pooling/config.json", encoding="utf-8") as stream:
            said = json.load(stream)
        keys = {"pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}
        mode = next((m for key, m in keys.items() if said.get(key)), "mean")
    worst, layers = 0.0, dense_layers(model)
    for text in SENTENCES:
        ids = tokenizer.encode(text).ids
        assert engine.tokenize(text.encode(), add_bos=True, special=False) == ids, f"{folder}: other ids of {text!r}"
        with torch.no_grad():
            rows = reference(torch.tensor([ids])).last_hidden_state[0].numpy().astype(numpy.float64)
        pooled = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[mode]
        for layer in layers:
            pooled = layer @ pooled
        found = numpy.array(engine.embed(text, normalize=True))
        worst = max(worst, numpy.abs(found - pooled / numpy.linalg.norm(pooled)).max())
    print(f"{folder}: embeddings of {len(SENTENCES)} sentences differ by {worst:.2g}")
    return worst


def write_dense(model, folder):
    """Writes random dense layers as in sentence-transformers: to three times the width, and back."""
    import os
    import shutil

    from safetensors.numpy import save_file

    shutil.copytree(model, folder)
    with open(f"{model}/config.json", encoding="utf-8") as stream:
        width = json.load(stream)["hidden_size"]

    def put(name, what):
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        with open(f"{folder}/{name}", "w", encoding="utf-8") as stream:
            json.dump(what, stream)

    parts = {"": "Transformer", "1_Pooling": "Pooling", "2_Dense": "Dense", "3_Dense": "Dense", "4_Normalize": "Normalize"}
    put("modules.json", [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in parts.items()])
    put("1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    for name, rows, columns in (("2_Dense", 3 * width, width), ("3_Dense", width, 3 * width)):
        put(f"{name}/config.json", {"in_features": columns, "out_features": rows, "bias": False,
                                    "activation_function": "torch.nn.modules.linear.Identity"})  # fmt: skip
        weight = numpy.random.default_rng(1).standard_normal((rows, columns))
        save_file({"linear.weight": weight.astype(numpy.float32)}, f"{folder}/{name}/model.safetensors")


def check_near(least, path, original):
    """Checks that a quantized file's embeddings of the same sentences are near the float file's."""
    import llama_cpp

    engines = [llama_cpp.Llama(p, n_ctx=512, n_threads=2, verbose=False, embedding=True) for p in (path, original)]
    cosines = [numpy.dot(*(e.embed(text, normalize=True) for e in engines)) for text in SENTENCES]
    print(f"{path}: cosine to the float file's embeddings at least {min(cosines):.5f}")
    assert min(cosines) >= float(least), "too far apart"


def loss(logits, ids):
    """Returns the sum of -ln p of ids[1:] from rows 0 .. n - 2."""
    logits = logits.astype(numpy.float64)[: len(ids) - 1]
    top = logits.max(axis=1)
    return float((top + numpy.log(numpy.exp(logits - top[:, None]).sum(axis=1)) -
                  logits[numpy.arange(len(ids) - 1), ids[1:]]).sum())


def check_logits(model, folder, name=None):
    """Checks that llama.cpp's logits equal transformers', except for its kernels' rounding."""
    import torch

    engine = llama(folder, logits_all=True, type_k=0, type_v=0)
    reference = torch_model(model, folder)
    window = getattr(reference.config, "sliding_window", None) or 48
    if reference.config.model_type.startswith(("gemma", "cohere2", "olmo3", "gpt_oss")):
        window = 48    # llama.cpp slides here, and nowhere else
    ids = [(7 * i * i + 3 * i + 1) % min(reference.config.vocab_size, 61) for i in range(min(48, window))]
    engine.eval(ids)
    found = numpy.array(engine.scores[: len(ids)], dtype=numpy.float64)
    deviation = torch.std
    if hasattr(reference.config, "activation_sparsity_pattern"):
        # llama.cpp's gaussian_topk divides by n - 1.
        torch.std = lambda x, **more: deviation(x, **{**more, "unbiased": True})

    def apart():
        with torch.no_grad():
            expected = reference(torch.tensor([ids])).logits[0].numpy().astype(numpy.float64)
        return numpy.abs(found - expected).max() / expected.std()

    error, table = apart(), ""
    if use_table(reference):
        plain, error = error, apart()
        table = f", {error:.2g} with its table of GELU"
    torch.std = deviation
    print(f"{name or folder}: logits differ by {plain if table else error:.2g} of their standard deviation{table}")
    return error


def widen(folder, path):
    """Writes a folder's file again with its values in float32 and the same keys."""
    import gguf

    reader = gguf.GGUFReader(f"{folder}/model.gguf")
    writer = gguf.GGUFWriter(path, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=items)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return any(gguf.GGML_QUANT_SIZES[t.tensor_type][0] > 1 for t in reader.tensors)


def check_wide(model, folder):
    with tempfile.TemporaryDirectory() as wide:
        if not widen(folder, f"{wide}/model.gguf"):
            print(f"{folder}: no matrix has whole blocks")
            return 0.0
        os.symlink(os.path.abspath(f"{folder}/calm.safetensors"), f"{wide}/calm.safetensors")
        return check_logits(model, wide, f"{folder}, widened")


def check_same(model, folder, path):
    import torch
    from tokenizers import Tokenizer

    with open(path, encoding="utf-8") as stream:
        text = stream.read()[:40000]
    ids = Tokenizer.from_file(f"{model}/tokenizer.json").encode(text, add_special_tokens=False).ids
    engine = llama(folder, logits_all=True)
    assert engine.tokenize(text.encode(), add_bos=False, special=False) == ids, "other ids"
    reference = torch_model(model, folder)
    sums = [0.0, 0.0]
    for w in range(WINDOWS):
        window = ids[w * WINDOW : (w + 1) * WINDOW]
        engine.reset()
        engine.eval(window)
        sums[0] += loss(numpy.array(engine.scores[:WINDOW]), window)
        with torch.no_grad():
            sums[1] += loss(reference(torch.tensor([window])).logits[0].numpy(), window)
    ppl = [math.exp(s / (WINDOWS * (WINDOW - 1))) for s in sums]
    start, made, expected = ids[:64], [], []
    engine.reset()
    engine.eval(start)
    for _ in range(GREEDY):
        made.append(int(numpy.argmax(engine.scores[engine.n_tokens - 1])))
        engine.eval(made[-1:])
    past = list(start)
    with torch.no_grad():
        for _ in range(GREEDY):
            past.append(int(reference(torch.tensor([past])).logits[0, -1].argmax()))
    expected = past[len(start) :]
    equal = next((i for i, (a, b) in enumerate(zip(made, expected)) if a != b), GREEDY)
    apart = 0.0
    if equal < GREEDY:
        with torch.no_grad():
            top = reference(torch.tensor([past[: len(start) + equal]])).logits[0, -1].topk(2).values
        apart = float(top[0] - top[1])
        print(f"{folder}: greedy token {equal} differs; the float model's two best are {apart:.3g} apart")
    print(json.dumps({"folder": folder, "ids": len(ids), "llama.cpp": ppl[0], "float": ppl[1], "greedy": equal}))
    assert abs(ppl[0] / ppl[1] - 1) < 0.005, "perplexity"
    assert apart < TIE, "greedy tokens"


def main():
    mode, words = sys.argv[1], sys.argv[2:]
    if mode == "same":
        check_same(*words)
        return
    if mode == "dense":
        write_dense(*words)
        return
    if mode == "near":
        check_near(*words)
        return
    if mode == "blocks":
        check_blocks(*words)
        return
    if mode in ("logits", "rows", "sentences", "wide"):    # LIMIT MODEL FOLDER [MODEL FOLDER]...
        compare = {"logits": check_logits, "rows": check_rows, "sentences": check_sentences, "wide": check_wide}[mode]
        errors = [compare(m, f) for m, f in zip(words[1::2], words[2::2])]
        assert errors and all(error < float(words[0]) for error in errors), "too far apart"    # max() forgets a NaN
        return
    for folder in words:
        check_parsed(folder) if mode == "parse" else check_loaded(folder)


main()
