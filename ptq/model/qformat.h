/* Quantized safetensors checkpoints, reading: which linear has which scheme, which tensors hold its weight, and
 * that weight in float32.
 *
 * A format is one file qformat_<format>.c, which ends with its descriptor, and one line in qformats.def.  Every format
 * is read into the same form - codes, zeros and scales per row and group (docs/formats.md section 1) - so a weight has
 * the same bits whichever it came from.  Configurations and tensors are untrusted: all of it is checked. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/weight.h"
#include "ptq/quant/scheme.h"

/* How one linear is stored. */
typedef struct calm_qformat_scheme {
    int bits;             /* 2, 3, 4 or 8                                        */
    size_t group;         /* columns per scale; 0 = one per row                  */
    bool symmetric;
    int act_bits;         /* 0 = activations stay float                          */
    bool act_asymmetric;
    int layout;           /* the format's own: which of its ways to store it     */
    int family;           /* of schemes.def; 0: whole codes                      */
    calm_act_rule act_rule;    /* of small floats, or static; else not known */
} calm_qformat_scheme;

/* Bits of GPTQ's layout: zeros as they are, and groups of columns in any order. */
enum { CALM_GPTQ_V2 = 1, CALM_GPTQ_ORDERED = 2 };

/* What a tensor of a quantized linear is; INDEX: the group of each column, SHAPE: the weight's,
 * GLOBAL: what all its scales are divided by, ACT_GLOBAL: the same for those of its input, ACT_SCALE: the one of its
 * input. */
typedef enum calm_qformat_part {
    CALM_QFORMAT_CODES,
    CALM_QFORMAT_SCALES,
    CALM_QFORMAT_ZEROS,
    CALM_QFORMAT_BIASES,
    CALM_QFORMAT_INDEX,
    CALM_QFORMAT_SHAPE,
    CALM_QFORMAT_GLOBAL,
    CALM_QFORMAT_ACT_GLOBAL,
    CALM_QFORMAT_ACT_SCALE,
    CALM_N_QFORMAT_PARTS
} calm_qformat_part;

/* A name of tensors next to a module's: "qzeros". */
typedef struct calm_qformat_suffix {
    const char *suffix;
    calm_qformat_part part;
} calm_qformat_suffix;

/* A tensor that a quantized linear has. */
typedef struct calm_qformat_tensor {
    calm_qformat_part part;
    const char *suffix;    /* "weight_packed" of "m.weight_packed"           */
    calm_dtype dtype;      /* CALM_N_DTYPES: BF16, F16 or F32                */
    int n_dims;
    size_t shape[2];
    bool optional;         /* readers do without it                          */
} calm_qformat_tensor;

/* A weight [out, in] in the form that all formats share: (code - zero) * scale, or code * scale + bias. */
typedef struct calm_qformat_values {
    size_t out, in, group, n_groups;
    uint8_t *codes;        /* [out, in]                                          */
    uint8_t *zeros;        /* [out, G], filled with 2^(bits-1) beforehand         */
    float *scales;         /* [out, G]                                           */
    float *biases;         /* [out, G] instead of zeros; NULL: zeros             */
    uint32_t *group_of;    /* [in] below G; NULL: column / group                 */
    const calm_levels *levels;    /* that codes represent, instead of code - zero; NULL: none */
} calm_qformat_values;

typedef struct calm_qformat {
    const char *name;      /* [a-z0-9_]+ : "compressed_tensors" */
    const char *label;     /* as engines write it, and quant_method: "compressed-tensors" */
    /* All suffixes of tensors that hold a weight, ended by NULL.  "weight" is of a float weight too. */
    const calm_qformat_suffix *suffixes;
    const char *entry;     /* member of config.json that describes the format; NULL: quantization_config */
    /* Is this config.json of the format?  Only the entry's presence is looked at.  NULL: quant_method is the label. */
    bool (*detect)(const calm_json *config);
    /* Is its entry like one of the format but for the method, which is missing?  NULL: never. */
    bool (*resembles)(const calm_json *config);
    size_t bytes;          /* of `self` below */
    /* Read the entry into `self`, which is all zero; arrays and names go to `arena`, which lives as long. */
    calm_status (*read)(calm_ctx *ctx, const char *path, const calm_json *entry, calm_arena *arena, void *self);
    /* Free what `self` holds outside the arena, also when `read` has failed.  NULL: nothing. */
    void (*release)(void *self);
    /* The scheme of a module; *quantized false: float.  `set`: the checkpoint's tensors, NULL for none. */
    calm_status (*find)(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out);
    /* *width: channels of a block of the Hadamard matrix that a module's input is multiplied by; 0: none.  NULL: the
     * format has no such transforms. */
    calm_status (*hadamard)(calm_ctx *ctx, const void *self, const char *module, size_t *width);
    /* Which tensors a linear of that scheme has; *n at most CALM_N_QFORMAT_PARTS. */
    calm_status (*tensors)(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n);
    /* Codes are packed along the inputs, each row in whole words of 32 bits, but for: */
    bool inputs_first;     /* codes are [in, out]                            */
    bool packs_outputs;    /* they are packed along the outputs              */
    bool plain_bytes;      /* of dtype I8 they are not packed                */
    /* Where the experts of a block share a module: its name in ctx->scratch and the expert's number, for a module that
     * is an expert's; its tensors are then [E, ...].  NULL: they never do; *name NULL: `module` is no expert's. */
    calm_status (*stack)(calm_ctx *ctx, const char *module, char **name, size_t *expert);
    /* Fill codes, zeros (or biases) and scales from tensors of the right dtype and shape; `found` by part, NULL:
     * absent. What it adds is in ctx->scratch. */
    calm_status (*unpack)(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values);
} calm_qformat;

typedef struct calm_qformat_reader calm_qformat_reader;

/* The formats in the order of qformats.def; *n their number. */
const calm_qformat *const *calm_qformats(size_t *n);

/* Is this config.json of the format? */
bool calm_qformat_detect(const calm_qformat *format, const calm_json *config);

/* What a tensor with this suffix holds, in the format or for NULL in any; false: no such suffix. */
bool calm_qformat_suffix_part(const calm_qformat *format, const char *suffix, calm_qformat_part *part);

/* Rows and columns of a module's weight from its codes, a matrix or one for each expert, and from the tensor that
 * states where the last word ends; 0: not known.  Whether the tensors agree with that is not checked. */
calm_status calm_qformat_shape(calm_ctx *ctx, const calm_qformat *format, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, const calm_tensor *codes,
                               size_t *out, size_t *in);

/* Read the quantization entry of `config`, the config.json at `path`; *out NULL: none, the checkpoint is float.  Free
 * with calm_qformat_close.  CALM_EUNSUPPORTED: a method that calm does not know, or what it cannot compute;
 * CALM_EFORMAT. */
calm_status calm_qformat_open(calm_ctx *ctx, const char *path, const calm_json *config, calm_qformat_reader **out);
void calm_qformat_close(calm_qformat_reader *reader);

/* The format of an open one. */
const calm_qformat *calm_qformat_of(const calm_qformat_reader *reader);

/* The scheme of a module; *quantized false: it stays float.  `set`: the checkpoint's tensors. */
calm_status calm_qformat_find(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, bool *quantized, calm_qformat_scheme *out);

/* *width: channels of a block of the normalised Sylvester matrix (tensor/rotation.h) that a module's input, of a
 * quantized or a float module, is multiplied by before it is quantized; 0: none. */
calm_status calm_qformat_hadamard(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module, size_t *width);

/* Which tensors a quantized module [out, in] has: list [CALM_N_QFORMAT_PARTS], *n of them. */
calm_status calm_qformat_tensors(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module,
                                 const calm_qformat_scheme *scheme, size_t out, size_t in, calm_qformat_tensor *list,
                                 size_t *n);

/* Check presence, dtype and shape of a quantized module's tensors. */
calm_status calm_qformat_check(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in);

/* w [out, in] of a quantized module in float32: what stands in the file, whatever it amounts to; or where the linear
 * `weight` (NULL: no) is to be one of whole numbers, its codes in the memory of w (calm_int_linear_take).
 * CALM_ENUMERIC: a scale or bias is not finite. */
calm_status calm_qformat_load(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in, float *w,
                              calm_weight *weight);

/* Rows first .. first + n - 1 alone; where the format packs rows together, the whole weight is read for them. */
calm_status calm_qformat_load_rows(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                   const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                                   size_t first, size_t n, float *w);

/* The same as a scheme; `scales`: the dtype that the tensor of scales has. */
calm_scheme calm_qformat_as_scheme(const calm_qformat_scheme *scheme, calm_dtype scales);

/* Does the file say by what rule activations are quantized? */
bool calm_qformat_says_rule(const calm_qformat_scheme *scheme);

/* What scales of a module's quantized input are divided by, or the one scale, where its scheme has such a number;
 * else 0. */
calm_status calm_qformat_act_global(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                    const char *module, const calm_qformat_scheme *scheme, float *out);

/* ---- for formats ---- */

/* The words of a mapped tensor, which may be at any alignment, copied into ctx->scratch. */
calm_status calm_qformat_words(calm_ctx *ctx, const calm_tensor *tensor, uint32_t **out);

/* The scales or biases of a tensor [rows, cols] into out, of a transposed one [cols, rows] with `transposed`. */
calm_status calm_qformat_floats(calm_ctx *ctx, const calm_tensor *tensor, bool transposed, size_t rows, size_t cols,
                                float *out);

/* How codes are in 32-bit words (pack.h): along a row, along a column, or in AWQ's order. */
typedef enum calm_qformat_packing {
    CALM_QFORMAT_BY_ROWS,
    CALM_QFORMAT_BY_COLUMNS,
    CALM_QFORMAT_AWQ_ORDER
} calm_qformat_packing;

/* out [rows, cols] = the codes of a tensor, which holds them as they are or, with `transposed`, as [cols, rows]. */
calm_status calm_qformat_codes(calm_ctx *ctx, const calm_tensor *tensor, calm_qformat_packing packing, int bits,
                               bool transposed, size_t rows, size_t cols, uint8_t *out);

/* "bits" of an entry: `fallback` or a failure where absent (0); one of 2, 3, 4, 8. */
calm_status calm_qformat_bits(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key, int fallback,
                              int *out);

/* "group_size": -1 (and null) is one per row, which is 0 here; else 1 to 2^24.  `fallback` where absent. */
calm_status calm_qformat_group(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key,
                               size_t fallback, size_t *out);
