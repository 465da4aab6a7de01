/* llama.cpp's names for the families and tensors that calm knows, both ways (docs/formats.md section 6).
 *
 *   model.embed_tokens.weight                      token_embd.weight
 *   model.norm.weight                              output_norm.weight
 *   lm_head.weight                                 output.weight
 *   model.layers.3.self_attn.q_proj.weight         blk.3.attn_q.weight
 *   model.layers.3.mlp.experts.7.up_proj.weight    blk.3.ffn_up_exps.weight, its slot 7 */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/gguf.h"
#include "ptq/model/arch.h"
#include "ptq/model/gguf_order.h"

/* By what rope_freqs.weight divides angles of pairs that stand. */
#define CALM_GGUF_STANDS 1e30F

/* A family as llama.cpp has it. */
typedef struct calm_gguf_arch {
    const char *name;      /* "general.architecture": "qwen3moe"                                               */
    const char *family;    /* calm's name: "qwen3_moe"                                                        */
    bool permuted;           /* rows of q and k are permuted for interleaved rotary embeddings                  */
    bool tiled;              /* value heads of delta nets take turns among key heads                           */
    bool biases;           /* o, gate, up and down may have biases; else q, k and v alone                     */
    bool own_head;         /* output.weight is there also when the head is the embedding                      */
    bool fixed_head;       /* there is no output.weight: the head is the embedding                            */
    bool square;           /* heads * head_dim is the hidden size                                             */
    bool experts;          /* every block is a mixture                                                        */
    bool norm_top_k;       /* weights of the chosen experts are divided by their sum                          */
    bool scaled;           /* reads the multipliers of embeddings, scores, residuals and logits               */
    bool grows;            /* reads how q grows with its position                                             */
    bool divided;          /* reads rope_freqs.weight, by which llama3's scaling divides angles               */
    bool partial;          /* a part of each head may turn                                                    */
    bool quarter;          /* every fourth block is another: it does not slide, or does not turn              */
    bool windows;          /* of two families under one name the one whose blocks slide                       */
    bool needs_bias;       /* all linears have one                                                            */
    bool dense_lead;       /* the first blocks may have an MLP instead of experts                             */
    bool routes;           /* reads whether, and by what, weights of experts are divided and multiplied       */
    bool head_bias;        /* the head has a bias                                                             */
    bool flat_bias;        /* the bias of the choice of experts is a vector, in checkpoints [1, E]            */
    bool other;            /* computes another function than the model: such files are read and not written   */
    bool convs;            /* blocks of short convolutions, which have no heads for keys                      */
    bool deltas;           /* blocks of gated delta nets                                                      */
    bool scans;            /* blocks of Mamba-2, which have no heads for keys                                 */
    bool both_ways;        /* an encoder: files have no head, and windows on both sides                       */
    bool bare;             /* an encoder whose tensors have no prefix when a file is read                     */
    bool padded;           /* positions begin behind rows of padding, which files have not                    */
    bool untyped;          /* of families under one name the one without types of tokens                      */
    bool chunks;           /* blocks attend within chunks, and some or all have experts                       */
    bool single;           /* a block is one sublayer                                                         */
    bool shares;           /* the last blocks may share keys, each may have an input of the token's id (tail.h) */
    bool halves;           /* gate and up, one matrix in checkpoints, are two tensors                         */
    bool shared_alone;     /* what stands next to experts has the words of a shared expert alone              */
    bool sigmoid;          /* of families under one name one whose router takes sigmoids                      */
    const char *final_norm;    /* the word of the norm before the head; NULL: output_norm                     */
    const char *mlp_norm;  /* the word of the MLP's IN norm; NULL: ffn_norm                                   */
} calm_gguf_arch;

/* By calm's family; of one that llama.cpp has with experts and without, by `experts`.  NULL: llama.cpp does not have
 * it, or calm does not write it. */
const calm_gguf_arch *calm_gguf_arch_of(const calm_arch *arch, bool experts);

/* The same of a model. */
const calm_gguf_arch *calm_gguf_arch_in(const calm_config *config);

/* The i-th of all, those under one name one behind the other; NULL: there are no more. */
const calm_gguf_arch *calm_gguf_arch_at(size_t i);

/* Does llama.cpp know a bias of the role in this architecture? */
bool calm_gguf_takes_bias(const calm_gguf_arch *as, calm_role role);

/* Where a tensor of a checkpoint stands in a GGUF file. */
typedef struct calm_gguf_spot {
    const char *name;      /* "blk.0.attn_q.weight"                                                  */
    long expert;           /* the matrix of a tensor of three dimensions; CALM_NO_EXPERT: all of it  */
    bool plus_one;         /* values are stored with 1 added                                         */
    bool minus_exp;        /* values are stored as -exp of them                                      */
    bool taps;             /* [channels, 1, width], a matrix in the file                             */
    calm_gguf_form form;   /* order of its rows                                                      */
    const char *rest;      /* the tensor that holds its other part; NULL: it has none                */
    calm_gguf_form rest_form;
} calm_gguf_spot;

/* Where `tensor`, which begins with `prefix`, goes, in ctx->out; *known is false for one without a place.  `as`: what
 * calm_gguf_arch_of gives. */
calm_status calm_gguf_spot_of(calm_ctx *ctx, const calm_arch *arch, const calm_gguf_arch *as, const char *prefix,
                              const char *tensor, calm_gguf_spot *out, bool *known);

/* ---- a file as a checkpoint ---- */

/* One tensor as a checkpoint has it. */
typedef struct calm_gguf_entry {
    const char *name; /* "model.layers.0.self_attn.q_proj.weight"; NULL: checkpoints have no such tensor */
    const calm_gguf_tensor *stored, *rest;    /* rest: holds its other part; NULL: it has none */
    bool is_rest;                       /* it is the rest of another entry, and has no name */
    calm_gguf_spot spot;
    calm_gguf_order order;
    int n_dims;
    size_t shape[3];                    /* rows and columns, or length; of taps [channels, 1, width]; 1 beyond n_dims */
    const calm_gguf_tensor *factor;     /* "blk.0.attn_q.scale": its number, or its expert's, multiplies it; or NULL */
} calm_gguf_entry;

typedef struct calm_gguf_list {
    const calm_gguf *file;              /* borrowed */
    const calm_arch *arch;
    const calm_gguf_arch *as;
    calm_gguf_widths *widths;           /* as its keys have them */
    calm_gguf_entry *entries;           /* [n] in the order of the file, experts one by one */
    size_t n;
} calm_gguf_list;

/* List the tensors of a file under their names in a checkpoint, in ctx->out; the file must stay open.
 * CALM_EUNSUPPORTED: an architecture that calm does not know.  CALM_EFORMAT: its head count is missing or does not
 * divide the rows of q or k; a tensor has not the sizes that its other part, or keys, give it. */
calm_status calm_gguf_list_tensors(calm_ctx *ctx, const calm_gguf *file, calm_gguf_list *out);

/* Elements of a row. */
size_t calm_gguf_entry_columns(const calm_gguf_entry *entry);

/* Rows first .. first + n - 1 (elements, of a vector) as the checkpoint has them, into out: in its order, without what
 * was done to values.  Fails as calm_gguf_to_f32; CALM_ENUMERIC: an element of -exp(A_log) that is not below 0. */
calm_status calm_gguf_entry_to_f32(calm_ctx *ctx, const calm_gguf_list *list, const calm_gguf_entry *entry,
                                   size_t first, size_t n, float *out);
