/* Writing rows that describe: transactions, model, calibration, block, job, run, choice, verdict, artifact.
 * What is found again by its key with all that belongs to it is in store_keyed.c. */
#include <assert.h>

#include "store/store_impl.h"

/* ---- transactions ---- */

calm_status calm_store_begin(calm_ctx *ctx, calm_store *store)
{
    return calm_sql_run(ctx, store->sql, "SAVEPOINT calm", CALM_NONE);
}

calm_status calm_store_commit(calm_ctx *ctx, calm_store *store)
{
    calm_status status = calm_sql_run(ctx, store->sql, "RELEASE calm", CALM_NONE);
    if (status != CALM_OK)
        calm_sql_undo(store->sql);
    return status;
}

void calm_store_rollback(calm_store *store)
{
    calm_sql_undo(store->sql);
}

calm_status calm_store_end(calm_ctx *ctx, calm_store *store)
{
    if (ctx->status == CALM_OK)
        return calm_store_commit(ctx, store);
    calm_store_rollback(store);
    return ctx->status;
}

/* ---- found or made by key ---- */

/* An upsert with RETURNING id: the id of the row, old or new. */
static calm_status upsert(calm_ctx *ctx, calm_store *store, const char *text, const calm_value *params,
                          size_t n_params, int64_t *id)
{
    CALM_TRY(calm_sql_number(ctx, store->sql, text, params, n_params, id));
    assert(*id > 0);
    return CALM_OK;
}

calm_status calm_store_model_id(calm_ctx *ctx, calm_store *store, const calm_store_model *m, int64_t *id)
{
    return upsert(ctx, store,
                  "INSERT INTO model (digest, name, path, architecture, dtype, n_params, n_blocks, hidden_size,"
                  " vocab_size, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
                  " ON CONFLICT (digest) DO UPDATE SET name = excluded.name, path = excluded.path,"
                  " architecture = excluded.architecture, dtype = excluded.dtype, n_params = excluded.n_params,"
                  " n_blocks = excluded.n_blocks, hidden_size = excluded.hidden_size,"
                  " vocab_size = excluded.vocab_size, bytes = excluded.bytes RETURNING id",
                  CALM_BIND(CALM_T(m->digest), CALM_T(m->name), CALM_T(m->path), CALM_T(m->architecture),
                            CALM_T(m->dtype), CALM_I(m->n_params), CALM_I(m->n_blocks), CALM_I(m->hidden_size),
                            CALM_I(m->vocab_size), CALM_I(m->bytes)),
                  id);
}

calm_status calm_store_calibration_id(calm_ctx *ctx, calm_store *store, const calm_store_calibration *c,
                                      int64_t *id)
{
    calm_value none = {.type = CALM_VALUE_NULL};
    return upsert(ctx, store,
                  "INSERT INTO calibration (key, text_name, text_digest, tokens_digest, n_windows, window_tokens,"
                  " n_tokens, seed, score_windows) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
                  " ON CONFLICT (key) DO UPDATE SET text_name = excluded.text_name RETURNING id",
                  CALM_BIND(CALM_T(c->key), CALM_T(c->text_name), CALM_T(c->text_digest), CALM_T(c->tokens_digest),
                            CALM_I(c->n_windows), CALM_I(c->window_tokens), CALM_I(c->n_tokens),
                            c->seed < 0 ? none : CALM_I(c->seed), CALM_I(c->score_windows)),
                  id);
}

calm_status calm_store_block_id(calm_ctx *ctx, calm_store *store, const calm_store_block *b, int64_t *id)
{
    return upsert(ctx, store,
                  "INSERT INTO block (model_id, number, name, kind) VALUES (?1, ?2, ?3, ?4)"
                  " ON CONFLICT (model_id, number) DO UPDATE SET name = excluded.name, kind = excluded.kind"
                  " RETURNING id",
                  CALM_BIND(CALM_ID(b->model_id), CALM_I(b->number), CALM_T(b->name), CALM_T(b->kind)), id);
}

calm_status calm_store_job_id(calm_ctx *ctx, calm_store *store, const calm_store_job *j, int64_t *id)
{
    return upsert(ctx, store,
                  "INSERT INTO job (block_id, role, position, name, sublayer, linears, out_features, in_features,"
                  " weights_digest, input_hook) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
                  " ON CONFLICT (block_id, role) DO UPDATE SET position = excluded.position, name = excluded.name,"
                  " sublayer = excluded.sublayer, linears = excluded.linears, out_features = excluded.out_features,"
                  " in_features = excluded.in_features, weights_digest = excluded.weights_digest,"
                  " input_hook = excluded.input_hook RETURNING id",
                  CALM_BIND(CALM_ID(j->block_id), CALM_T(j->role), CALM_I(j->position), CALM_T(j->name),
                            CALM_T(j->sublayer), CALM_T(j->linears), CALM_I(j->out), CALM_I(j->in),
                            CALM_T(j->weights_digest), CALM_T(j->input_hook)),
                  id);
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
    return upsert(ctx, store,
                  "INSERT INTO run (key, model_id, calibration_id, status, command, recipe, unit, rule, metric,"
                  " version, n_threads) VALUES (?1, ?2, ?3, 'running', ?4, coalesce(?5, '{}'), coalesce(?6, 'job'),"
                  " ?7, ?8, ?9, ?10) RETURNING id",
                  CALM_BIND(CALM_T(r->key), CALM_ID(r->model_id), CALM_ID(r->calibration_id), CALM_T(r->command),
                            CALM_T(r->recipe), CALM_T(r->unit), CALM_T(r->rule), CALM_T(r->metric),
                            CALM_T(r->version), CALM_I(r->n_threads)),
                  id);
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

calm_status calm_store_expert_put(calm_ctx *ctx, calm_store *store, int64_t job_id, int64_t calibration_id,
                                  int64_t tokens)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO expert (job_id, calibration_id, tokens) VALUES (?1, ?2, ?3)"
                        " ON CONFLICT (job_id, calibration_id) DO UPDATE SET tokens = excluded.tokens",
                        CALM_BIND(CALM_ID(job_id), CALM_ID(calibration_id), CALM_I(tokens)));
}

calm_status calm_store_run_candidate(calm_ctx *ctx, calm_store *store, int64_t run_id, int64_t candidate_id)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO run_candidate (run_id, candidate_id) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                        CALM_BIND(CALM_ID(run_id), CALM_ID(candidate_id)));
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
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO choice (run_id, job_id, candidate_id, unit, reason, advice, disagrees)"
                        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (run_id, job_id) DO UPDATE SET"
                        " candidate_id = excluded.candidate_id, unit = excluded.unit, reason = excluded.reason,"
                        " advice = excluded.advice, disagrees = excluded.disagrees",
                        CALM_BIND(CALM_ID(c->run_id), CALM_ID(c->job_id), CALM_ID(c->candidate_id),
                                  CALM_T(c->unit), CALM_T(c->reason), CALM_T(c->advice), CALM_I(c->disagrees)));
}

calm_status calm_store_verdict_put(calm_ctx *ctx, calm_store *store, const calm_store_verdict *v)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO run_evaluation (run_id, role, subject, evaluation_id, delta_kl, delta_se)"
                        " VALUES (?1, ?2, coalesce(?3, (SELECT subject FROM evaluation WHERE id = ?4)), ?4, ?5, ?6)"
                        " ON CONFLICT (run_id, role, subject) DO UPDATE SET evaluation_id = excluded.evaluation_id,"
                        " delta_kl = excluded.delta_kl, delta_se = excluded.delta_se",
                        CALM_BIND(CALM_ID(v->run_id), CALM_T(v->role), CALM_T(v->subject), CALM_ID(v->evaluation_id),
                                  CALM_R(v->delta_kl), CALM_R(v->delta_se)));
}

calm_status calm_store_ablation_put(calm_ctx *ctx, calm_store *store, const calm_store_ablation *a)
{
    const calm_value unknown = {.type = CALM_VALUE_NULL};
    return calm_sql_run(
        ctx, store->sql,
        "INSERT INTO ablation (run_id, subject, kind, unit, metric, rule, bits, seconds, differs, failure,"
        " evaluation_id, delta_kl, delta_se) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
        " ON CONFLICT (run_id, subject) DO UPDATE SET kind = excluded.kind, unit = excluded.unit,"
        " metric = excluded.metric, rule = excluded.rule, bits = excluded.bits,"
        " seconds = excluded.seconds, differs = excluded.differs, failure = excluded.failure,"
        " evaluation_id = excluded.evaluation_id, delta_kl = excluded.delta_kl,"
        " delta_se = excluded.delta_se",
        CALM_BIND(CALM_ID(a->run_id), CALM_T(a->subject), CALM_T(a->kind), CALM_T(a->unit), CALM_T(a->metric),
                  CALM_T(a->rule), CALM_R(a->bits), CALM_R(a->seconds), a->differs < 0 ? unknown : CALM_I(a->differs),
                  CALM_T(a->failure), CALM_ID(a->evaluation_id), CALM_R(a->delta_kl), CALM_R(a->delta_se)));
}

calm_status calm_store_artifact_put(calm_ctx *ctx, calm_store *store, const calm_store_artifact *a)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO artifact (run_id, path, role, bytes, sha256) VALUES (?1, ?2, ?3, ?4, ?5)"
                        " ON CONFLICT (run_id, path) DO UPDATE SET role = excluded.role, bytes = excluded.bytes,"
                        " sha256 = excluded.sha256",
                        CALM_BIND(CALM_ID(a->run_id), CALM_T(a->path), CALM_T(a->role), CALM_I(a->bytes),
                                  CALM_T(a->sha256)));
}

calm_status calm_store_environment_put(calm_ctx *ctx, calm_store *store, int64_t run_id, const char *name,
                                       const char *value)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO environment (run_id, name, value) VALUES (?1, ?2, ?3)"
                        " ON CONFLICT (run_id, name) DO UPDATE SET value = excluded.value",
                        CALM_BIND(CALM_ID(run_id), CALM_T(name), CALM_T(value)));
}

calm_status calm_store_gate_put(calm_ctx *ctx, calm_store *store, const calm_store_gate *g)
{
    return calm_sql_run(ctx, store->sql,
                        "INSERT INTO gate (run_id, position, gate, value, holds) VALUES (?1, ?2, ?3, ?4, ?5)"
                        " ON CONFLICT (run_id, position) DO UPDATE SET gate = excluded.gate, value = excluded.value,"
                        " holds = excluded.holds",
                        CALM_BIND(CALM_ID(g->run_id), CALM_I(g->position), CALM_T(g->gate), CALM_R(g->value),
                                  CALM_I(g->holds)));
}
