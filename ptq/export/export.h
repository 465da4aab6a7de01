/* Exporters: one plan, written as the directory that an engine loads.
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
    const char *serve;          /* the command that runs its files, before their path; NULL: no engine does */
    bool wants_importance;      /* options->importance must be there */
    bool transforms;            /* its files can ask for a Hadamard transform of inputs */
    bool caches;                /* they can say how keys and values are kept: options->kv */
    const char *file;           /* the one file it writes; NULL: a checkpoint, config.json and safetensors */
    bool strict;                /* its files hold what the model reads and no other tensor (tensor_use.h)       */
    const char *rtn;            /* named chain that rounds as its own tools do: zero points of few bits; NULL: rtn */
    unsigned families;          /* rows of schemes.def that it holds next to the integers: bits 1 << CALM_FAMILY_X */
    calm_tie tie;               /* jobs that share a scheme in its files, for every reader */
    /* The scheme of a table where none is asked for, of a plan whose every job is quantized, most weights at `most`;
     * bits 0: float.  NULL: always float. */
    calm_scheme (*outer)(calm_outer which, const calm_scheme *most, bool tied);
    bool orders;                /* its files say the group of each input: schemes with act_order                */
    bool parts_apart;           /* its readers take q, k and v as three matrices, which need not share a type */
    bool head_alone;            /* it holds no quantized embedding, and a head where that is its own linear */
    /* Refuse a table's scheme by name; NULL: the format has no quantized tables. */
    calm_status (*check_outer)(calm_ctx *ctx, const calm_scheme *scheme, const char *module, size_t in);
    /* Schemes of tables, "q6_k,w8a16_g32", that a size of the file is spent on, the usual one first; NULL: they stay
     * float unless one is asked for. */
    const char *outer_pool;
    /* Why no job can have this scheme, whatever the model, "the format has weights of 4 bits alone"; NULL: jobs can.
     * NULL itself: of all that `families` and `orders` leave. */
    const char *(*refuses)(const calm_scheme *scheme);
    /* Refuse, by name, what else the format cannot express; warn in the log where readers differ. */
    calm_status (*check)(calm_ctx *ctx, const calm_export_input *input);
    const calm_export_form *form; /* of a safetensors checkpoint; NULL: `write` writes the file */
    calm_status (*write)(calm_ctx *ctx, const calm_export_input *input, const char *dir);
    /* Parts of the file that `write` writes; NULL where it has no weights. */
    calm_status (*parts)(calm_ctx *ctx, const calm_export_input *input, calm_file_parts *out);
    /* Bytes that `write` holds at most, as calm_exporter_write_bytes; NULL: names and numbers alone. */
    size_t (*write_bytes)(const calm_model *model, const calm_scheme *scheme, unsigned extras);
} calm_exporter;

/* The exporters in the order of export.def; *n their number. */
const calm_exporter *const *calm_exporters(size_t *n);

/* Find by name, written with - or _.  CALM_EARG with the nearest name, and all of them. */
calm_status calm_exporter_find(calm_ctx *ctx, const char *name, const calm_exporter **out);

/* Why no job of this scheme can be in the format's files, whatever the model; NULL: jobs can. */
const char *calm_exporter_refuses(const calm_exporter *exporter, const calm_scheme *scheme);

/* Refuse, by name, what the format cannot express: schemes of jobs, then the exporter's own `check`.
 * CALM_EUNSUPPORTED, with the formats that hold such a scheme. */
calm_status calm_exporter_check(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input);

/* For the end of a message: "; formats that hold it: compressed-tensors, gptq", those with weights; "" for none. */
calm_status calm_exporter_holding(calm_ctx *ctx, const calm_scheme *scheme, char **out);

/* Write the checkpoint's own files into the existing empty directory `dir`. */
calm_status calm_exporter_write(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                const char *dir);

/* What the weights of a plan take in the files of a format - the one file, or all files of safetensors, without
 * config.json and tokenizer - in ctx->out; exact up to the headers, whose offsets are taken to be as long as `most`.
 * CALM_EUNSUPPORTED: the format holds no weights; else as `check`. */
calm_status calm_exporter_parts(calm_ctx *ctx, const calm_exporter *exporter, const calm_export_input *input,
                                size_t most, calm_file_parts *out);

/* Bytes that this holds at most, ctx->out and ctx->scratch together, of a plan whose jobs are all quantized to
 * `scheme`, with input scales or without. */
size_t calm_exporter_write_bytes(const calm_exporter *exporter, const calm_model *model, const calm_scheme *scheme,
                                 unsigned extras);

/* Writes one block, or with -1 the tensors outside the blocks. */
typedef calm_status calm_export_block_fn(void *user, calm_ctx *ctx, long block);

/* Call `write` with -1 and then with each block.  Each call has a separate empty arena as ctx->out, so that one
 * block is in memory at a time; input->tick is called after each block. */
calm_status calm_export_each_block(calm_ctx *ctx, const calm_export_input *input, calm_export_block_fn *write,
                                   void *user);

/* May the folder `target` be written by a command with these inputs (files and folders)?  Fails as calm_output_folder.
 */
calm_status calm_export_destination(calm_ctx *ctx, const char *target, bool force, const calm_words *inputs);

/* A directory that is being written next to its target. */
typedef struct calm_export_place {
    char *temporary;    /* its name, in ctx->out                                             */
    int lock;           /* its descriptor, locked as long as it is written; -1: nothing open */
    bool replaces;      /* the target existed at the start, and the caller may replace it    */
} calm_export_place;

/* Open a fresh temporary directory next to `target`, after removing those of processes that have died.  CALM_EBUSY: too
 * many processes with the same id, in several containers, are writing there. */
calm_status calm_export_begin(calm_ctx *ctx, const char *target, calm_export_place *out);

/* Move it to `target` when it is complete, with the list of its files (calm_output_list): a target that exists is
 * exchanged in one step where the file system can.  CALM_EARG: somebody has put their own files there since.
 * CALM_EEXIST: there was no target at the start, and another process has written one since.  After a failure the
 * place is still to be abandoned. */
calm_status calm_export_commit(calm_ctx *ctx, calm_export_place *place, const char *target);

/* Remove it after a failure, which stays the one that ctx reports. */
void calm_export_abandon(calm_ctx *ctx, calm_export_place *place);
