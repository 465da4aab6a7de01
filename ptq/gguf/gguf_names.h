/* Maps names of families and tensors to llama.cpp's and back (docs/formats.md section 6).
 *
 *   model.embed_tokens.weight                      token_embd.weight
 *   model.norm.weight                              output_norm.weight
 *   lm_head.weight                                 output.weight
 *   model.layers.3.self_attn.q_proj.weight         blk.3.attn_q.weight
 *   model.layers.3.mlp.experts.7.up_proj.weight    blk.3.ffn_up_exps.weight, its matrix 7 */
#pragma once

#include "ptq/arch/arch.h"
#include "ptq/arch/gguf_order.h"
#include "ptq/base/context.h"
#include "ptq/io/gguf.h"

/* Divisor in rope_freqs.weight for pairs of channels that are not rotated: large enough to make the angle 0. */
#define CALM_GGUF_UNROTATED 1e30F

/* Properties of a family in llama.cpp. */
typedef struct calm_gguf_arch {
    const char *name;      /* "general.architecture": "qwen3moe"                                               */
    const char *family;    /* calm's name: "qwen3_moe"                                                        */
    bool permuted;           /* rows of q and k are permuted for interleaved rotary embeddings                  */
    bool tiled;              /* value heads of delta nets are ordered round robin over key heads               */
    bool biases;           /* o, gate, up and down may have biases; else only q, k and v                      */
    bool own_head;         /* output.weight is present even when the head is the embedding                    */
    bool fixed_head;       /* output.weight is absent: the head is always the embedding                       */
    bool square;           /* heads * head_dim must equal the hidden size                                     */
    bool experts;          /* every block is a mixture                                                        */
    bool norm_top_k;       /* weights of the chosen experts are divided by their sum                          */
    bool scaled;           /* keys hold the multipliers of embeddings, scores, residuals and logits           */
    bool grows;            /* keys hold the position-dependent scale of queries                               */
    bool divided;          /* rope_freqs.weight holds the divisors of angles for llama3's scaling             */
    bool partial;          /* a part of each head may be rotated                                              */
    bool quarter;          /* every fourth block differs: it does not slide, or is not rotated                */
    bool windows;          /* of two families with the same name: the one with sliding windows                */
    bool needs_bias;       /* all linears must have a bias                                                    */
    bool dense_lead;       /* the first blocks may have an MLP instead of experts                             */
    bool routes;           /* keys hold norm_top_k and the factor of the experts' weights                     */
    bool head_bias;        /* the head has a bias                                                             */
    bool flat_bias;        /* the choice bias of experts is a vector, in checkpoints [1, E]                   */
    bool other;            /* llama.cpp computes another function than the model: read such files, write none */
    bool convs;            /* some blocks are short convolutions: their number of key heads is 0              */
    bool deltas;           /* some blocks are gated delta nets                                                */
    bool scans;            /* some blocks are Mamba-2: their number of key heads is 0                         */
    bool both_ways;        /* an encoder: files have no head, and windows extend to both sides                */
    bool bare;             /* an encoder whose tensors have no prefix when a file is read                     */
    bool padded;           /* files leave out the rows of padding before the first position                   */
    bool untyped;          /* of families with the same name: the one without token types                     */
    bool chunks;           /* blocks attend within chunks, and some or all have experts                       */
    bool single;           /* a block is one sublayer                                                         */
    bool shares;           /* last blocks may share keys and values, and blocks have a per-layer input (tail.h) */
    bool halves;           /* gate and up, one matrix in checkpoints, are two tensors                         */
    bool shared_alone;     /* the MLP next to experts only has the names of a shared expert                   */
    bool sigmoid;          /* of families with the same name: one whose router's scores are sigmoids          */
    const char *final_norm;    /* name of the norm before the head; NULL: output_norm                         */
    const char *mlp_norm;  /* name of the MLP's IN norm; NULL: ffn_norm                                       */
} calm_gguf_arch;

/* Finds llama.cpp's family for calm's; `experts` selects where llama.cpp has one with experts and one without.  NULL:
 * llama.cpp does not have the family, or calm does not write it. */
const calm_gguf_arch *calm_gguf_arch_of(const calm_arch *arch, bool experts);

/* Finds llama.cpp's family for a model's config. */
const calm_gguf_arch *calm_gguf_arch_in(const calm_config *config);

/* Returns the i-th of all families, those with the same name next to each other; NULL: there are no more. */
const calm_gguf_arch *calm_gguf_arch_at(size_t i);

/* Does llama.cpp read a bias of the role in this architecture? */
bool calm_gguf_takes_bias(const calm_gguf_arch *as, calm_role role);

/* The place and form of a checkpoint's tensor in a GGUF file. */
typedef struct calm_gguf_spot {
    const char *name;      /* "blk.0.attn_q.weight"                                                  */
    long expert;           /* number of the matrix in a tensor of three dimensions, or CALM_NO_EXPERT */
    bool plus_one;         /* the file stores w + 1                                                  */
    bool minus_exp;        /* the file stores -exp(w)                                                */
    bool taps;             /* shape [channels, 1, width], a matrix in the file                       */
    calm_gguf_form form;   /* which rows, in which order                                             */
    const char *rest;      /* name of the tensor with its other part; NULL: none                     */
    calm_gguf_form rest_form;
} calm_gguf_spot;

/* Finds the place of the checkpoint's `tensor`, whose name begins with `prefix`; strings are in ctx->out.  *known
 * false: it has none.  `as`: from calm_gguf_arch_of. */
calm_status calm_gguf_spot_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              const char *tensor, calm_gguf_spot *out, bool *known);

/* ---- a GGUF file as a checkpoint ---- */

/* One tensor of the checkpoint that a GGUF file represents. */
typedef struct calm_gguf_entry {
    const char *name; /* "model.layers.0.self_attn.q_proj.weight"; NULL: checkpoints have no such tensor */
    const calm_gguf_tensor *stored, *rest;    /* its tensor in the file, and the one with its other part, or NULL */
    bool is_rest;                       /* true: `stored` is the `rest` of another entry, and name is NULL */
    calm_gguf_spot spot;
    calm_gguf_order order;
    int n_dims;
    size_t shape[3];                    /* rows and columns, or length; of taps [channels, 1, width]; 1 beyond n_dims */
    const calm_gguf_tensor *factor;     /* "blk.0.attn_q.scale": a factor of the matrix, or one per expert; or NULL */
} calm_gguf_entry;

typedef struct calm_gguf_list {
    const calm_gguf *file;              /* borrowed */
    const calm_arch *arch;
    const calm_gguf_arch *as;
    calm_gguf_widths *widths;           /* from the file's keys */
    calm_gguf_entry *entries;           /* [n] in the order of the file; each expert has its own */
    size_t n;
} calm_gguf_list;

/* Lists the tensors of a file under their names in a checkpoint, in ctx->out; the file must stay open.
 * CALM_EUNSUPPORTED: an unknown architecture.  CALM_EFORMAT: its head count is missing or does not divide the rows of q
 * or k; the sizes of a tensor do not match its other part, or the keys. */
calm_status calm_gguf_list_tensors(calm_ctx *ctx, const calm_gguf *file, calm_gguf_list *out);

/* Returns the number of elements of a row. */
size_t calm_gguf_entry_columns(const calm_gguf_entry *entry);

/* Reads rows first .. first + n - 1 (elements, of a vector) in the checkpoint's order and values into out; changes of
 * values such as w + 1 are undone.  Fails as calm_gguf_to_f32; CALM_ENUMERIC: an element of -exp(A_log) that is not
 * below 0. */
calm_status calm_gguf_entry_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry,
                                   size_t first, size_t n, float *out);
