/* Synthetic checkpoints: random weights in the shapes of models that people use, with their config.json and tensor
 * names, so that sizes and speeds can be measured where nothing can be downloaded.
 *
 * A value depends on (seed, tensor name, index) alone.  Element i of a tensor takes 16 bits of Philox4x32-10:
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

/* The factor of a tensor out of "SUFFIX=FACTOR,..." (NULL: 1): of the first SUFFIX that its name ends in, or 1. */
float synth_factor(const char *factor, const char *name);

/* ---- shapes ---- */

/* What the blocks of a family hold besides the usual. */
enum {
    SYNTH_QKV_BIAS = 1,       /* q, k, v with bias                              */
    SYNTH_HEAD_NORM = 2,      /* q_norm, k_norm over one head                   */
    SYNTH_WIDE_NORM = 4,      /* q_norm, k_norm over all heads                  */
    SYNTH_FUSED = 8,          /* qkv_proj, gate_up_proj                         */
    SYNTH_EXPERTS = 16,       /* a router and experts instead of one MLP        */
    SYNTH_ENCODER = 32,       /* BertModel                                      */
    SYNTH_GEMMA = 64,         /* norms are stored less 1                        */
    SYNTH_LAYER_TYPES = 128,  /* the newer config.json lists them               */
};

/* Of DeepSeek's families: ranks of the narrow rows, widths of a head, blocks before the first mixture. */
typedef struct synth_latent {
    size_t q_rank, kv_rank, nope, rope, value, dense;
} synth_latent;

typedef struct synth_family {
    const char *config;             /* config.json in the classic spelling; sizes are filled in */
    unsigned flags;
    const char *const *norms;       /* of one block, as wide as the model; NULL-terminated      */
    const synth_latent *latent;     /* latent attention, and a shared expert; NULL: none        */
} synth_family;

typedef struct synth_shape {
    const char *name;
    const synth_family *family;
    size_t blocks, hidden, inner, heads, kv, head_dim, vocab;
    bool tied;
    size_t experts, top, expert_inner;
    size_t positions;               /* learned position embeddings of an encoder                */
    const char *extra;              /* members of config.json that differ from the family's, or NULL */
} synth_shape;

/* All shapes; ends with a NULL name. */
extern const synth_shape synth_shapes[];

/* Shapes by config.json alone, NAME.json each: those of families whose blocks the shapes above cannot say.  As many as
 * transformers' class has by default, which mostly is a published model. */
#define SYNTH_CONFIGS CALM_SOURCE_DIR "/tests/data/families"

/* They, in the order of their names, as scandir gives them: the list and its members are the caller's to free.  -1: the
 * folder cannot be read. */
int synth_configs(struct dirent ***out);

/* Find by name.  CALM_EARG with the nearest name. */
calm_status synth_find(calm_ctx *ctx, const char *name, const synth_shape **out);

/* ---- what is to be written ---- */

typedef struct synth_options {
    const char *shape, *output; /* of synth_shapes, or of SYNTH_CONFIGS, which are hollow           */
    const char *tokenizer;      /* directory with tokenizer.json; NULL: the demo model's            */
    size_t blocks;              /* 0: as the shape says                                             */
    size_t hidden;              /* another width, inner and heads in proportion; 0: as the shape says */
    size_t experts;             /* of a mixture; 0: as the shape says                               */
    size_t vocab;               /* rows of the embedding; 0: as the shape says                      */
    uint64_t seed;
    uint64_t shard_size;        /* bytes of tensors in a file; 0: 5 GB                              */
    calm_dtype dtype;           /* BF16, F16 or F32; CALM_N_DTYPES: as the shape is published       */
    bool newer;                 /* config.json as transformers 5 writes it                          */
    const char *factor;         /* "o_proj.weight=1e-9": tensors whose names end so are multiplied; NULL: none */
    bool hollow;                /* files have their headers and sizes, and holes in place of values */
} synth_options;

/* A tensor and how its values are drawn. */
typedef struct synth_tensor {
    calm_tensor tensor;
    float mean, spread;
    bool outliers;              /* a norm as wide as the model                                      */
} synth_tensor;

/* Tensors in the order of the model, in ctx->out. */
calm_status synth_list(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, synth_tensor **out,
                       size_t *n);

/* The same of a config.json, for hollow files: what calm reads of such a model.  Values are not described. */
calm_status synth_model_list(calm_ctx *ctx, const char *path, synth_tensor **out, size_t *n);

/* config.json. */
calm_status synth_config(calm_ctx *ctx, const synth_shape *shape, size_t blocks, calm_dtype dtype, bool newer,
                         calm_text *out);

/* Published type of the shape's weights: F32 for encoders, else BF16. */
calm_dtype synth_dtype(const synth_shape *shape);

/* ---- values ---- */

/* The stream of a tensor's name: its FNV-1a hash of 64 bits. */
uint64_t synth_stream(const char *name);

/* One channel in 64 is an outlier, the same ones in all norms of a seed. */
bool synth_is_outlier(uint64_t seed, size_t channel);

/* Values of one tensor as they are stored, ready to be drawn. */
typedef struct synth_values {
    const synth_tensor *tensor;
    uint64_t seed, stream;
    union { uint16_t half[SYNTH_LEVELS]; uint32_t word[SYNTH_LEVELS]; } levels;
} synth_values;

/* Prepare a tensor. */
calm_status synth_values_init(calm_ctx *ctx, synth_values *values, const synth_tensor *tensor, uint64_t seed);

/* Elements first .. first + n - 1 as stored; `first` is a multiple of 8 for random ones.  I64 tensors count up. */
calm_status synth_values_fill(calm_ctx *ctx, const synth_values *values, size_t first, size_t n, void *out);

/* ---- writing ---- */

/* Write the checkpoint to a temporary name next to options->output and rename it.
 * CALM_EARG: no whole number of the shape's heads at that width; no mixture, or fewer experts than a token has.
 * CALM_EEXIST: the output is there.  CALM_ENOSPC: the disk lacks the room, found before anything is written. */
calm_status synth_write(calm_ctx *ctx, const synth_options *options);

#endif
