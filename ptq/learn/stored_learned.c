/* Reads learned blocks of a stored run.  Rows come from a file, so every number and name is checked before its use. */
#include "ptq/learn/learn_impl.h"

#include <string.h>

#include "store/store.h"

typedef struct reading {
    const char *path;
    int64_t run;
    const calm_layout *layout;
    size_t n_blocks;
    calm_learned **blocks;
} reading;

static calm_status contradiction(calm_ctx *ctx, const reading *r, const char *what)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: a learned block of run %lld %s", r->path, (long long)r->run, what);
}

/* Checks that a text is a digest or a key, because it becomes part of a path. */
static calm_status copy_digest(calm_ctx *ctx, const reading *r, const calm_value *value, char to[CALM_SHA256_HEX])
{
    const char *text = calm_value_as_string(value);
    if (!text || strlen(text) != CALM_SHA256_HEX - 1)
        return contradiction(ctx, r, "has no digest where one is expected");
    memcpy(to, text, CALM_SHA256_HEX);
    return CALM_OK;
}

/* Adds one candidate of a learned block; the first candidate of a block also creates the block.  v: number, key, blob
 * digest and blob size of the block; then job, id, key, blob digest and blob size of the candidate. */
static calm_status take(calm_ctx *ctx, void *user, const calm_value *v)
{
    reading *r = user;
    const int64_t number = calm_value_as_int(&v[0]);
    const char *job = calm_value_as_string(&v[4]);
    if (number < 0 || (uint64_t)number >= r->n_blocks || !job)
        return contradiction(ctx, r, "is none of the model's");
    const size_t begin = r->layout->block_begin[number], end = r->layout->block_begin[number + 1];
    if (!r->blocks[number]) {
        CALM_TRY(CALM_NEW(ctx, ctx->out, r->blocks[number], 1));
        CALM_TRY(CALM_NEW(ctx, ctx->out, r->blocks[number]->jobs, end - begin));
    }
    calm_learned *learned = r->blocks[number];
    CALM_TRY(copy_digest(ctx, r, &v[1], learned->key));
    CALM_TRY(copy_digest(ctx, r, &v[2], learned->blob));
    learned->blob_bytes = (size_t)calm_value_as_int(&v[3]);
    for (size_t j = begin; j < end; j++)
        if (strcmp(r->layout->jobs[j].name, job) == 0) {
            calm_candidate *candidate = &learned->jobs[j - begin];
            candidate->id = calm_value_as_int(&v[5]);
            candidate->blob_bytes = (size_t)calm_value_as_int(&v[8]);
            CALM_TRY(copy_digest(ctx, r, &v[6], candidate->key));
            return copy_digest(ctx, r, &v[7], candidate->blob);
        }
    return contradiction(ctx, r, "has a candidate of another model");
}

calm_status calm_learned_of_store(calm_ctx *ctx, calm_store *store, int64_t run, const calm_model *model,
                                  const calm_plan *plan, bool tuned, calm_learned ***blocks)
{
    reading r = {.path = calm_store_path(store), .run = run, .layout = calm_model_layout(model),
                 .n_blocks = calm_model_config(model)->n_blocks};
    const calm_value params[] = {calm_value_int(run), calm_value_int(tuned)};
    CALM_TRY(CALM_NEW(ctx, ctx->out, r.blocks, r.n_blocks));
    CALM_TRY(calm_store_each(ctx, store,
                             "SELECT b.number, d.key, d.blob, d.blob_bytes, j.name, k.id, k.key, k.blob, k.blob_bytes"
                             " FROM run_learned l JOIN learned d ON d.id = l.learned_id"
                             " JOIN block b ON b.id = d.block_id"
                             " JOIN learned_candidate c ON c.learned_id = d.id"
                             " JOIN candidate k ON k.id = c.candidate_id JOIN job j ON j.id = k.job_id"
                             " WHERE l.run_id = ?1 AND (d.learner LIKE '" CALM_TUNER "@%') = ?2"
                             " ORDER BY b.number, j.position", params, 2, take, &r));
    /* A block is learned as a whole: it must have all of its quantized jobs. */
    for (size_t b = 0; b < r.n_blocks; b++)
        for (size_t j = r.layout->block_begin[b]; r.blocks[b] && j < r.layout->block_begin[b + 1]; j++)
            if (plan->jobs[j].quantized && !r.blocks[b]->jobs[j - r.layout->block_begin[b]].id)
                return contradiction(ctx, &r, "misses a job");
    *blocks = r.blocks;
    return CALM_OK;
}
