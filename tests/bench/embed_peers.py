#!/usr/bin/env python3
"""Sentence embeddings by onnxruntime and ctranslate2, for tests/bench/embed_peers.sh.

  embed_peers.py export MODEL FOLDER               float.onnx and int8.onnx (quantize_dynamic) of MODEL's transformer, and a
                                                   CTranslate2 model in FOLDER/ct2; a line names models that cannot be exported
  embed_peers.py tokens MODEL TEXT TOKENS          token ids of each line of TEXT by MODEL's tokenizer
  embed_peers.py time FOLDER PEER TOKENS BATCH THREADS
                                                   sentences per second and CPU seconds per sentence, as CSV
  embed_peers.py embed FOLDER PEER TOKENS OUT.npy  mean hidden state over tokens, of every sentence
  embed_peers.py compare REFERENCE.npy FOUND.npy   mean and least cosine
  embed_peers.py spearman EMBEDDINGS.npy SCORES    rank correlation of the cosines of pairs (rows 2i and 2i + 1)
                                                   with scores, one per line

PEER: onnxruntime-float32, onnxruntime-int8, ctranslate2-int8, ctranslate2-float32.  TOKENS: JSON lines {"ids": [...]}.
Sentences of one length run together, without padding.  FOLDER/model.txt names MODEL."""

import json
import os
import sys
import time


def read_tokens(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line)["ids"] for line in file]


def fuse(config, path):
    """BERT's layers as onnxruntime's own tool joins them; other families as the session joins what it knows."""
    if config.model_type == "bert":
        from onnxruntime.transformers.optimizer import optimize_model
        optimize_model(path, model_type="bert", num_heads=config.num_attention_heads,
                       hidden_size=config.hidden_size).save_model_to_file(path)


def export_onnx(model_dir, folder):
    import onnx
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModel
    model = AutoModel.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.randint(10, 1000, (2, 12))
    path = os.path.join(folder, "float.onnx")
    example = (ids, torch.ones_like(ids))
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["hidden"]}
    axes = {0: "batch", 1: "tokens"}
    try:
        torch.onnx.export(Hidden(), example, path, opset_version=17, dynamo=False, **names,
                          dynamic_axes={"input_ids": axes, "attention_mask": axes, "hidden": axes})
    except RuntimeError:  # operators that the older exporter does not know
        torch.onnx.export(Hidden(), example, path, dynamo=True, external_data=False, **names,
                          dynamic_shapes=(dict(axes), dict(axes)))
    fuse(model.config, path)
    # Shapes cannot be inferred through fused operators; what they give is float.
    quantize_dynamic(path, os.path.join(folder, "int8.onnx"), weight_type=QuantType.QInt8,
                     extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})


def export_ct2(model_dir, folder):
    import ctranslate2
    ctranslate2.converters.TransformersConverter(model_dir).convert(os.path.join(folder, "ct2"), force=True)


def export(model_dir, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.txt"), "w", encoding="utf-8") as file:
        file.write(model_dir)
    for step in (export_onnx, export_ct2):
        try:
            step(model_dir, folder)
        except Exception as reason:  # of any library: the peer is left out
            print(f"embed_peers.py: {step.__name__}: {type(reason).__name__}: {str(reason)[:300]}", file=sys.stderr)


def open_onnx(folder, kind, threads):
    import numpy
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    name = "int8.onnx" if kind == "int8" else "float.onnx"
    session = onnxruntime.InferenceSession(os.path.join(folder, name), options, providers=["CPUExecutionProvider"])

    def run(ids):
        array = numpy.array(ids, dtype=numpy.int64)
        return session.run(None, {"input_ids": array, "attention_mask": numpy.ones_like(array)})[0].mean(axis=1)
    return run


def open_ct2(folder, kind, threads):
    import ctranslate2
    import numpy
    encoder = ctranslate2.Encoder(os.path.join(folder, "ct2"), compute_type=kind, intra_threads=threads)

    def run(ids):
        output = encoder.forward_batch(ids)
        return numpy.array(output.last_hidden_state).mean(axis=1)
    return run


def open_peer(folder, peer, threads):
    library, kind = peer.split("-")
    return (open_onnx if library == "onnxruntime" else open_ct2)(folder, kind, threads)


def tokens(model_dir, text, out):
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    with open(text, encoding="utf-8") as lines, open(out, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps({"ids": tokenizer(line.strip())["input_ids"]}) + "\n")


def time_peer(folder, peer, path, batch, threads):
    """All sentences once, after a batch to warm up."""
    sentences = read_tokens(path)
    run = open_peer(folder, peer, threads)
    run(sentences[:batch])
    wall, cpu = time.perf_counter(), time.process_time()
    for at in range(0, len(sentences), batch):
        run(sentences[at:at + batch])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{len(sentences) / wall:.2f},{cpu / len(sentences):.6f}")


def embed(folder, peer, path, out):
    import numpy
    run = open_peer(folder, peer, 1)
    numpy.save(out, numpy.stack([run([ids])[0] for ids in read_tokens(path)]))


def unit(rows):
    import numpy
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


def compare(reference, found):
    import numpy
    cosines = (unit(numpy.load(reference)) * unit(numpy.load(found))).sum(axis=1)
    print(f"{cosines.mean():.5f},{cosines.min():.5f}")


def ranks(values):
    """Equal values share the mean of theirs."""
    import numpy
    _, inverse, counts = numpy.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    return (ends - (counts - 1) / 2)[inverse]


def spearman(embeddings, scores):
    import numpy
    rows = unit(numpy.load(embeddings))
    cosines = (rows[0::2] * rows[1::2]).sum(axis=1)
    print(f"{numpy.corrcoef(ranks(cosines), ranks(numpy.loadtxt(scores)))[0, 1]:.4f}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    command, rest = sys.argv[1], sys.argv[2:]
    if command == "time":
        time_peer(*rest[:3], int(rest[3]), int(rest[4]))
    else:
        {"export": export, "tokens": tokens, "embed": embed, "compare": compare, "spearman": spearman}[command](*rest)
