/* Synthetic checkpoints: random weights in the shapes of published models, with their config.json and tensor names, to
 * measure sizes and speeds without a download.
 *
 * A value depends only on (seed, tensor name, index).  Element i of a tensor uses 16 bits of Philox4x32-10:
 *
 *   half i % 8 of the block with counter (i / 8, stream of the name) and key `seed`;
 *   value = mean + spread * quantile of the standard normal at (half + 1/2) / 65536, rounded to the stored type;
 *   norms as wide as the model get SYNTH_OUTLIER added in the channels that synth_is_outlier names. */
#ifndef CALM_TESTS_SYNTH_H
#define CALM_TESTS_SYNTH_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptq/base/context.h"
#include "ptq/base/text.h"
#include "ptq/io/safetensors.h"

#define SYNTH_OUTLIER 5.0f
#define SYNTH_LEVELS 65536

/* Returns the factor of a tensor from "SUFFIX=FACTOR,..." (NULL: 1): that of the first SUFFIX that ends its name, or
 * 1. */
float synth_factor(const char *factor, const char *name);

/* ---- shapes ---- */

/* Properties of a family's blocks that differ from the usual ones. */
enum {
    SYNTH_QKV_BIAS = 1,       /* q, k, v with bias                       */
    SYNTH_HEAD_NORM = 2,      /* q_norm, k_norm over one head            */
    SYNTH_WIDE_NORM = 4,      /* q_norm, k_norm over all heads           */
    SYNTH_FUSED = 8,          /* qkv_proj, gate_up_proj                  */
    SYNTH_EXPERTS = 16,       /* a router and experts instead of one MLP */
    SYNTH_ENCODER = 32,       /* BertModel                               */
    SYNTH_GEMMA = 64,         /* norms are stored less 1                 */
    SYNTH_LAYER_TYPES = 128,  /* the newer config.json lists them        */
};

/* Sizes of DeepSeek's families: ranks of the latent projections, widths of a head, blocks before the first mixture. */
typedef struct synth_latent {
    size_t q_rank, kv_rank, nope, rope, value, dense;
} synth_latent;

typedef struct synth_family {
    const char *config;             /* config.json in the classic spelling; sizes are filled in */
    unsigned flags;
    const char *const *norms;       /* names of a block's norms of model width; NULL-terminated */
    const synth_latent *latent;     /* latent attention, and a shared expert; NULL: none        */
} synth_family;

typedef struct synth_shape {
    const char *name;
    const synth_family *family;
    size_t blocks, hidden, inner, heads, kv, head_dim, vocab;
    bool tied;
    size_t experts, top, expert_inner;
    size_t positions;               /* learned position embeddings of an encoder                     */
    const char *extra;              /* members of config.json that differ from the family's, or NULL */
} synth_shape;

/* All shapes; the last one has name NULL. */
extern const synth_shape synth_shapes[];

/* Folder of shapes as config.json files, NAME.json, for families whose blocks synth_shape cannot describe.  Sizes are
 * the defaults of transformers' class, mostly those of a published model. */
#define SYNTH_CONFIGS CALM_SOURCE_DIR "/tests/data/families"

/* Lists these files by name, as scandir does: the caller frees the list and its members.  -1: the folder cannot be
 * read. */
int synth_configs(struct dirent ***out);

/* Finds a shape by name.  CALM_EARG: none; the message suggests the nearest. */
calm_status synth_find(calm_ctx *ctx, const char *name, const synth_shape **out);

/* ---- what is to be written ---- */

typedef struct synth_options {
    const char *shape, *output; /* a name of synth_shapes, or of SYNTH_CONFIGS (hollow only)          */
    const char *tokenizer;      /* directory with tokenizer.json; NULL: the demo model's              */
    size_t blocks;              /* 0: as the shape says                                               */
    size_t hidden;              /* another width, inner and heads in proportion; 0: as the shape says */
    size_t experts;             /* experts of a mixture; 0: as the shape says                         */
    size_t vocab;               /* rows of the embedding; 0: as the shape says                        */
    uint64_t seed;
    uint64_t shard_size;        /* bytes of tensors in a file; 0: 5 GB                                         */
    calm_dtype dtype;           /* BF16, F16 or F32; CALM_N_DTYPES: as the shape is published                  */
    bool newer;                 /* config.json as transformers 5 writes it                                     */
    const char *factor;         /* "o_proj.weight=1e-9": tensors whose names end so are multiplied; NULL: none */
    bool hollow;                /* files have headers and sizes, but holes instead of values                   */
} synth_options;

/* A tensor and how its values are drawn. */
typedef struct synth_tensor {
    calm_tensor tensor;
    float mean, spread;
    bool outliers;              /* a norm as wide as the model */
} synth_tensor;

/* Lists the tensors in the order of the model, in ctx->out. */
calm_status synth_list(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, synth_tensor **out,
                       size_t *n);

/* The same for a config.json, for hollow files: the tensors that calm reads of such a model, without values. */
calm_status synth_model_list(calm_ctx *ctx, const char *path, synth_tensor **out, size_t *n);

/* config.json. */
calm_status synth_config(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, bool newer,
                         calm_text *out);

/* Returns the published dtype of the shape's weights: F32 for encoders, else BF16. */
calm_dtype synth_dtype(const synth_shape *shape);

/* ---- values ---- */

/* Returns the random stream of a tensor: the 64-bit FNV-1a hash of its name. */
uint64_t synth_stream(const char *name);

/* Is a channel an outlier?  One in 64 is, the same ones in all norms of a seed. */
bool synth_is_outlier(uint64_t seed, size_t channel);

/* State to draw the stored values of one tensor. */
typedef struct synth_values {
    const synth_tensor *tensor;
    uint64_t seed, stream;
    union { uint16_t half[SYNTH_LEVELS]; uint32_t word[SYNTH_LEVELS]; } levels;
} synth_values;

/* Prepares drawing of a tensor. */
calm_status synth_values_init(calm_ctx *ctx, synth_values *values, const synth_tensor *tensor, uint64_t seed);

/* Writes elements first .. first + n - 1 in the stored dtype; `first` is a multiple of 8 for random ones.  I64
 * tensors count up. */
calm_status synth_values_fill(calm_ctx *ctx, const synth_values *values, size_t first, size_t n, void *out);

/* ---- writing ---- */

/* Writes the checkpoint to a temporary name next to options->output and renames it. CALM_EARG: that width is no
 * multiple of the head width; the shape is no mixture, or has fewer experts than a token uses. CALM_EEXIST: the
 * output exists.  CALM_ENOSPC: the disk lacks room; synth_write checks before it writes. */
calm_status synth_write(calm_ctx *ctx, const synth_options *options);

#endif
