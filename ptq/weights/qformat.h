/* Reads quantized safetensors checkpoints: the scheme of each linear, the tensors that hold its weight, and the weight
 * in float32.
 *
 * A format is one file qformat_<format>.c, which ends with its descriptor, and one line in qformats.def.  Every format
 * is read into the same form, codes, zeros and scales per row and group (docs/formats.md section 1), so a weight has
 * the same bits whatever its format.  Configurations and tensors are untrusted: all of them are checked. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/quant/scheme.h"
#include "ptq/weights/weight.h"

/* The scheme by which one linear is stored. */
typedef struct calm_qformat_scheme {
    int bits;             /* 2, 3, 4 or 8                                        */
    size_t group;         /* columns per scale; 0 = one per row                  */
    bool symmetric;
    int act_bits;         /* 0 = activations stay float                          */
    bool act_asymmetric;
    int layout;           /* variant of the format, with values that it defines  */
    int family;           /* number in schemes.def; 0: integer codes             */
    calm_act_rule act_rule;    /* known for small floats and static scales (calm_qformat_says_rule) */
} calm_qformat_scheme;

/* Bits of GPTQ's layout: V2: zeros are stored as they are, not less 1; ORDERED: groups of columns in any order. */
enum { CALM_GPTQ_V2 = 1, CALM_GPTQ_ORDERED = 2 };

/* The tensors of a quantized linear. */
typedef enum calm_qformat_part {
    CALM_QFORMAT_CODES,
    CALM_QFORMAT_SCALES,
    CALM_QFORMAT_ZEROS,
    CALM_QFORMAT_BIASES,
    CALM_QFORMAT_INDEX,         /* group of each column                    */
    CALM_QFORMAT_SHAPE,         /* shape of the weight                     */
    CALM_QFORMAT_GLOBAL,        /* divisor of all scales of the weight     */
    CALM_QFORMAT_ACT_GLOBAL,    /* divisor of the scales of its input      */
    CALM_QFORMAT_ACT_SCALE,     /* the static scale of its input           */
    CALM_N_QFORMAT_PARTS
} calm_qformat_part;

/* The suffix of a tensor's name after its module: "qzeros". */
typedef struct calm_qformat_suffix {
    const char *suffix;
    calm_qformat_part part;
} calm_qformat_suffix;

/* The expected form of a tensor of a quantized linear. */
typedef struct calm_qformat_tensor {
    calm_qformat_part part;
    const char *suffix;    /* "weight_packed" of "m.weight_packed"           */
    calm_dtype dtype;      /* CALM_N_DTYPES: BF16, F16 or F32                */
    int n_dims;
    size_t shape[2];
    bool optional;         /* it may be absent                               */
} calm_qformat_tensor;

/* A weight [out, in] in the form that all formats share: (code - zero) * scale, or code * scale + bias.  G groups. */
typedef struct calm_qformat_values {
    size_t out, in, group, n_groups;
    uint8_t *codes;        /* [out, in]                                          */
    uint8_t *zeros;        /* [out, G], initialised to 2^(bits-1)                 */
    float *scales;         /* [out, G]                                           */
    float *biases;         /* [out, G] instead of zeros; NULL: zeros             */
    uint32_t *group_of;    /* [in] group of each column; NULL: column / group    */
    const calm_levels *levels;    /* values of codes, instead of code - zero; or NULL */
} calm_qformat_values;

typedef struct calm_qformat {
    const char *name;      /* [a-z0-9_]+ : "compressed_tensors" */
    const char *label;     /* name in engines and in quant_method: "compressed-tensors" */
    /* All suffixes of the format's tensors, ended by NULL.  "weight" is also that of a float weight. */
    const calm_qformat_suffix *suffixes;
    const char *entry;     /* member of config.json that describes the format; NULL: quantization_config */
    /* Is this config.json of the format?  Does not check the entry's content.  NULL: yes if quant_method is `label`. */
    bool (*detect)(const calm_json *config);
    /* Is it an entry of the format that lacks the method?  NULL: never. */
    bool (*resembles)(const calm_json *config);
    size_t bytes;          /* size of `self` below */
    /* Reads the entry into `self`, which is zeroed before; arrays and names go to `arena`, which lives as long. */
    calm_status (*read)(calm_ctx *ctx, const char *path, const calm_json *entry, calm_arena *arena, void *self);
    /* Frees memory of `self` outside of the arena, also when `read` has failed.  NULL: there is none. */
    void (*release)(void *self);
    /* Finds the scheme of a module; *quantized false: it is float.  `set`: the checkpoint's tensors, or NULL. */
    calm_status (*find)(calm_ctx *ctx, const void *self, const calm_safetensors *set, const char *module,
                        bool *quantized, calm_qformat_scheme *out);
    /* Gives the width of a block of the Hadamard matrix that multiplies a module's input of `in` channels; 0: none.
     * NULL: the format has no such transforms. */
    calm_status (*hadamard)(calm_ctx *ctx, const void *self, const char *module, size_t in, size_t *width);
    /* Lists the tensors of a linear with this scheme; *n at most CALM_N_QFORMAT_PARTS. */
    calm_status (*tensors)(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                           calm_qformat_tensor *list, size_t *n);
    /* By default codes are [out, in], packed along the inputs, each row in whole words of 32 bits.  Exceptions: */
    bool inputs_first;     /* codes are [in, out]                            */
    bool packs_outputs;    /* codes are packed along the outputs             */
    bool plain_bytes;      /* codes of dtype I8 are not packed               */
    /* For an expert's module: gives the name, in ctx->scratch, of the module with the tensors [E, ...] of all experts,
     * and the expert's number.  *name NULL: `module` is no expert's.  NULL: experts never share a module. */
    calm_status (*stack)(calm_ctx *ctx, const char *module, char **name, size_t *expert);
    /* Fills codes, zeros (or biases) and scales from tensors whose dtype and shape are checked; `found` by part, NULL:
     * absent.  Allocates in ctx->scratch. */
    calm_status (*unpack)(calm_ctx *ctx, const char *module, const calm_qformat_scheme *scheme,
                          const calm_tensor *const found[CALM_N_QFORMAT_PARTS], calm_qformat_values *values);
} calm_qformat;

typedef struct calm_qformat_reader calm_qformat_reader;

/* Returns the *n formats in the order of qformats.def. */
const calm_qformat *const *calm_qformats(size_t *n);

/* Is this config.json of the format? */
bool calm_qformat_detect(const calm_qformat *format, const calm_json *config);

/* Finds the part that a suffix denotes, in `format` or with NULL in any format; false: unknown suffix. */
bool calm_qformat_suffix_part(const calm_qformat *format, const char *suffix, calm_qformat_part *part);

/* Computes the rows and columns of a module's weight from its codes (a matrix, or one for each expert) and from the
 * tensor that states the shape; 0: unknown.  Does not check that the module's other tensors match. */
calm_status calm_qformat_shape(calm_ctx *ctx, const calm_qformat *format, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, const calm_tensor *codes,
                               size_t *out, size_t *in);

/* Reads the quantization entry of `config`, the config.json at `path`; *out NULL: none, the checkpoint is float.  Free
 * with calm_qformat_close.  CALM_EUNSUPPORTED: an unknown method, or a scheme that calm cannot compute.
 * CALM_EFORMAT. */
calm_status calm_qformat_open(calm_ctx *ctx, const char *path, const calm_json *config, calm_qformat_reader **out);
void calm_qformat_close(calm_qformat_reader *reader);

/* Returns the format of an open reader. */
const calm_qformat *calm_qformat_of(const calm_qformat_reader *reader);

/* Finds the scheme of a module; *quantized false: it is float.  `set`: the checkpoint's tensors. */
calm_status calm_qformat_find(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, bool *quantized, calm_qformat_scheme *out);

/* Gives the width of a block of the normalised Hadamard matrix (tensor/rotation.h) that multiplies the input, of `in`
 * channels, of a module, quantized or float, before it is quantized; 0: none.  CALM_EUNSUPPORTED: the block is the
 * whole input, and `in` is no power of two. */
calm_status calm_qformat_hadamard(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module, size_t in,
                                  size_t *width);

/* Returns the length of MODULE in MODULE.ENTRY_input.weight, by which compressed-tensors also stores the matrix that
 * multiplies a module's input; 0: another name. */
size_t calm_qformat_matrix_module(const char *name);

/* Lists the *n tensors of a quantized module [out, in]: list [CALM_N_QFORMAT_PARTS]. */
calm_status calm_qformat_tensors(calm_ctx *ctx, const calm_qformat_reader *reader, const char *module,
                                 const calm_qformat_scheme *scheme, size_t out, size_t in, calm_qformat_tensor *list,
                                 size_t *n);

/* Checks presence, dtype and shape of a quantized module's tensors. */
calm_status calm_qformat_check(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                               const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in);

/* Computes w [out, in], the float32 weight of a quantized module; or, where `weight` (may be NULL) qualifies as an
 * integer linear (calm_int_linear_take), packs its codes into the memory of w.  CALM_ENUMERIC: a scale or bias is not
 * finite. */
calm_status calm_qformat_load(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                              const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in, float *w,
                              calm_weight *weight);

/* Computes rows first .. first + n - 1 of the weight; where the format packs rows together, it reads all of them. */
calm_status calm_qformat_load_rows(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                   const char *module, const calm_qformat_scheme *scheme, size_t out, size_t in,
                                   size_t first, size_t n, float *w);

/* Converts to a calm_scheme; `scales`: dtype of the tensor of scales. */
calm_scheme calm_qformat_as_scheme(const calm_qformat_scheme *scheme, calm_dtype scales);

/* Does the file define the rounding rule of activations? */
bool calm_qformat_says_rule(const calm_qformat_scheme *scheme);

/* Reads the global divisor of the scales of a module's quantized input, or its static scale, where the scheme has
 * either; else gives 0. */
calm_status calm_qformat_act_global(calm_ctx *ctx, const calm_qformat_reader *reader, const calm_safetensors *set,
                                    const char *module, const calm_qformat_scheme *scheme, float *out);

/* ---- for qformat_<format>.c ---- */

/* Copies the 32-bit words of a mapped tensor, which may have any alignment, into ctx->scratch. */
calm_status calm_qformat_words(calm_ctx *ctx, const calm_tensor *tensor, uint32_t **out);

/* Converts scales or biases to out [rows, cols]; with `transposed` the tensor is [cols, rows]. */
calm_status calm_qformat_floats(calm_ctx *ctx, const calm_tensor *tensor, bool transposed, size_t rows, size_t cols,
                                float *out);

/* Order of codes in 32-bit words (pack.h): along a row, along a column, or AWQ's order. */
typedef enum calm_qformat_packing {
    CALM_QFORMAT_BY_ROWS,
    CALM_QFORMAT_BY_COLUMNS,
    CALM_QFORMAT_AWQ_ORDER
} calm_qformat_packing;

/* Unpacks the codes of a tensor to out [rows, cols]; with `transposed` the tensor holds [cols, rows]. */
calm_status calm_qformat_codes(calm_ctx *ctx, const calm_tensor *tensor, calm_qformat_packing packing, int bits,
                               bool transposed, size_t rows, size_t cols, uint8_t *out);

/* Reads "bits" of an entry, one of 2, 3, 4, 8; `fallback` where absent, or with 0 for it a failure. */
calm_status calm_qformat_bits(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key, int fallback,
                              int *out);

/* Reads "group_size", 1 to 2^24; -1 and null mean one group per row and give 0.  `fallback` where absent. */
calm_status calm_qformat_group(calm_ctx *ctx, const char *path, const calm_json *entry, const char *key,
                               size_t fallback, size_t *out);
