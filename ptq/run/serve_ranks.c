/* Ranks other than 0 after their blocks: they answer the questions of rank 0. */
#include "ptq/learn/learn.h"
#include "ptq/measure/measure.h"
#include "ptq/run/run_impl.h"

/* A calm_cluster_work_fn: answers one question. */
static calm_status work(calm_ctx *ctx, void *user, const char *bytes, size_t n, calm_text *answer)
{
    static calm_status (*const kinds[])(calm_ctx *, calm_run *, calm_rank_message *, calm_text *) = {
        [CALM_RANK_PREDICTIONS] = calm_rank_predict,
        [CALM_RANK_EMBEDDINGS] = calm_rank_encode,
        [CALM_RANK_PASS] = calm_rank_pass,
    };
    calm_rank_message in = {.at = bytes, .end = bytes + n};
    uint64_t kind;
    calm_rank_message_read(&in, &kind, sizeof kind);
    if (kind >= sizeof kinds / sizeof *kinds || !kinds[kind])
        return calm_fail(ctx, CALM_EFORMAT, "rank 0 asks for what is no work of this run");
    return kinds[kind](ctx, user, &in, answer);
}

calm_status calm_division_serve(calm_ctx *ctx, calm_run *p)
{
    return calm_cluster_serve(ctx, p->cluster, work, p);
}
