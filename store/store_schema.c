/* The schema that this program writes, and whether a file has it. */
#include <string.h>

#include "calm_schema_sql.h"
#include "store/store_impl.h"

#define SCHEMA_VERSION 4    /* as in schema.sql */

int calm_store_version(void)
{
    return SCHEMA_VERSION;
}

const char *calm_store_schema(void)
{
    return calm_schema_sql;
}

/* Tables and indexes that version 1 did not have; every migration makes all views anew. */
static const struct addition {
    const char *name;
    int64_t version;    /* the first that has it */
} additions[] = {{"expert", 2}, {"expert_by_calibration", 2}, {"encoding", 2},
                 {"ablation", 3}, {"ablation_by_evaluation", 3},
                 {"environment", 4}, {"gate", 4}};

static bool added_since(const char *name, int64_t version)
{
    for (size_t i = 0; i < sizeof additions / sizeof *additions; i++)
        if (name && strcmp(additions[i].name, name) == 0)
            return additions[i].version > version;
    return false;
}

/* *sound: the database has this object of the schema as it must be in `version`. */
static calm_status check_object(calm_ctx *ctx, calm_sql *sql, calm_statement *object, int64_t version,
                                const char **name, bool *sound)
{
    const char *type;
    int64_t there = 0, same = 0;
    CALM_TRY(calm_sql_text(ctx, object, 0, name));
    CALM_TRY(calm_sql_text(ctx, object, 2, &type));
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1", CALM_BIND(CALM_T(*name)),
                             &there));
    CALM_TRY(calm_sql_number(ctx, sql, "SELECT count(*) FROM sqlite_master WHERE name = ?1 AND sql = ?2",
                             CALM_BIND(CALM_T(*name), calm_sql_value(object, 1)), &same));
    const bool later =
        version < SCHEMA_VERSION && (strcmp(type, "view") == 0 || (!there && added_since(*name, version)));
    *sound = same == 1 || later;
    return CALM_OK;
}

calm_status calm_store_difference(calm_ctx *ctx, calm_sql *sql, int64_t version, const char **out)
{
    calm_sql *model;
    calm_statement *rows;
    *out = NULL;
    CALM_TRY(calm_sql_open(ctx, ":memory:", CALM_SQL_CREATE, &model));
    if (calm_sql_script(ctx, model, calm_schema_sql) == CALM_OK &&
        calm_sql_first(ctx, model, "SELECT name, sql, type FROM sqlite_master WHERE sql IS NOT NULL", CALM_NONE,
                       &rows) == CALM_OK) {
        bool sound = true;
        while (sound && calm_sql_next(ctx, model, rows)) {
            const char *name;
            if (check_object(ctx, sql, rows, version, &name, &sound) != CALM_OK)
                break;
            *out = sound ? NULL : name;
        }
        calm_sql_end(rows);
    }
    calm_sql_close(model);
    return ctx->status;
}
