/* Divides the blocks among the ranks, and tells all ranks what the store has.
 *
 * Only rank 0 has the store, so the other ranks get the result of its survey as flags and rows.  They put the rows into
 * a store in memory, where the code that computes a block finds them. */
#include "ptq/ranks/ranks.h"

#include <gnu/libc-version.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "ptq/state/work.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/linalg.h"

/* ---- before any work ---- */

/* Returns the recipe as text, in ctx->scratch, to find ranks with other flags or files. */
static calm_status recipe_digest(calm_ctx *ctx, const calm_recipe *recipe, char digest[CALM_SHA256_HEX])
{
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_TEXT(text);
    json = calm_recipe_json(recipe);
    CALM_TRY(calm_json_write(ctx, json, 0, &text));
    return calm_sha256_bytes(ctx, text.data, text.length, digest);
}

/* Finds out whether all ranks see the output's folder: they then share the evaluation of the written files, which
 * otherwise rank 0 does alone. */
static calm_status look_at_output(calm_ctx *ctx, calm_run *p)
{
    char *folder;
    if (!p->in.recipe->output)
        return CALM_OK;
    CALM_TRY(calm_path_parent(ctx, p->in.recipe->output, &folder));
    p->ranks->output_shared = calm_cluster_probe(ctx, p->cluster, folder) == CALM_OK;
    if (!p->ranks->output_shared && calm_cluster_rank(p->cluster) == 0)
        calm_log(ctx, CALM_LOG_INFO, "%s; rank 0 alone evaluates what is written", ctx->message);
    calm_ctx_clear_failure(ctx);
    return calm_cluster_agree_status(ctx, p->cluster);
}

calm_status calm_division_check(calm_ctx *ctx, calm_run *p)
{
    char program[CALM_SHA256_HEX], recipe[CALM_SHA256_HEX], *folder;
    /* If one rank cannot read the model, all ranks end here. */
    CALM_TRY(calm_cluster_agree_status(ctx, p->cluster));
    if (!p->cluster)
        return CALM_OK;
    calm_cluster_note_cores(ctx, p->cluster);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(calm_sha256_file(ctx, "/proc/self/exe", program));
    CALM_TRY(recipe_digest(ctx, p->in.recipe, recipe));
    const char *products = p->in.recipe->operands == CALM_OPERANDS_F32 ? "none" : calm_bf16_instructions();
    /* In this order, because the message names the first difference, which explains later ones. */
    const calm_cluster_fact facts[] = {{"program", program}, {"C library", gnu_get_libc_version()},
                                       {"OpenBLAS", calm_linalg_release()},
                                       {"CPU kernels", calm_linalg_kernels()},
                                       {"products of bfloat16", products}, {"recipe", recipe},
                                       {"model", p->model_key}, {"calibration", p->calib_key}};
    CALM_TRY(calm_cluster_agree(ctx, p->cluster, facts, sizeof facts / sizeof *facts));
    CALM_TRY(calm_path_parent(ctx, p->in.recipe->store, &folder));
    CALM_TRY(calm_cluster_probe(ctx, p->cluster, folder));
    return look_at_output(ctx, p);
}

calm_status calm_division_open_store(calm_ctx *ctx, calm_run *p)
{
    /* Waits for another writer without limit, because a run takes hours and a second one may be queued. */
    calm_store_how how = {.mode = CALM_STORE_WRITE, .command = p->command, .wait_seconds = -1};
    if (calm_cluster_rank(p->cluster) != 0) {
        p->ranks->relay = calm_relay_to_rank_0(p);
        how = (calm_store_how){.mode = CALM_STORE_RELAY, .relay = &p->ranks->relay};
    }
    CALM_TRY(calm_make_parent(ctx, p->in.recipe->store));
    return calm_store_open(ctx, p->in.recipe->store, &how, &p->in.store);
}

/* ---- division ---- */

/* Returns the operations to compute the candidates of a block that the store lacks. */
static double cost_of(const calm_run *p, const calm_missing *missing, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    const calm_run_work all = calm_run_work_of_block(&p->in, block);
    const size_t begin = layout->block_begin[block], end = layout->block_begin[block + 1];
    size_t todo = 0;
    if (!missing->any[block])
        return all.forward;
    for (size_t job = begin; job < end; job++)
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
            todo += calm_candidate_at(&p->in, job, entry)->todo;
    return all.forward + (calm_run_work_cost(&all) - all.forward) * (double)todo /
                             (double)((end - begin) * p->in.recipe->n_pool);
}

static calm_status divide(calm_ctx *ctx, const calm_run *p, calm_missing *missing)
{
    const int ranks = calm_cluster_ranks(p->cluster);
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    calm_deal_block *blocks;
    size_t n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, missing->owner, n_blocks));
    CALM_TRY(CALM_NEW(ctx, ctx->out, blocks, n_blocks));
    for (size_t b = 0; b < missing->end; b++) {
        blocks[b] = (calm_deal_block){missing->any[b], cost_of(p, missing, b)};
        n += missing->any[b];
    }
    /* The input of a block depends on the chosen blocks before, so blocks cannot be divided. */
    if (p->in.recipe->prefix == CALM_PREFIX_FLOAT)
        CALM_TRY(calm_assign_blocks(ctx, blocks, missing->end, (size_t)ranks, missing->owner));
    if (calm_cluster_rank(p->cluster) != 0 || !n)
        return CALM_OK;
    if (p->in.recipe->prefix != CALM_PREFIX_FLOAT)
        calm_log(ctx, CALM_LOG_WARNING,
                 "with `calibration.prefix` %s each block needs what the one before became: rank 0 computes all of "
                 "them, %d other ranks wait",
                 p->in.recipe->prefix == CALM_PREFIX_QUANTIZED ? "quantized" : "asymmetric", ranks - 1);
    else if (n < (size_t)ranks)
        calm_log(ctx, CALM_LOG_WARNING, "%d ranks for %zu blocks: %zu of the ranks have nothing to compute", ranks, n,
                 (size_t)ranks - n);
    else
        calm_log(ctx, CALM_LOG_INFO, "%zu blocks are divided among %d ranks", n, ranks);
    return CALM_OK;
}

bool calm_division_mine(const calm_run *p, const calm_missing *missing, size_t block)
{
    return !missing->owner || missing->owner[block] == calm_cluster_rank(p->cluster);
}

/* ---- one survey for all ---- */

/* The result of the survey, without rows. */
typedef struct found {
    uint64_t n_candidates, end, outside;
} found;

#define TODO    1
#define SKIPPED 2
#define DROPPED 4

/* On rank 0, writes the message: blocks, then flags of candidates, then the rows of stored candidates. */
static calm_status encode(calm_ctx *ctx, const calm_run *p, const calm_missing *missing, calm_text *out)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks, n_jobs = calm_model_layout(p->in.model)->n_jobs;
    const size_t n_pool = p->in.recipe->n_pool;
    const found f = {missing->n_candidates, missing->end, missing->outside};
    size_t first, end;
    calm_text_append(out, (const char *)&f, sizeof f);
    calm_text_append(out, (const char *)missing->activations, n_blocks * sizeof(bool));
    calm_text_append(out, (const char *)missing->blocks, n_blocks * sizeof(bool));
    calm_text_append(out, (const char *)missing->any, n_blocks * sizeof(bool));
    for (size_t i = 0; i < n_jobs * n_pool; i++) {
        const calm_candidate *candidate = &p->in.candidates[i];
        const char flags = (char)((candidate->todo ? TODO : 0) | (candidate->skipped ? SKIPPED : 0) |
                                  (candidate->dropped ? DROPPED : 0));
        calm_text_append(out, &flags, 1);
    }
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end; job++)
        for (size_t entry = 0; entry < n_pool; entry++) {
            const calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
            calm_store_candidate row;
            int64_t id;
            CALM_SCOPED_RESULTS(ctx);
            if ((candidate->todo && !candidate->dropped) || !candidate->id)
                continue;
            CALM_TRY(calm_store_candidate_find(ctx, p->in.store, candidate->key, &row, &id));
            calm_relay_encode(out, job, &row);
        }
    return calm_text_check(ctx, out);
}

/* On another rank, sets the candidates to rank 0's state, from the rows that were put. */
static calm_status adopt_all(calm_ctx *ctx, calm_run *p, const char *flags)
{
    size_t first, end;
    calm_inputs_jobs(&p->in, &first, &end);
    for (size_t job = first; job < end; job++)
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
            calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
            const char flag = flags[job * p->in.recipe->n_pool + entry];
            calm_store_candidate row;
            CALM_TRY(calm_store_candidate_find(ctx, p->in.store, candidate->key, &row, &candidate->id));
            calm_run_adopt(candidate, &row);
            candidate->todo = flag & TODO;
            candidate->skipped = flag & SKIPPED;
            candidate->dropped = flag & DROPPED;
            if (candidate->skipped)
                candidate->failure = CALM_NOT_TRIED;
        }
    return CALM_OK;
}

/* On another rank, reads the message of rank 0 and puts its rows, without sending them back. */
static calm_status decode(calm_ctx *ctx, calm_run *p, const char *bytes, size_t n, calm_missing *out)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    const size_t n_flags = calm_model_layout(p->in.model)->n_jobs * p->in.recipe->n_pool;
    bool **parts[] = {&out->activations, &out->blocks, &out->any};
    found f;
    if (n < sizeof f + 3 * n_blocks + n_flags)
        return calm_fail(ctx, CALM_EFORMAT, "what rank 0 says about the store ends too early");
    memcpy(&f, bytes, sizeof f);
    const char *at = bytes + sizeof f, *end = bytes + n;
    for (size_t i = 0; i < 3; i++, at += n_blocks) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, *parts[i], n_blocks));
        memcpy(*parts[i], at, n_blocks);
    }
    out->n_candidates = f.n_candidates;
    out->end = f.end;
    out->outside = f.outside != 0;
    p->ranks->seeding = true;
    const calm_status status = calm_relay_put(ctx, p, at + n_flags, (size_t)(end - at) - n_flags);
    p->ranks->seeding = false;
    return status == CALM_OK ? adopt_all(ctx, p, at) : status;
}

/* rows of a calm_cluster_receiver: puts rows of another rank while this one computes. */
static calm_status take_rows(calm_ctx *ctx, void *user, int rank, const char *bytes, size_t n)
{
    (void)rank;
    return calm_relay_put(ctx, user, bytes, n);
}

static void note_failure(calm_ctx *ctx, void *user, const char *sentence)
{
    calm_run *p = user;
    calm_fail(ctx, CALM_EIO, "%s", sentence);
    calm_run_failed(ctx, p);
}

calm_status calm_division_share(calm_ctx *ctx, calm_run *p, calm_missing *missing)
{
    CALM_SCOPED_TEXT(text);
    size_t n = 0;
    void *bytes = NULL;
    if (!p->cluster)
        return CALM_OK;
    const bool first = calm_cluster_rank(p->cluster) == 0;
    if (first) {
        CALM_TRY(encode(ctx, p, missing, &text));
        bytes = text.data;
        n = text.length;
        /* Before the others know what to compute and send rows. */
        calm_cluster_receive(p->cluster, &(calm_cluster_receiver){take_rows, note_failure, p->in.recipe->store, p});
    }
    CALM_TRY(calm_cluster_share(ctx, p->cluster, &bytes, &n));
    if (!first)
        CALM_TRY(decode(ctx, p, bytes, n, missing));
    p->ranks->divided = calm_seconds();
    return divide(ctx, p, missing);
}
