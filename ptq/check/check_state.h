/* What the files of the check share: a checkpoint as far as it could be read, and the stages that read it. */
#pragma once

#include "ptq/check/check_report.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/model/kind.h"
#include "ptq/model/qformat.h"
#include "ptq/model/loose.h"
#include "ptq/plan/engines.h"

/* A tensor "model.layers.0.mlp.up_proj.weight_scale" as module and suffix. */
typedef struct calm_check_member {
    const char *module, *suffix;
    const calm_tensor *tensor;
} calm_check_member;

typedef struct calm_check_module {
    const char *name;
    size_t first, n; /* its members                                                            */
    size_t out, in;  /* of its weight; 0: not known                                             */
    size_t experts;  /* matrices that its tensors [E, ...] hold; 0: one, without that dimension */
    bool linear;     /* engines make it a linear: a matrix, or quantized tensors; no embedding */
    bool transform;  /* a rotation that compressed-tensors applies next to a linear: no layer of the model   */
    bool stored;     /* has tensors of a quantized weight                                       */
    bool in_layout;  /* the architecture has it                                                 */
    bool quantized;  /* the configuration says so: `scheme`                                     */
    bool unread;     /* the configuration says so, by a scheme that calm does not read          */
    bool reordered;  /* its columns have a group index                                          */
    calm_qformat_scheme scheme;
} calm_check_module;

/* What is done with a format: calm_check_format_<name> for each of qformats.def. */
typedef struct calm_check_format {
    /* Check the quantization entry and fill in quantized and scheme of all modules. */
    calm_status (*entry)(calm_checking *c);
    /* Check small tensors of a quantized module whose shape is known.  NULL: there is nothing to check. */
    calm_status (*values)(calm_checking *c, const calm_check_module *module);
} calm_check_format;

struct calm_checking {
    calm_ctx *ctx;
    calm_check_engine asked;
    const calm_engine *engine; /* the same, with its limits */
    calm_check_report *report;
    size_t capacity; /* of report->findings */
    const char *path, *config_path;
    const calm_words *accept_keys; /* of config.json; NULL: none */
    calm_json *config;      /* NULL: not read */
    const calm_json *entry; /* its quantization_config; NULL: there is none */
    calm_safetensors *set;
    calm_check_member *members; /* [n_members] by module, then suffix */
    size_t n_members;
    calm_check_module *modules; /* [n_modules] by name */
    size_t n_modules;
    bool model_known; /* config.json was understood: */
    calm_config model;
    const char *prefix;
    calm_layout layout;
    const char *published;              /* what its weights are that are read as floats; NULL: nothing of that */
    const calm_qformat *format;         /* NULL: float, or not known */
    const calm_check_format *by_format; /* NULL: as `format` */
    calm_qformat_reader *reader;        /* NULL: its entry could not be read */
    bool unread;                        /* quantized in a way that calm does not read: linears are not compared */
    bool partial;                       /* files or tensors could not be read, so missing ones are no finding */
    bool resolved;                      /* quantized and scheme of the modules are filled in */
};

/* By name; NULL when absent. */
calm_check_module *calm_check_find_module(const calm_checking *c, const char *name);
const calm_tensor *calm_check_part(const calm_checking *c, const calm_check_module *module, const char *suffix);

/* Do engines fuse it with others, by its name: q, k, v; gate, up; experts? */
bool calm_check_is_fused(const char *module);

/* Is it a part that engines fuse into one linear, or that linear, by its name: no expert's down? */
bool calm_check_is_fused_part(const char *module);

/* A tensor that a block has next to its linears: "MODULE.weight", or CALM_CHECK_PLAIN by its own name. */
typedef struct calm_check_expected {
    enum { CALM_CHECK_NORM, CALM_CHECK_PLAIN, CALM_CHECK_ROUTER, CALM_CHECK_SHARED_GATE, CALM_CHECK_FLOAT } kind;
    const char *part;  /* "input_layernorm": its module within the block; its tensor: "self_attn.sinks" */
    size_t rows, cols; /* of a norm: its width, 0                        */
    int n_dims;        /* CALM_CHECK_PLAIN                               */
    size_t shape[CALM_PLAIN_DIMS];
} calm_check_expected;

/* Most of a block. */
#define CALM_CHECK_EXPECTED (CALM_N_SUBLAYERS * CALM_N_NORM_PLACES + CALM_N_PLAINS + CALM_LOOSE_PARTS + 2)

/* What block `block` has of these, norms first; their number. */
size_t calm_check_block(const calm_config *config, size_t block, calm_check_expected list[CALM_CHECK_EXPECTED]);

/* *out: the first of the parts that engines fuse a module with (q of q, k, v); NULL: it is that, or there is none. */
calm_status calm_check_first_part(calm_checking *c, const calm_check_module *module, const calm_check_module **out);

/* Does it hold an expert of a mixture, or all of a block? */
bool calm_check_is_expert(const calm_check_module *module);

/* Output rows of the linear that engines make of a module: its own and those of the parts that are fused with it; *part
 * as calm_engine_linear has it. */
calm_status calm_check_fused_rows(calm_checking *c, const calm_check_module *module, size_t *out, size_t *part);

/* ---- the stages, each in its file ---- */

/* Shards, index and the modules of their tensors. */
calm_status calm_check_files(calm_checking *c);

/* Members and modules of the set, again where experts of one tensor have become tensors each. */
calm_status calm_check_list_modules(calm_checking *c);
/* Put floats in place of what was published as FP8 or MXFP4 (ptq/model/published.h); half of a pair is a finding. */
calm_status calm_check_published(calm_checking *c);
/* Scales and codes of these, streamed, and how many there are. */
calm_status calm_check_sources(calm_checking *c);
/* config.json against the tensors, before anything is known of quantization. */
calm_status calm_check_model(calm_checking *c);
/* Presence and shapes of what stays float; after the configuration is resolved. */
calm_status calm_check_floats(calm_checking *c);
calm_status calm_check_tokenizer(calm_checking *c);
/* What is done with a format, which is one of calm_qformats. */
const calm_check_format *calm_check_format_of(const calm_qformat *format);
/* Tensors of quantized modules against their schemes. */
calm_status calm_check_parts(calm_checking *c);
/* The scheme that the configuration gives to a fused module `name`: *hit and *scheme.  *scheme is that of the parts
 * when it is called; of several schemes that match, one that differs from it is returned first. */
typedef calm_status calm_check_fused_fn(calm_checking *c, const void *user, const char *name, bool *hit,
                                        calm_qformat_scheme *scheme);
/* Findings about modules that engines fuse.  A fused name with another scheme than its parts is a finding of `rule`;
 * `fused` NULL: names of fused modules are not compared. */
calm_status calm_check_fusion(calm_checking *c, calm_check_rule rule, calm_check_fused_fn *fused, const void *user);
/* The part of config.json that describes the text model: of a wrapper its text_config, else the whole file. */
const calm_json *calm_check_text_config(const calm_checking *c);
/* Findings about keys of config.json that the requested engine's class needs. */
calm_status calm_check_config_keys(calm_checking *c);
/* Findings about what the kernels of the requested engine take. */
calm_status calm_check_kernels(calm_checking *c);
/* Scheme and scales of a quantized KV cache. */
calm_status calm_check_cache(calm_checking *c);
/* Scales, codes and floats, streamed. */
calm_status calm_check_values(calm_checking *c);
/* A whole GGUF file. */
calm_status calm_check_gguf(calm_checking *c);

/* ---- for formats ---- */

#define CALM_CHECK_MATCHES ((size_t)2000000) /* modules times rules: seconds of matching */

/* Open c->reader.  A failure is a finding of `rule`, or of MD013 where `elsewhere` says that engines read what calm
 * does not: another layout, other widths. */
calm_status calm_check_open(calm_checking *c, calm_check_rule rule, bool (*elsewhere)(const calm_checking *c));

/* Fill in the modules where all linears of blocks are quantized but those that the entry leaves out.  A module that the
 * reader refuses is a finding of `rule`. */
calm_status calm_check_resolve(calm_checking *c, calm_check_rule rule);

/* Bits behind the codes of every row of words [rows, words]; behind those of the last row [rows, cols], packed along
 * rows. */
calm_status calm_check_padding(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t words,
                               size_t used_bits);
calm_status calm_check_last_row(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t cols,
                                size_t used_bits);
