/* Writing rows that describe: transactions, model, calibration, block, job, run, choice, verdict, artifact.
 * What is found again by its key with all that belongs to it is in store_keyed.c. */
#include <math.h>

#include "store/store_impl.h"

/* ---- transactions ---- */

calm_status calm_store_begin(calm_ctx *ctx, calm_store *store)
{
    CALM_TRY(calm_sql_run(ctx, store->sql, "SAVEPOINT calm", CALM_NONE));
    store->depth++;
    return CALM_OK;
}

static void roll_back(calm_store *store)
{
    calm_sql_undo(store->sql);
    store->depth--;
}

calm_status calm_store_commit(calm_ctx *ctx, calm_store *store)
{
    const calm_status status = calm_sql_run(ctx, store->sql, "RELEASE calm", CALM_NONE);
    if (status != CALM_OK)
        roll_back(store);
    else
        store->depth--;
    return status;
}

calm_store_scope calm_store_enter(calm_store *store)
{
    return (calm_store_scope){store, store->depth};
}

void calm_store_leave(calm_store_scope *scope)
{
    while (scope->store->depth > scope->depth)
        roll_back(scope->store);
}

/* ---- found or made by key ---- */

calm_status calm_store_model_id(calm_ctx *ctx, calm_store *store, const calm_store_model *m, int64_t *id)
{
    return calm_store_row_put(ctx, store, "model", 1,
        CALM_STORE_CELLS(CELL_T(m, digest), CELL_T(m, name), CELL_T(m, path), CELL_T(m, architecture),
                   CELL_T(m, dtype), CELL_I(m, n_params), CELL_I(m, n_blocks), CELL_I(m, hidden_size),
                   CELL_I(m, vocab_size), CELL_I(m, bytes)), id);
}

calm_status calm_store_calibration_id(calm_ctx *ctx, calm_store *store, const calm_store_calibration *c,
                                      int64_t *id)
{
    return calm_store_row_put(ctx, store, "calibration", 1,
        CALM_STORE_CELLS(CELL_T(c, key), CELL_T(c, text_name), CELL_T(c, text_digest), CELL_T(c, tokens_digest),
                   CELL_I(c, n_windows), CELL_I(c, window_tokens), CELL_I(c, n_tokens), CELL_INDEX(c, seed),
                   CELL_I(c, score_windows)), id);
}

calm_status calm_store_block_id(calm_ctx *ctx, calm_store *store, const calm_store_block *b, int64_t *id)
{
    return calm_store_row_put(ctx, store, "block", 2,
        CALM_STORE_CELLS(CELL_ID(b, model_id), CELL_I(b, number), CELL_T(b, name), CELL_T(b, kind)), id);
}

calm_status calm_store_job_id(calm_ctx *ctx, calm_store *store, const calm_store_job *j, int64_t *id)
{
    return calm_store_row_put(ctx, store, "job", 2,
        CALM_STORE_CELLS(CELL_ID(j, block_id), CELL_T(j, role), CELL_I(j, position), CELL_T(j, name),
                   CELL_T(j, sublayer), CELL_T(j, linears), {"out_features", CALM_I(j->out)},
                   {"in_features", CALM_I(j->in)}, CELL_T(j, weights_digest), CELL_T(j, input_hook)), id);
}

/* ---- runs ---- */

static calm_status resume_run(calm_ctx *ctx, calm_store *store, const calm_store_run *r, int64_t *id)
{
    return calm_sql_number(ctx, store->sql,
                           "UPDATE run SET status = 'running', attempts = attempts + 1, calibration_id ="
                           " coalesce(?2, calibration_id), command = ?3, n_threads = ?4, reason = NULL,"
                           " ended_at = NULL WHERE id = (SELECT max(id) FROM run WHERE key = ?1 AND"
                           " status <> 'finished') RETURNING id",
                           CALM_BIND(CALM_T(r->key), CALM_ID(r->calibration_id), CALM_T(r->command),
                                     CALM_I(r->n_threads)),
                           id);
}

calm_status calm_store_run_begin(calm_ctx *ctx, calm_store *store, const calm_store_run *r, int64_t *id,
                                 bool *resumed)
{
    CALM_TRY(resume_run(ctx, store, r, id));
    if (resumed)
        *resumed = *id != 0;
    if (*id)
        return CALM_OK;
    return calm_store_row_put(ctx, store, "run", 0,
        CALM_STORE_CELLS(CELL_T(r, key), CELL_ID(r, model_id), CELL_ID(r, calibration_id),
                   {"status", CALM_T("running")}, CELL_T(r, command),
                   {"recipe", CALM_T(r->recipe ? r->recipe : "{}")},
                   {"unit", CALM_T(r->unit ? r->unit : "job")}, CELL_T(r, rule), CELL_T(r, metric),
                   CELL_T(r, version), CELL_I(r, n_threads)), id);
}

calm_status calm_store_run_end(calm_ctx *ctx, calm_store *store, int64_t run_id, const calm_store_outcome *o)
{
    CALM_TRY(calm_sql_run(ctx, store->sql,
                          "UPDATE run SET status = ?2, result = ?3, reason = ?4, bits_per_weight = ?5,"
                          " bytes_before = ?6, bytes_after = ?7, ended_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now')"
                          " WHERE id = ?1",
                          CALM_BIND(CALM_ID(run_id), CALM_T(o->status), CALM_T(o->result), CALM_T(o->reason),
                                    CALM_R(o->bits_per_weight), CALM_ID(o->bytes_before), CALM_ID(o->bytes_after))));
    if (calm_sql_changes(store->sql) != 1)
        return calm_fail(ctx, CALM_EARG, "%s: no run %lld", store->path, (long long)run_id);
    return CALM_OK;
}

calm_status calm_store_run_recipe(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *recipe)
{
    CALM_TRY(calm_sql_run(ctx, store->sql, "UPDATE run SET recipe = ?2 WHERE id = ?1",
                          CALM_BIND(CALM_ID(run_id), CALM_T(recipe))));
    if (calm_sql_changes(store->sql) != 1)
        return calm_fail(ctx, CALM_EARG, "%s: no run %lld", store->path, (long long)run_id);
    return CALM_OK;
}

calm_status calm_store_expert_put(calm_ctx *ctx, calm_store *store, int64_t job_id, int64_t calibration_id,
                                  int64_t tokens)
{
    CALM_TRY(calm_store_row_put(ctx, store, "expert", 2,
        CALM_STORE_CELLS({"job_id", CALM_ID(job_id)}, {"calibration_id", CALM_ID(calibration_id)},
                   {"tokens", CALM_I(tokens)}), NULL));
    return store->relay ? store->relay->expert(ctx, store->relay->user, job_id, tokens) : CALM_OK;
}

calm_status calm_store_run_candidate(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t candidate_id)
{
    return calm_store_row_put(ctx, store, "run_candidate", 2,
        CALM_STORE_CELLS({"run_id", CALM_ID(run_id)}, {"candidate_id", CALM_ID(candidate_id)}), NULL);
}

calm_status calm_store_run_pool(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t from_run_id)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO run_candidate (run_id, candidate_id) SELECT ?1, candidate_id FROM run_candidate"
                        " WHERE run_id = ?2 ON CONFLICT DO NOTHING",
                        CALM_BIND(CALM_ID(run_id), CALM_ID(from_run_id)));
}

/* ---- what a run decided, measured and wrote ---- */

calm_status calm_store_choice_put(calm_ctx *ctx, calm_store *store, const calm_store_choice *c)
{
    return calm_store_row_put(ctx, store, "choice", 2,
        CALM_STORE_CELLS(CELL_ID(c, run_id), CELL_ID(c, job_id), CELL_ID(c, candidate_id), CELL_T(c, unit),
                   CELL_T(c, reason), CELL_T(c, advice), CELL_I(c, disagrees)), NULL);
}

/* A difference of evaluations is in one of two columns: which one, and what the evaluation itself calls its subject.
 * No such evaluation: neither; the row is then refused by its foreign key. */
static calm_status look_up(calm_ctx *ctx, calm_store *store, int64_t evaluation_id, bool *embeddings,
                           const char **subject)
{
    CALM_SCOPED_ROWS(row);
    *embeddings = false, *subject = NULL;
    CALM_TRY(calm_sql_first(ctx, store->sql, "SELECT kind = 'embeddings', subject FROM evaluation WHERE id = ?1",
                            CALM_BIND(CALM_ID(evaluation_id)), &row));
    if (!calm_sql_next(ctx, store->sql, row))
        return ctx->status;
    *embeddings = calm_sql_int(row, 0);
    return calm_sql_text(ctx, row, 1, subject);
}

calm_status calm_store_verdict_put(calm_ctx *ctx, calm_store *store, const calm_store_verdict *v)
{
    bool embeddings;
    const char *subject;
    CALM_TRY(look_up(ctx, store, v->evaluation_id, &embeddings, &subject));
    return calm_store_row_put(ctx, store, "run_evaluation", 3,
        CALM_STORE_CELLS(CELL_ID(v, run_id), CELL_T(v, role), {"subject", CALM_T(v->subject ? v->subject : subject)},
                   CELL_ID(v, evaluation_id), {"delta_kl", CALM_R(embeddings ? NAN : v->delta)},
                   {"delta_one_minus_cosine", CALM_R(embeddings ? v->delta : NAN)}, CELL_R(v, delta_se)), NULL);
}

calm_status calm_store_ablation_put(calm_ctx *ctx, calm_store *store, const calm_store_ablation *a)
{
    bool embeddings;
    const char *subject;
    CALM_TRY(look_up(ctx, store, a->evaluation_id, &embeddings, &subject));
    return calm_store_row_put(ctx, store, "ablation", 2,
        CALM_STORE_CELLS(CELL_ID(a, run_id), CELL_T(a, subject), CELL_T(a, kind), CELL_T(a, unit), CELL_T(a, metric),
                   CELL_T(a, rule), CELL_R(a, bits), CELL_R(a, seconds), CELL_INDEX(a, differs),
                   CELL_T(a, failure), CELL_ID(a, evaluation_id),
                   {"delta_kl", CALM_R(embeddings ? NAN : a->delta)},
                   {"delta_one_minus_cosine", CALM_R(embeddings ? a->delta : NAN)}, CELL_R(a, delta_se)), NULL);
}

calm_status calm_store_artifact_put(calm_ctx *ctx, calm_store *store, const calm_store_artifact *a)
{
    return calm_store_row_put(
        ctx, store, "artifact", 2,
        CALM_STORE_CELLS(CELL_ID(a, run_id), CELL_T(a, path), CELL_T(a, role), CELL_I(a, bytes), CELL_T(a, sha256)),
        NULL);
}

calm_status calm_store_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *name,
                                       const char *value)
{
    return calm_store_row_put(ctx, store, "environment", 2,
        CALM_STORE_CELLS({"run_id", CALM_ID(run_id)}, {"name", CALM_T(name)}, {"value", CALM_T(value)}), NULL);
}

calm_status calm_store_stage_put(calm_ctx *ctx, calm_store *store, const calm_store_stage *s)
{
    return calm_store_row_put(ctx, store, "run_stage", 2,
                              CALM_STORE_CELLS(CELL_ID(s, run_id), CELL_I(s, position), CELL_T(s, stage),
                                               CELL_R(s, seconds), CELL_R(s, cpu_seconds),
                                               CELL_R(s, forecast_seconds)), NULL);
}

calm_status calm_store_stage_forecast(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t position,
                                      double seconds)
{
    CALM_TRY(calm_sql_run(ctx, store->sql, "UPDATE run_stage SET forecast_seconds = ?3 WHERE run_id = ?1 AND"
                          " position = ?2", CALM_BIND(CALM_ID(run_id), CALM_I(position), CALM_R(seconds))));
    if (calm_sql_changes(store->sql) != 1)
        return calm_fail(ctx, CALM_EARG, "%s: run %lld has no stage %lld", store->path, (long long)run_id,
                         (long long)position);
    return CALM_OK;
}

calm_status calm_store_gate_put(calm_ctx *ctx, calm_store *store, const calm_store_gate *g)
{
    return calm_store_row_put(
        ctx, store, "gate", 2,
        CALM_STORE_CELLS(CELL_ID(g, run_id), CELL_I(g, position), CELL_T(g, gate), CELL_R(g, value), CELL_I(g, holds)),
        NULL);
}
