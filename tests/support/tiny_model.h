/* Tiny random checkpoints of every family, written to a temporary directory of the running test. */
#ifndef CALM_TESTS_TINY_MODEL_H
#define CALM_TESTS_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ptq/data/windows.h"
#include "ptq/tensor/dtype.h"

/* Kinds of jobs that a block of attention and MLP has: the first ones of kinds.def. */
#define TINY_N_JOBS (CALM_JOB_DOWN + 1)

typedef struct tiny_model {
    const char *family;          /* one of tiny_families; NULL: "qwen3"                           */
    size_t hidden, inner, n_blocks, vocab, n_heads, n_kv, head_dim;
    size_t window;               /* keys that a sliding block sees; 0: no block slides.  Which ones do is the family's
                                    custom; in qwen3 those with an odd number                     */
    size_t n_experts, top_k, expert_inner, shared_inner;    /* mixtures                           */
    bool tied, bias;             /* bias: where the family has a switch for it                    */
    calm_dtype dtype;            /* of all tensors: F32, F16 or BF16                              */
    uint64_t seed;
    const char *extra;           /* more members of config.json: "\"mlp_only_layers\": [0]"; NULL: none */
    size_t n_dense;              /* mixtures: blocks 0 .. n_dense - 1 have no experts (say so in `extra`) */

    /* What is wrong with it, each NULL for nothing. */
    const char *missing;         /* this tensor is left out                                       */
    const char *as_integers;     /* this one is written as I32                                    */
    const char *transposed;      /* this one has its sizes exchanged                              */
    const char *nan_in;          /* element nan_at of this one is NaN                             */
    size_t nan_at;
} tiny_model;

/* Qwen3: 2 blocks, hidden 32, inner 48, 4 heads of 8 over 2 for keys and values, vocabulary 61, tied, BF16; in mixtures
 * 5 experts of 24, 2 of them for a token, next to a shared one of 40. */
extern const tiny_model tiny_default;

/* The families, NULL at the end; "bert" is a plain BertModel with a pooler, "bert_mlm" a masked language model. */
extern const char *const tiny_families[];

/* Has calm gradients of its blocks? */
static inline bool tiny_has_gradients(const char *family)
{
    return strcmp(family, "gemma3n") != 0;
}

/* Not among them: "gemma4_moe", Gemma 4 with experts and, in odd blocks, values made of keys. */

/* Encoders without heads, NULL at the end. */
extern const char *const tiny_encoders[];

/* The default with this family; encoders have as many heads for keys as for queries. */
tiny_model tiny_of(const char *family);

/* The same with 64 and 96 columns (experts 32, the shared one 64), which groups of 32 divide, and biases. */
tiny_model tiny_wide(const char *family);

/* Write config.json and model.safetensors; the directory lives until the end of the test. */
const char *tiny_model_write(const tiny_model *model);

/* Write only config.json into `dir`, replacing it. */
void tiny_model_write_config(const tiny_model *model, const char *dir);

/* Write `path`: the bundled tokenizer with a template that puts a token before a text and behind it - the one with this
 * id, or for id < 0 its first added token, whose id is returned. */
long long tiny_tokenizer_write(const char *path, long long id);

/* Windows of these lengths with random ids below tiny_default's vocabulary, in ctx->out. */
calm_windows tiny_windows(const size_t *lengths, size_t n);

#endif
