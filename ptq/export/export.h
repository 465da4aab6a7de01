/* Exporters: write a plan as the directory that an inference engine loads.
 *
 * An exporter is one file export_<format>.c, which ends with its descriptor, and one line in export.def.
 * Directories are written under a temporary name next to the target and renamed at the end. */
#pragma once

#include "ptq/base/context.h"
#include "ptq/base/option.h"
#include "ptq/export/export_options.h"
#include "ptq/export/file_parts.h"
#include "ptq/export/outer.h"
#include "ptq/plan/plan.h"
#include "ptq/plan/engines.h"
#include "ptq/model/model.h"

typedef struct calm_export_input {
    const calm_model *model;    /* float */
    const calm_plan *plan;
    calm_tick_fn *tick; /* called after each block; may be NULL */
    void *tick_user;
    const calm_export_options *options;    /* NULL: the defaults, all zero */
    const calm_outer_plan *outer;              /* NULL: embedding and head stay float */
} calm_export_input;

typedef struct calm_export_form calm_export_form; /* ptq/export/safetensors_export.h */

typedef struct calm_exporter {
    const char *name; /* [a-z0-9_]+ : "compressed_tensors"; with - on the command line */
    const char *summary;
    const char *serve;          /* the command that runs the files, without their path; NULL: no engine does */
    bool wants_importance;      /* options->importance must be set */
    bool transforms;            /* the files can ask for a Hadamard transform of inputs */
    bool caches;                /* the files can specify a quantized KV cache: options->kv */
    const char *file;           /* the one file it writes; NULL: a checkpoint, config.json and safetensors */
    bool strict;                /* the files hold only tensors that the model reads (tensor_use.h) */
    const char *rtn;            /* named chain that rounds as the format's own tools do: zero points of few bits; NULL:
                                 * rtn */
    unsigned families;          /* families of schemes.def that it holds in addition to integers: bits
                                 * 1 << CALM_FAMILY_X */
    calm_tie tie;               /* jobs that must share a scheme in the files, for every reader */
    /* Returns the default scheme of a table, for a plan whose jobs are all quantized, most weights with `most`; bits 0:
     * float.  NULL: always float. */
    calm_scheme (*outer)(calm_outer which, const calm_scheme *most, bool tied);
    bool orders;                /* the files can say the group of each input (schemes with act_order) */
    bool parts_apart;           /* readers load q, k and v as three matrices, which need not share a type */
    bool head_alone;            /* it holds no quantized embedding, and a quantized head only if that is untied */
    /* Refuses a table's scheme, naming `module`; NULL: the format has no quantized tables. */
    calm_status (*check_outer)(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in);
    /* Schemes of tables, "q6_k,w8a16_g32", from which a recipe with a file size chooses, the usual one first; NULL:
     * tables stay float unless the recipe asks for a scheme. */
    const char *outer_pool;
    /* Returns why no job of any model can have this scheme, "the format has weights of 4 bits alone"; NULL: jobs can.
     * No function: jobs can have all schemes that `families` and `orders` allow. */
    const char *(*refuses)(const calm_scheme *scheme);
    /* Refuses, by name, what else the format cannot express; logs a warning where readers differ. */
    calm_status (*check)(calm_ctx *ctx, const calm_export_input *input);
    const calm_export_form *form; /* form of a safetensors checkpoint; NULL: `write` writes the file */
    calm_status (*write)(calm_ctx *ctx, const calm_export_input *input, const char *dir);
    /* Computes the parts of the file that `write` writes; NULL: the file has no weights. */
    calm_status (*parts)(calm_ctx *ctx, const calm_export_input *input, calm_file_parts *out);
    bool more_bits;             /* a group takes more bits in the files than in its scheme, whose tensors in `form` say
                                 * how many (calm_exporter_bits) */
    /* Returns calm_exporter_bits of a format without `form`; NULL: those of the scheme. */
    double (*bits)(const calm_scheme *scheme, size_t out, size_t in);
    /* Returns the peak bytes of `write`, as calm_exporter_write_bytes; NULL: too few to count. */
    size_t (*write_bytes)(const calm_model *model, const calm_scheme *scheme, unsigned extras);
} calm_exporter;

/* Returns the exporters in the order of export.def; *n is their number. */
const calm_exporter *const *calm_exporters(size_t *n);

/* Finds an exporter by its name, written with - or _.  CALM_EARG, with the nearest name and all names: there is none.
 * */
calm_status calm_exporter_find(calm_ctx *ctx, const char *name, const calm_exporter **out);

/* Returns why no job of any model can have this scheme in the format's files; NULL: jobs can. */
const char *calm_exporter_refuses(const calm_exporter *exporter, const calm_scheme *scheme);

/* Refuses, by name, what the format cannot express: schemes of jobs, then what the exporter's `check` refuses.
 * CALM_EUNSUPPORTED, with the formats that hold such a scheme. */
calm_status calm_exporter_check(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input);

/* Returns the bits per weight of an [out, in] matrix in the format's files: codes, and scales and zeros or minima of
 * each group as the format stores them, which may be more than the scheme has (calm_scheme_bits_per_weight). */
double calm_exporter_bits(const calm_exporter *exporter, const calm_scheme *scheme, size_t out, size_t in);

/* Returns the end of a message, "; formats that hold it: compressed-tensors, gptq", with the formats that have weights;
 * "" if there are none. */
calm_status calm_exporter_holding(calm_ctx *ctx, const calm_scheme *scheme, char **out);

/* Writes the checkpoint's files into the existing empty directory `dir`. */
calm_status calm_exporter_write(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                const char *dir);

/* Computes the sizes of a plan's weights in the files of a format (the one file, or all safetensors files, without
 * config.json and tokenizer), in ctx->out.  They are exact except for the headers, whose offsets count with as many
 * digits as `most` has.  CALM_EUNSUPPORTED: the format holds no weights; else as `check`. */
calm_status calm_exporter_parts(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                size_t most, calm_file_parts *out);

/* Returns the peak bytes of calm_exporter_write, ctx->out and ctx->scratch together, for a plan whose jobs all have
 * `scheme`; `extras`: CALM_QJOB_SCALED, CALM_QJOB_BIASED. */
size_t calm_exporter_write_bytes(const calm_exporter *exporter, const calm_model *model, const calm_scheme *scheme,
                                 unsigned extras);

/* Writes one block, or with -1 the tensors outside the blocks. */
typedef calm_status calm_export_block_fn(void *user, calm_ctx *ctx, long block);

/* Calls `write` with -1 and then with each block.  Each call has a separate empty arena as ctx->out, so that memory
 * holds one block at a time; input->tick is called after each block. */
calm_status calm_export_each_block(calm_ctx *ctx, const calm_export_input *input, calm_export_block_fn *write,
                                   void *user);

/* Checks that a command with these inputs (files and folders) may write the folder `target`.  Fails as
 * calm_output_folder. */
calm_status calm_export_destination(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs);

/* A temporary directory that is being written next to its target. */
typedef struct calm_export_place {
    char *temporary;    /* its name, in ctx->out                                             */
    int lock;           /* its descriptor, locked as long as it is written; -1: nothing open */
    bool replaces;      /* the target existed at the start, and the caller may replace it    */
} calm_export_place;

/* Creates an empty temporary directory next to `target`, after removing those of dead processes.  CALM_EBUSY: too many
 * processes with the same id, in several containers, are writing there. */
calm_status calm_export_begin(calm_ctx *ctx, const char *target, calm_export_place *out);

/* Moves the complete directory to `target`, with the list of its files (calm_output_list); exchanges an existing target
 * in one step if the file system can.  CALM_EARG: somebody has put other files there since.  CALM_EEXIST: there was no
 * target at the start, and another process has written one since.  After a failure the caller still calls
 * calm_export_abandon. */
calm_status calm_export_commit(calm_ctx *ctx, calm_export_place *place, const char *target);

/* Removes the temporary directory after a failure; ctx keeps reporting that failure. */
void calm_export_abandon(calm_ctx *ctx, calm_export_place *place);
