/* The state of a check: a checkpoint as far as it could be read, and the stages that read it. */
#pragma once

#include "ptq/check/check_report.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/arch/kind.h"
#include "ptq/weights/qformat.h"
#include "ptq/model/extra_tensors.h"
#include "ptq/plan/engines.h"

/* A tensor "model.layers.0.mlp.up_proj.weight_scale", divided into module and suffix. */
typedef struct calm_check_member {
    const char *module, *suffix;
    const calm_tensor *tensor;
} calm_check_member;

typedef struct calm_check_module {
    const char *name;
    size_t first, n; /* its tensors: members first .. first + n - 1 */
    size_t out, in;  /* shape of its weight; 0: unknown */
    size_t experts;  /* E if its tensors are [E, ...]; 0: no such dimension */
    bool linear;     /* engines load it as a linear: it has a matrix or quantized tensors and is no embedding */
    bool transform;  /* a rotation that compressed-tensors applies at a linear: no layer of the model */
    bool stored;     /* has tensors of a quantized weight */
    bool in_layout;  /* the architecture has this module */
    bool quantized;  /* the configuration quantizes it by `scheme` */
    bool unread;     /* the configuration quantizes it by a scheme that calm does not read */
    bool reordered;  /* its columns have a group index (activation order) */
    calm_qformat_scheme scheme;
} calm_check_module;

/* The checks of one format: calm_check_format_<name> for each format of qformats.def. */
typedef struct calm_check_format {
    /* Checks the quantization entry of config.json; fills `quantized` and `scheme` of all modules. */
    calm_status (*entry)(calm_checking *c);
    /* Checks small tensors of a quantized module whose shape is known.  NULL: the format has no such check. */
    calm_status (*values)(calm_checking *c, const calm_check_module *module);
} calm_check_format;

struct calm_checking {
    calm_ctx *ctx;
    calm_check_engine asked;       /* the requested engine */
    const calm_engine *engine;     /* its limits */
    calm_check_report *report;
    size_t capacity;               /* allocated length of report->findings */
    const char *path, *config_path;
    const calm_words *accept_keys; /* keys of config.json that may be unknown; NULL: none */
    calm_json *config;             /* config.json; NULL: could not be read */
    const calm_json *entry;        /* its quantization_config; NULL: there is none */
    calm_safetensors *set;
    calm_check_member *members; /* [n_members] sorted by module, then by suffix */
    size_t n_members;
    calm_check_module *modules; /* [n_modules] sorted by name */
    size_t n_modules;
    bool model_known;           /* config.json was understood: the next three fields are valid */
    calm_config model;
    const char *prefix;
    calm_layout layout;
    const char *published;              /* format of published small floats that calm reads as floats; NULL: none */
    const calm_qformat *format;         /* NULL: float or unknown */
    const calm_check_format *by_format; /* its checks; NULL: float or unknown */
    calm_qformat_reader *reader;        /* NULL: the entry could not be read */
    bool unread;                        /* quantized in a way that calm does not read: linears are not compared */
    bool partial;                       /* files or tensors could not be read: missing ones are no findings */
    bool resolved;                      /* `quantized` and `scheme` of the modules are filled */
};

/* Return the module of that name, and a module's tensor with that suffix; NULL: there is none. */
calm_check_module *calm_check_find_module(const calm_checking *c, const char *name);
const calm_tensor *calm_check_part(const calm_checking *c, const calm_check_module *module, const char *suffix);

/* Returns true if, by its name, engines fuse the module with others (q, k, v; gate, up; experts). */
bool calm_check_is_fused(const char *module);

/* Returns true if, by its name, the module is fused with others or is the fused linear; false for an expert's down. */
bool calm_check_is_fused_part(const char *module);

/* A float tensor of a block next to its linears: "MODULE.weight", or for CALM_CHECK_PLAIN the tensor `part`. */
typedef struct calm_check_expected {
    enum { CALM_CHECK_NORM, CALM_CHECK_PLAIN, CALM_CHECK_ROUTER, CALM_CHECK_SHARED_GATE, CALM_CHECK_FLOAT } kind;
    const char *part;  /* module in the block, "input_layernorm"; CALM_CHECK_PLAIN: the tensor, "self_attn.sinks" */
    size_t rows, cols; /* shape; a norm has cols 0 */
    int n_dims;        /* CALM_CHECK_PLAIN: number of dimensions of `shape` */
    size_t shape[CALM_PLAIN_DIMS];
} calm_check_expected;

/* The most such tensors of a block. */
#define CALM_CHECK_EXPECTED (CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + CALM_N_PLAINS + CALM_EXTRA_TENSORS + 2)

/* Lists these tensors of a block, norms first, and returns their number. */
size_t calm_check_block(const calm_config *config, size_t block, calm_check_expected list[CALM_CHECK_EXPECTED]);

/* Sets *out to the first of the parts that engines fuse a module with (q of q, k, v); NULL: the module is that part, or
 * is not fused. */
calm_status calm_check_first_part(calm_checking *c, const calm_check_module *module, const calm_check_module **out);

/* Returns true if the module is an expert's linear, or holds the linears of all experts of a block. */
bool calm_check_is_expert(const calm_check_module *module);

/* Computes the output rows of the linear that engines make of a module, with the parts that they fuse with the module;
 * *part: calm_engine_linear.part of that linear. */
calm_status calm_check_fused_rows(calm_checking *c, const calm_check_module *module, size_t *out, size_t *part);

/* ---- the stages ---- */

/* Reads shards and index, and lists the modules of their tensors. */
calm_status calm_check_files(calm_checking *c);

/* Lists members and modules of the set; called again after a tensor of experts was divided into one per expert. */
calm_status calm_check_list_modules(calm_checking *c);
/* Replaces weights that were published as FP8 or MXFP4 (ptq/weights/published.h) by floats; an incomplete pair of
 * weight and scale is a finding. */
calm_status calm_check_published(calm_checking *c);
/* Checks scales and codes of these weights, in pieces, and counts them. */
calm_status calm_check_sources(calm_checking *c);
/* Compares config.json with the tensors, before quantization is considered. */
calm_status calm_check_model(calm_checking *c);
/* Checks presence and shapes of float tensors; after the configuration is resolved. */
calm_status calm_check_floats(calm_checking *c);
/* Checks that the tokenizer's files are there and fit the model. */
calm_status calm_check_tokenizer(calm_checking *c);
/* Returns the checks of a format of calm_qformats. */
const calm_check_format *calm_check_format_of(const calm_qformat *format);
/* Compares the tensors of quantized modules with their schemes. */
calm_status calm_check_parts(calm_checking *c);
/* Finds the scheme that the configuration gives to a fused module `name`.  *hit: it gives one.  On entry *scheme is the
 * scheme of the parts; if several schemes match, *scheme becomes one that differs from it. */
typedef calm_status calm_check_fused_fn(calm_checking *c, const void *user, const char *name, bool *hit,
                                        calm_qformat_scheme *scheme);
/* Reports findings about modules that engines fuse.  A fused module with another scheme than its parts is a finding of
 * `rule`; fused NULL: this is not compared. */
calm_status calm_check_fusion(calm_checking *c, calm_check_rule rule, calm_check_fused_fn *fused, const void *user);
/* Returns the part of config.json that describes the text model: text_config of a wrapper, else the whole object. */
const calm_json *calm_check_text_config(const calm_checking *c);
/* Reports keys of config.json that the requested engine's class needs and that are missing. */
calm_status calm_check_config_keys(calm_checking *c);
/* Reports modules that the kernels of the requested engine cannot run. */
calm_status calm_check_kernels(calm_checking *c);
/* Checks scheme and scales of a quantized KV cache. */
calm_status calm_check_cache(calm_checking *c);
/* Checks values of scales, codes and floats, in pieces. */
calm_status calm_check_values(calm_checking *c);
/* Checks a whole GGUF file. */
calm_status calm_check_gguf(calm_checking *c);

/* ---- for the checks of formats ---- */

#define CALM_CHECK_MATCHES ((size_t)2000000) /* the most modules times rules: a few seconds of matching */

/* Opens c->reader.  A failure is a finding of `rule`, or of MD013 if elsewhere() says that engines read this and calm
 * does not: another layout, other widths. */
calm_status calm_check_open(calm_checking *c, calm_check_rule rule, bool (*elsewhere)(const calm_checking *c));

/* Fills the modules of a format in which all linears of blocks are quantized except those that the entry lists.  A
 * module that the reader refuses is a finding of `rule`. */
calm_status calm_check_resolve(calm_checking *c, calm_check_rule rule);

/* Check that unused bits are 0: _padding, the bits after the codes in every row of words [rows, words]; _last_row,
 * those in the last row of a tensor [rows, cols] that is packed along rows. */
calm_status calm_check_padding(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t words,
                               size_t used_bits);
calm_status calm_check_last_row(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t cols,
                                size_t used_bits);
