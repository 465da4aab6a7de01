"""Compares sentence embeddings of calm and sentence-transformers.

    embeddings.py MODEL TEXT OURS [LIMIT]    TEXT: a sentence per line; OURS: output of embed_sentences for it

One line: the largest difference of a component, the least cosine; exit status 1 when the difference is above LIMIT (1e-5).
Both compute in float32, in different orders; embeddings of another length than 1 are divided by it first.
"""

import json
import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
from sentence_transformers import SentenceTransformer

limit = float(sys.argv[4]) if len(sys.argv) > 4 else 1e-5
with open(sys.argv[2], encoding="utf-8") as stream:
    sentences = [line.rstrip("\n") for line in stream if line.strip()]
with open(sys.argv[3], encoding="utf-8") as stream:
    ours = torch.tensor([json.loads(line) for line in stream], dtype=torch.float64)
model = SentenceTransformer(sys.argv[1], device="cpu", model_kwargs={"dtype": torch.float32})
# sentence-transformers calls forward, which skips the hook by which compressed-tensors unpacks weights, so one call unpacks them.
with torch.no_grad():
    model[0].auto_model(torch.tensor([[1, 2]]))
# One at a time: padding to longer sentences changes last bits.
theirs = torch.cat([model.encode([s], convert_to_tensor=True) for s in sentences]).double()
a, b = (torch.nn.functional.normalize(x, dim=1) for x in (ours, theirs))
worst, cosine = (a - b).abs().max().item(), (a * b).sum(1).min().item()
lengths = (ours.norm(dim=1) / theirs.norm(dim=1) - 1).abs().max().item()
print(f"{os.path.basename(sys.argv[1].rstrip('/'))}: {len(sentences)} sentences of {ours.shape[1]} numbers: at most {worst:.1e} apart, "
      f"least cosine {cosine:.9f}, lengths {lengths:.1e} apart")
sys.stdout.flush()
os._exit(0 if worst <= limit and lengths <= limit else 1)
