/* What resume finds by key: candidates with their scores, evaluations with their windows. */
#include <math.h>
#include <string.h>

#include "store/store_impl.h"

/* ---- candidates ---- */

static calm_status add_scores(calm_ctx *ctx, calm_store *store, int64_t candidate_id, const calm_store_score *scores,
                              size_t n_scores)
{
    for (size_t i = 0; i < n_scores; i++) {
        if (isnan(scores[i].value))
            return calm_fail(ctx, CALM_ENUMERIC, "%s: score %s of candidate %lld is not a number", store->path,
                             scores[i].metric, (long long)candidate_id);
        const calm_store_score *score = &scores[i];
        CALM_TRY(calm_store_row_put(ctx, store, "score", 3,
            CALM_STORE_CELLS({"candidate_id", CALM_ID(candidate_id)},
                       {"unit", CALM_T(score->unit ? score->unit : "job")}, CELL_T(score, metric),
                       CELL_R(score, value)), NULL));
    }
    return CALM_OK;
}

calm_status calm_store_scores_add(calm_ctx *ctx, calm_store *store, int64_t candidate_id,
                                  const calm_store_score *scores, size_t n_scores)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(add_scores(ctx, store, candidate_id, scores, n_scores));
    CALM_TRY(calm_store_commit(ctx, store));
    return store->relay ? store->relay->scores(ctx, store->relay->user, candidate_id, scores, n_scores) : CALM_OK;
}

static calm_status algorithm_id(calm_ctx *ctx, calm_store *store, const calm_store_candidate *c, int64_t *id)
{
    CALM_TRY(calm_sql_number(ctx, store->sql, "SELECT id FROM algorithm WHERE chain = ?1 AND name = ?2",
                             CALM_BIND(CALM_T(c->chain), CALM_T(c->algorithm)), id));
    if (*id)
        return CALM_OK;
    return calm_sql_number(ctx, store->sql, "INSERT INTO algorithm (chain, name) VALUES (?1, ?2) RETURNING id",
                           CALM_BIND(CALM_T(c->chain), CALM_T(c->algorithm)), id);
}

static calm_status put_candidate(calm_ctx *ctx, calm_store *store, const calm_store_candidate *c, int64_t *id)
{
    int64_t algorithm;
    CALM_TRY(algorithm_id(ctx, store, c, &algorithm));
    CALM_TRY(calm_store_row_put(ctx, store, "candidate", 1,
        CALM_STORE_CELLS(CELL_T(c, key), CELL_ID(c, job_id), CELL_ID(c, calibration_id),
                   {"algorithm_id", CALM_I(algorithm)}, CELL_T(c, scheme), CELL_T(c, failure), CELL_T(c, blob),
                   CELL_I(c, blob_bytes), CELL_R(c, bits_per_weight), CELL_R(c, damp), CELL_INDEX(c, score_rows),
                   CELL_I(c, dropped_rows), CELL_R(c, seconds)), id));
    CALM_TRY(calm_sql_run(ctx, store->sql, "DELETE FROM score WHERE candidate_id = ?1", CALM_BIND(CALM_I(*id))));
    return add_scores(ctx, store, *id, c->scores, c->n_scores);
}

calm_status calm_store_candidate_put(calm_ctx *ctx, calm_store *store, const calm_store_candidate *candidate,
                                     int64_t *id)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(put_candidate(ctx, store, candidate, id));
    CALM_TRY(calm_store_commit(ctx, store));
    return store->relay ? store->relay->candidate(ctx, store->relay->user, candidate, *id) : CALM_OK;
}

static calm_status read_candidate(calm_ctx *ctx, calm_store *store, const char *key, calm_store_candidate *out,
                                  int64_t *id)
{
    CALM_SCOPED_ROWS(row);
    CALM_TRY(calm_sql_first(ctx, store->sql,
                            "SELECT c.id, c.key, c.job_id, c.calibration_id, a.name, a.chain, c.scheme, c.failure,"
                            " c.blob, c.blob_bytes, c.bits_per_weight, c.damp, coalesce(c.score_rows, -1),"
                            " c.dropped_rows, c.seconds"
                            " FROM candidate c JOIN algorithm a ON a.id = c.algorithm_id WHERE c.key = ?1",
                            CALM_BIND(CALM_T(key)), &row));
    if (!calm_sql_next(ctx, store->sql, row))
        return ctx->status;
    return CALM_SQL_READ(ctx, row, 0, CALM_TO(id), CALM_TO(&out->key), CALM_TO(&out->job_id),
                         CALM_TO(&out->calibration_id), CALM_TO(&out->algorithm), CALM_TO(&out->chain),
                         CALM_TO(&out->scheme), CALM_TO(&out->failure), CALM_TO(&out->blob), CALM_TO(&out->blob_bytes),
                         CALM_TO(&out->bits_per_weight), CALM_TO(&out->damp), CALM_TO(&out->score_rows),
                         CALM_TO(&out->dropped_rows), CALM_TO(&out->seconds));
}

static calm_status read_scores(calm_ctx *ctx, calm_store *store, int64_t id, calm_store_candidate *out)
{
    int64_t n;
    CALM_SCOPED_ROWS(row);
    calm_store_score *scores;
    CALM_TRY(calm_sql_number(ctx, store->sql, "SELECT count(*) FROM score WHERE candidate_id = ?1",
                             CALM_BIND(CALM_I(id)), &n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, scores, (size_t)n));
    out->scores = scores;
    CALM_TRY(calm_sql_first(ctx, store->sql,
                            "SELECT unit, metric, value FROM score WHERE candidate_id = ?1 ORDER BY unit, metric",
                            CALM_BIND(CALM_I(id)), &row));
    while (out->n_scores < (size_t)n && calm_sql_next(ctx, store->sql, row)) {
        calm_store_score *score = &scores[out->n_scores++];
        CALM_TRY(CALM_SQL_READ(ctx, row, 0, CALM_TO(&score->unit), CALM_TO(&score->metric), CALM_TO(&score->value)));
    }
    return ctx->status;
}

calm_status calm_store_candidate_find(calm_ctx *ctx, calm_store *store, const char *key,
                                      calm_store_candidate *out, int64_t *id)
{
    *id = 0;
    memset(out, 0, sizeof *out);
    CALM_TRY(read_candidate(ctx, store, key, out, id));
    return *id ? read_scores(ctx, store, *id, out) : CALM_OK;
}

/* ---- evaluations ---- */

/* `value` in an evaluation of that kind, NULL in one of the other. */
static calm_value if_of(const calm_store_evaluation *e, calm_store_figures kind, calm_value value)
{
    return e->kind == kind ? value : calm_value_text(NULL);
}
#define PREDICTED(of, member, type) {#member, if_of(e, CALM_STORE_PREDICTIONS, type((of)->member))}
#define EMBEDDED(of, member, type) {#member, if_of(e, CALM_STORE_EMBEDDINGS, type((of)->member))}

static const char *const kinds[] = {"predictions", "embeddings"};

static calm_status put_evaluation(calm_ctx *ctx, calm_store *store, const calm_store_evaluation *e, int64_t *id)
{
    CALM_TRY(calm_store_row_put(ctx, store, "evaluation", 1,
        CALM_STORE_CELLS(CELL_T(e, key), CELL_ID(e, model_id), CELL_T(e, subject), CELL_T(e, text_name),
                   CELL_T(e, text_digest), CELL_I(e, window_tokens),
                   {"n_windows", CALM_I((int64_t)e->n_windows)}, {"kind", CALM_T(kinds[e->kind])},
                   PREDICTED(e, tokens, CALM_I), PREDICTED(e, nll, CALM_R), PREDICTED(e, ppl, CALM_R),
                   PREDICTED(e, kl, CALM_R), PREDICTED(e, top1, CALM_R), EMBEDDED(e, pairs, CALM_I),
                   EMBEDDED(e, error, CALM_R), EMBEDDED(e, cosine, CALM_R), EMBEDDED(e, cosine_min, CALM_R),
                   EMBEDDED(e, spearman, CALM_R)), id));
    /* Fewer windows than the evaluation had before must not leave some of the old ones. */
    CALM_TRY(calm_sql_run(ctx, store->sql, "DELETE FROM evaluation_window WHERE evaluation_id = ?1",
                          CALM_BIND(CALM_I(*id))));
    for (size_t i = 0; i < e->n_windows; i++) {
        const calm_store_window *w = &e->windows[i];
        CALM_TRY(calm_store_row_put(ctx, store, "evaluation_window", 0,
            CALM_STORE_CELLS({"evaluation_id", CALM_I(*id)}, {"number", CALM_I((int64_t)i)},
                       PREDICTED(w, tokens, CALM_I), PREDICTED(w, nll, CALM_R), PREDICTED(w, kl, CALM_R),
                       PREDICTED(w, top1, CALM_R), EMBEDDED(w, error, CALM_R), EMBEDDED(w, cosine, CALM_R)), NULL));
    }
    return CALM_OK;
}

calm_status calm_store_evaluation_put(calm_ctx *ctx, calm_store *store, const calm_store_evaluation *evaluation,
                                      int64_t *id)
{
    CALM_SCOPED_TRANSACTION(ctx, store);
    CALM_TRY(put_evaluation(ctx, store, evaluation, id));
    return calm_store_commit(ctx, store);
}

static calm_status read_evaluation(calm_ctx *ctx, calm_store *store, const char *key, calm_store_evaluation *out,
                                   int64_t *id)
{
    CALM_SCOPED_ROWS(row);
    CALM_TRY(calm_sql_first(ctx, store->sql,
                            "SELECT pairs, error, cosine, cosine_min, spearman, tokens, nll, ppl, kl, top1,"
                            " kind = 'embeddings', id, key, model_id, subject, text_name, text_digest, window_tokens"
                            " FROM evaluation WHERE key = ?1",
                            CALM_BIND(CALM_T(key)), &row));
    if (!calm_sql_next(ctx, store->sql, row))
        return ctx->status;
    out->kind = calm_sql_int(row, 10) ? CALM_STORE_EMBEDDINGS : CALM_STORE_PREDICTIONS;
    if (out->kind == CALM_STORE_EMBEDDINGS)
        CALM_TRY(CALM_SQL_READ(ctx, row, 0, CALM_TO(&out->pairs), CALM_TO(&out->error), CALM_TO(&out->cosine),
                               CALM_TO(&out->cosine_min), CALM_TO(&out->spearman)));
    else
        CALM_TRY(CALM_SQL_READ(ctx, row, 5, CALM_TO(&out->tokens), CALM_TO(&out->nll), CALM_TO(&out->ppl),
                               CALM_TO(&out->kl), CALM_TO(&out->top1)));
    return CALM_SQL_READ(ctx, row, 11, CALM_TO(id), CALM_TO(&out->key), CALM_TO(&out->model_id),
                         CALM_TO(&out->subject), CALM_TO(&out->text_name), CALM_TO(&out->text_digest),
                         CALM_TO(&out->window_tokens));
}

static calm_status read_windows(calm_ctx *ctx, calm_store *store, int64_t id, calm_store_evaluation *out)
{
    int64_t n;
    CALM_SCOPED_ROWS(row);
    calm_store_window *windows;
    CALM_TRY(calm_sql_number(ctx, store->sql, "SELECT count(*) FROM evaluation_window WHERE evaluation_id = ?1",
                             CALM_BIND(CALM_I(id)), &n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, windows, (size_t)n));
    out->windows = windows;
    CALM_TRY(calm_sql_first(ctx, store->sql,
                            "SELECT tokens, nll, kl, top1, error, cosine FROM evaluation_window"
                            " WHERE evaluation_id = ?1 ORDER BY number",
                            CALM_BIND(CALM_I(id)), &row));
    while (out->n_windows < (size_t)n && calm_sql_next(ctx, store->sql, row)) {
        calm_store_window *w = &windows[out->n_windows++];
        CALM_TRY(out->kind == CALM_STORE_EMBEDDINGS
                     ? CALM_SQL_READ(ctx, row, 4, CALM_TO(&w->error), CALM_TO(&w->cosine))
                     : CALM_SQL_READ(ctx, row, 0, CALM_TO(&w->tokens), CALM_TO(&w->nll), CALM_TO(&w->kl),
                                     CALM_TO(&w->top1)));
    }
    return ctx->status;
}

calm_status calm_store_evaluation_find(calm_ctx *ctx, calm_store *store, const char *key,
                                       calm_store_evaluation *out, int64_t *id)
{
    *id = 0;
    memset(out, 0, sizeof *out);
    CALM_TRY(read_evaluation(ctx, store, key, out, id));
    return *id ? read_windows(ctx, store, *id, out) : CALM_OK;
}
