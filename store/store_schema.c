/* The schema that this program writes, and the check of a file against it. */
#include <string.h>

#include "calm_schema_sql.h"
#include "store/store_impl.h"

#define SCHEMA_VERSION 9    /* as in schema.sql */

int calm_store_version(void)
{
    return SCHEMA_VERSION;
}

const char *calm_store_schema(void)
{
    return calm_schema_sql;
}

/* Tables and indexes that version 1 did not have; every migration creates all views again. */
static const struct addition {
    const char *name;
    int64_t version;    /* the first version that has it */
} additions[] = {{"expert", 2}, {"expert_by_calibration", 2}, {"ablation", 3}, {"ablation_by_evaluation", 3},
                 {"environment", 4}, {"gate", 4}, {"learned", 6}, {"learned_by_block", 6},
                 {"learned_by_calibration", 6}, {"learned_candidate", 6}, {"learned_candidate_by_candidate", 6},
                 {"learned_candidate_by_start", 6}, {"run_learned", 6}, {"run_learned_by_learned", 6},
                 {"token_context", 7}, {"divergence_quantile", 7}, {"divergence_position", 7}, {"divergence_token", 7},
                 {"run_stage", 8}};

/* Up to version 4 the columns nll, kl and top1 held an encoder's error, 1 - cosine and rank correlation; version 8 had
 * no forecast of a stage. */
static const calm_store_former formers[] = {
    {"run_stage", "run_id, position, stage, seconds, cpu_seconds", 8, 9},
    {"ablation", "run_id, subject, kind, unit, metric, rule, bits, seconds, differs, failure, evaluation_id,"
                 " delta_kl, delta_se", 3, 5},
    {"run_evaluation", "run_id, role, subject, evaluation_id, delta_kl, delta_se", 1, 5},
    {"encoding", "evaluation_id, sentences, pairs, error, cosine, cosine_min, spearman", 2, 5},
    {"evaluation_window", "evaluation_id, number, tokens, nll, kl, top1", 1, 5},
    {"evaluation", "id, key, model_id, subject, text_name, text_digest, window_tokens, n_windows, tokens, nll, ppl,"
                   " kl, top1, created_at", 1, 5},
};

const calm_store_former *calm_store_formers(size_t *n)
{
    *n = sizeof formers / sizeof *formers;
    return formers;
}

/* Returns the form that the table `name` must have in `version`; NULL: today's. */
static const calm_store_former *former_of(const char *name, int64_t version)
{
    for (size_t i = 0; i < sizeof formers / sizeof *formers; i++)
        if (name && strcmp(formers[i].name, name) == 0 && version < formers[i].until)
            return &formers[i];
    return NULL;
}

static bool added_since(const char *name, int64_t version)
{
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++)
        if (name && strcmp(additions[i].name, name) == 0)
            return additions[i].version > version;
    return false;
}

/* Sets *sound to whether the database has this object of the schema in the form of `version`. */
static calm_status check_object(calm_ctx *ctx, calm_sql *sql, calm_statement *object, int64_t version,
                                const char **name, bool *sound)
{
    const char *type;
    int64_t there = 0, same = 0;
    CALM_TRY(calm_sql_text(ctx, object, 0, name));
    CALM_TRY(calm_sql_text(ctx, object, 2, &type));
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1", CALM_BIND(CALM_T(*name)),
                             &there));
    const calm_store_former *former = former_of(*name, version);
    if (former && there) {
        /* Former tables are compared only by their columns in order; today's by their SQL text with its comments. */
        CALM_TRY(calm_sql_number(ctx, sql, "SELECT group_concat(name, ', ') = ?2 FROM pragma_table_info(?1)",
                                 CALM_BIND(CALM_T(*name), CALM_T(former->columns)), &same));
        *sound = same == 1 && version >= former->since;
        return CALM_OK;
    }
    if (former) {
        *sound = version < former->since;
        return CALM_OK;
    }
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1 AND sql = ?2",
                             CALM_BIND(CALM_T(*name), calm_sql_value(object, 1)), &same));
    const bool later =
        version < SCHEMA_VERSION && (strcmp(type, "view") == 0 || (!there && added_since(*name, version)));
    *sound = same == 1 || later;
    return CALM_OK;
}

calm_status calm_store_check(calm_ctx *ctx, calm_sql *sql, const char *path, int64_t version)
{
    CALM_SCOPED_SQL(model);
    CALM_SCOPED_ROWS(rows);
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &model));
    CALM_TRY(calm_sql_script(ctx, model, calm_schema_sql));
    CALM_TRY(calm_sql_first(ctx, model, "SELECT name, sql, type FROM sqlite_master WHERE sql IS NOT NULL", CALM_NONE,
                            &rows));
    while (calm_sql_next(ctx, model, rows)) {
        const char *name;
        bool sound;
        CALM_TRY(check_object(ctx, sql, rows, version, &name, &sound));
        if (!sound)
            return calm_fail(ctx, CALM_EFORMAT, "%s: damaged store: \"%s\" is missing or was changed", path, name);
    }
    return ctx->status;
}
