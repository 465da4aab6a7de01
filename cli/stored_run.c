/* Runs and their pools, read back from the store. */
#include "cli/stored_run.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithm.h"

/* Most entries of a pool: more is not a run of calm. */
#define MAX_ENTRIES ((size_t)4096)

/* ---- the run ---- */

calm_status calm_stored_run_number(calm_ctx *ctx, const char *owner, const char *word, int64_t *run)
{
    char *end;
    errno = 0;
    const long long value = strtoll(word, &end, 10);
    if (!isdigit((unsigned char)word[0]) || *end || errno || value < 1)
        return calm_fail(ctx, CALM_EARG, "calm %s: RUN \"%s\": expected a number from 1; see calm inspect", owner,
                         word);
    *run = value;
    return CALM_OK;
}

static calm_status no_such_run(calm_ctx *ctx, calm_store *store, int64_t run)
{
    calm_value newest;
    calm_ctx_forgive(ctx);
    CALM_TRY(calm_store_query_one(ctx, store, "SELECT max(id) FROM run", NULL, 0, &newest, 1));
    if (newest.type != CALM_VALUE_INTEGER)
        return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; it has no runs", calm_store_path(store),
                         (long long)run);
    return calm_fail(ctx, CALM_ENOTFOUND, "%s: no run %lld; the newest is %lld", calm_store_path(store), (long long)run,
                     (long long)newest.integer);
}

static double real_of(const calm_value *value)
{
    return value->type == CALM_VALUE_REAL      ? value->real
           : value->type == CALM_VALUE_INTEGER ? (double)value->integer
                                               : NAN;
}

/* Text, or NULL for anything else: SQLite lets a cell have any type. */
static const char *text_of(const calm_value *value)
{
    return value->type == CALM_VALUE_TEXT ? value->text : NULL;
}

static int64_t int_of(const calm_value *value)
{
    return value->type == CALM_VALUE_INTEGER ? value->integer : 0;
}

calm_status calm_stored_run_read(calm_ctx *ctx, calm_store *store, int64_t run, calm_stored_run *out)
{
    static const char sql[] =
        "SELECT r.model_id, r.calibration_id, r.key, r.status, r.unit, r.rule, r.metric, r.result, r.reason,"
        " r.bits_per_weight, r.bytes_after, r.recipe, m.digest, m.name, m.path"
        " FROM run r JOIN model m ON m.id = r.model_id WHERE r.id = ?1";
    const calm_value id = calm_value_int(run);
    calm_value v[15];
    *out = (calm_stored_run){.id = run};
    const calm_status status = calm_store_query_one(ctx, store, sql, &id, 1, v, 15);
    if (status == CALM_ENOTFOUND)
        return no_such_run(ctx, store, run);
    CALM_TRY(status);
    out->model_id = int_of(&v[0]);
    out->calibration_id = int_of(&v[1]);
    out->bits_per_weight = real_of(&v[9]);
    out->bytes_after = int_of(&v[10]);
    const char **const texts[] = {&out->key, &out->status, &out->unit, &out->rule, &out->metric, &out->result,
                                  &out->reason};
    for (size_t i = 0; i < 7; i++)
        *texts[i] = text_of(&v[2 + i]);
    out->recipe_text = text_of(&v[11]);
    out->model_digest = text_of(&v[12]);
    out->model_name = text_of(&v[13]);
    out->model_path = text_of(&v[14]);
    if (!out->key || !out->status || !out->unit || !out->recipe_text || !out->model_digest || !out->model_name)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld lacks a text", calm_store_path(store), (long long)run);
    char *name;
    CALM_TRY(calm_strf(ctx, ctx->scratch, &name, "%s: recipe of run %lld", calm_store_path(store), (long long)run));
    CALM_TRY(calm_json_parse(ctx, name, out->recipe_text, strlen(out->recipe_text), &out->recipe));
    if (calm_json_typeof(out->recipe) != CALM_JSON_OBJECT)
        return calm_fail(ctx, CALM_EFORMAT, "%s: expected an object", name);
    return CALM_OK;
}

void calm_stored_run_clear(calm_stored_run *run)
{
    calm_json_free(run->recipe);
    run->recipe = NULL;
}

/* ---- reading the pool ---- */

/* A candidate as it comes from the store. */
typedef struct raw_row {
    int64_t job_id;
    size_t entry;
    calm_solve_row row;
} raw_row;

typedef struct reading {
    calm_store *store;
    const calm_stored_run *run;
    const calm_pool_how *how;
    calm_solve_entry *entries;
    size_t n_entries, entry_room;
    bool several;              /* schemes                                            */
    raw_row *raw;              /* [n_raw] by rising candidate                        */
    size_t n_raw, raw_room;
    calm_solve_job *jobs;      /* [n_jobs]                                           */
    size_t n_jobs, job_room;
    calm_solve_row *rows;      /* [n_jobs][n_entries]                                */
    calm_solve_row **of_raw;   /* [n_raw] where that candidate lies                  */
    size_t at;                 /* of raw: the scores come in the same order          */
    bool light;                /* the run left out what it need not try              */
    size_t n_expected;         /* jobs of the blocks that the run is about           */
} reading;

static calm_status contradiction(calm_ctx *ctx, const reading *r, const char *what, int64_t candidate)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld: candidate %lld %s", calm_store_path(r->store),
                     (long long)r->run->id, (long long)candidate, what);
}

static calm_status copy_text(calm_ctx *ctx, const calm_value *value, const char **out)
{
    char *text;
    *out = NULL;
    if (value->type != CALM_VALUE_TEXT)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", value->text));
    *out = text;
    return CALM_OK;
}

/* ---- entries ---- */

/* One more entry; the algorithm is parsed for what the activation rule asks, and one of another version is none. */
static calm_status add_entry(calm_ctx *ctx, reading *r, const char *algorithm, const char *chain, const char *scheme,
                             size_t *out)
{
    calm_algorithm *parsed;
    if (r->n_entries == MAX_ENTRIES)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has more than %zu algorithms and schemes",
                         calm_store_path(r->store), (long long)r->run->id, MAX_ENTRIES);
    if (r->n_entries == r->entry_room) {
        calm_solve_entry *more;
        r->entry_room = 2 * r->entry_room + 16;
        CALM_TRY(CALM_NEW(ctx, ctx->out, more, r->entry_room));
        if (r->n_entries)
            memcpy(more, r->entries, r->n_entries * sizeof *more);
        r->entries = more;
    }
    calm_solve_entry *entry = &r->entries[r->n_entries];
    char *text;
    *entry = (calm_solve_entry){0};
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", algorithm));
    entry->algorithm = text;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", chain));
    entry->chain = text;
    if (calm_scheme_parse(ctx, scheme, &entry->scheme) != CALM_OK || entry->scheme.bits == 0) {
        calm_ctx_forgive(ctx);
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld: \"%s\" is no scheme that this calm knows",
                         calm_store_path(r->store), (long long)r->run->id, scheme);
    }
    calm_scheme_name(&entry->scheme, entry->scheme_name);
    if (calm_algorithm_parse(ctx, algorithm, &parsed) == CALM_OK)
        entry->smooths = calm_algorithm_caps(parsed) & CALM_SETS_IN_SCALE;
    calm_ctx_forgive(ctx);
    *out = r->n_entries++;
    return CALM_OK;
}

/* Can it be in a pool of several schemes?  What this calm does not know is taken at its word. */
static bool may_reach(calm_ctx *ctx, const char *algorithm, const char *scheme_name)
{
    calm_algorithm *parsed;
    calm_scheme scheme;
    const bool known = calm_algorithm_parse(ctx, algorithm, &parsed) == CALM_OK &&
                       calm_scheme_parse(ctx, scheme_name, &scheme) == CALM_OK;
    const bool reaches = !known || calm_algorithm_reaches(ctx, parsed, &scheme) == CALM_OK;
    calm_ctx_forgive(ctx);
    return reaches;
}

/* The recipe's own order: scheme after scheme, each with its algorithms.  What it does not list (an older recipe)
 * follows in the order of its candidates. */
static calm_status list_recipe(calm_ctx *ctx, reading *r)
{
    const calm_json *recipe = r->run->recipe, *schemes = calm_json_get(recipe, "schemes");
    const calm_json *algorithms = calm_json_get(recipe, "algorithms");
    const char *one = calm_json_string(calm_json_get(recipe, "scheme"), NULL);
    const size_t n_schemes = one ? 1 : calm_json_size(schemes), n = calm_json_size(algorithms);
    size_t entry;
    for (size_t s = 0; s < n_schemes; s++)
        for (size_t a = 0; a < n; a++) {
            const calm_json *algorithm = calm_json_at(algorithms, a);
            const char *scheme = one ? one : calm_json_string(calm_json_at(schemes, s), NULL);
            const char *name = calm_json_string(calm_json_get(algorithm, "name"), NULL);
            const char *chain = calm_json_string(calm_json_get(algorithm, "chain"), NULL);
            if (scheme && name && chain && (n_schemes == 1 || may_reach(ctx, name, scheme)))
                CALM_TRY(add_entry(ctx, r, name, chain, scheme, &entry));
        }
    r->several = n_schemes > 1;
    return CALM_OK;
}

/* The entry of a candidate: of its chain; of "rtn for gptq", which an expert with too few tokens has, that of gptq. */
static calm_status find_entry(calm_ctx *ctx, reading *r, const char *name, const char *chain, const char *scheme,
                              size_t *out)
{
    const char *asked = strstr(name, " for ");
    for (size_t i = 0; i < r->n_entries; i++) {
        const calm_solve_entry *entry = &r->entries[i];
        if (strcmp(entry->scheme_name, scheme) != 0)
            continue;
        if (asked ? strcmp(entry->algorithm, asked + 5) == 0 : strcmp(entry->chain, chain) == 0) {
            *out = i;
            return CALM_OK;
        }
    }
    if (asked)    /* an earlier run may have called the same chain otherwise */
        for (size_t i = 0; i < r->n_entries; i++) {
            calm_algorithm *parsed;
            const bool same = strcmp(r->entries[i].scheme_name, scheme) == 0 &&
                              calm_algorithm_parse(ctx, asked + 5, &parsed) == CALM_OK &&
                              strcmp(calm_algorithm_canonical(parsed), r->entries[i].chain) == 0;
            calm_ctx_forgive(ctx);
            if (same) {
                *out = i;
                return CALM_OK;
            }
        }
    return add_entry(ctx, r, asked ? asked + 5 : name, asked ? asked + 5 : chain, scheme, out);
}

/* ---- candidates ---- */

static calm_status add_raw(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *v)
{
    reading *r = user;
    (void)n;
    (void)names;
    if (!v)
        return CALM_OK;
    if (r->n_raw == r->raw_room)
        return contradiction(ctx, r, "came while the store was read", int_of(&v[0]));
    raw_row *raw = &r->raw[r->n_raw++];
    *raw = (raw_row){.job_id = int_of(&v[1]),
                     .row = {.id = int_of(&v[0]), .blob_bytes = int_of(&v[8]), .metric = NAN, .tie = NAN,
                             .probe = NAN}};
    if (!text_of(&v[2]) || !text_of(&v[3]) || !text_of(&v[4]) || !text_of(&v[5]))
        return contradiction(ctx, r, "lacks a name", raw->row.id);
    CALM_TRY(copy_text(ctx, &v[5], &raw->row.key));
    CALM_TRY(copy_text(ctx, &v[6], &raw->row.failure));
    CALM_TRY(copy_text(ctx, &v[7], &raw->row.blob));
    if (!raw->row.failure && !raw->row.blob)
        return contradiction(ctx, r, "has neither a result nor a failure", raw->row.id);
    return find_entry(ctx, r, v[2].text, v[3].text, v[4].text, &raw->entry);
}

static calm_status nothing_competed(calm_ctx *ctx, const reading *r)
{
    const calm_stored_run *run = r->run;
    return calm_fail(ctx, CALM_ENOTFOUND,
                     "%s: run %lld (%s%s%s) has no candidates: the same calm quantize goes on where it "
                                          "stopped", calm_store_path(r->store), (long long)run->id, run->status,
                     run->reason ? ": " : "", run->reason ? run->reason : "");
}

static calm_status read_candidates(calm_ctx *ctx, reading *r)
{
    const calm_value run = calm_value_int(r->run->id);
    calm_value count;
    CALM_TRY(calm_store_query_one(ctx, r->store, "SELECT count(*) FROM run_candidate WHERE run_id = ?1", &run, 1,
                                  &count, 1));
    r->raw_room = (size_t)int_of(&count);
    if (!r->raw_room)
        return nothing_competed(ctx, r);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->raw, r->raw_room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->of_raw, r->raw_room));
    return calm_store_query(ctx, r->store,
                            "SELECT k.id, k.job_id, a.name, a.chain, k.scheme, k.key, k.failure, k.blob, k.blob_bytes"
                            " FROM run_candidate rc CROSS JOIN candidate k ON k.id = rc.candidate_id"
                            " CROSS JOIN algorithm a ON a.id = k.algorithm_id WHERE rc.run_id = ?1"
                            " ORDER BY rc.candidate_id",
                            &run, 1, add_raw, r);
}

/* Entries of one scheme side by side, in the order in which schemes and entries came; names as people know them. */
static calm_status sort_entries(calm_ctx *ctx, reading *r, size_t *n_schemes)
{
    calm_solve_entry *sorted;
    size_t *place, n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, sorted, r->n_entries));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, place, r->n_entries));
    *n_schemes = 0;
    for (size_t i = 0; i < r->n_entries; i++) {
        bool first = true;
        for (size_t j = 0; j < i && first; j++)
            first = strcmp(r->entries[j].scheme_name, r->entries[i].scheme_name) != 0;
        for (size_t j = i; j < r->n_entries && first; j++)
            if (strcmp(r->entries[j].scheme_name, r->entries[i].scheme_name) == 0) {
                sorted[n] = r->entries[j];
                sorted[n].of_scheme = *n_schemes;
                place[j] = n++;
            }
        *n_schemes += first;
    }
    for (size_t i = 0; i < n; i++) {
        char *name;
        const bool several = r->several || *n_schemes > 1;
        CALM_TRY(calm_strf(ctx, ctx->out, &name, "%s%s%s", sorted[i].algorithm, several ? " " : "",
                           several ? sorted[i].scheme_name : ""));
        sorted[i].name = name;
    }
    for (size_t i = 0; i < r->n_raw; i++)
        r->raw[i].entry = place[r->raw[i].entry];
    r->entries = sorted;
    return CALM_OK;
}

/* Take away what is named and was not tried on any job: a pair that the recipe forbids, where others have its
 * algorithm or scheme.  Of a light run it may have been left out everywhere. */
static void drop_untried(reading *r)
{
    bool tried[MAX_ENTRIES] = {false};
    size_t place[MAX_ENTRIES], n = 0;
    for (size_t i = 0; i < r->n_raw; i++)
        tried[r->raw[i].entry] = true;
    for (size_t i = 0; i < r->n_entries; i++) {
        place[i] = n;
        if (tried[i] || r->light)
            r->entries[n++] = r->entries[i];
    }
    for (size_t i = 0; i < r->n_raw; i++)
        r->raw[i].entry = place[r->raw[i].entry];
    r->n_entries = n;
}

/* ---- jobs ---- */

/* Name of the unit of a job, as calm_layout_unit_name makes it. */
static calm_status name_unit(calm_ctx *ctx, calm_unit unit, const char *block, const char *sublayer, const char *role,
                             const char *name, const char **out)
{
    const char *dot = strrchr(name, '.');
    char *text;
    if (unit == CALM_UNIT_JOB)
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", name));
    else if (unit == CALM_UNIT_BLOCK)
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s", block));
    else if (strchr(role, '.') && dot)    /* experts.3.down, shared_expert.down: the expert */
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%.*s", (int)(dot - name), name));
    else
        CALM_TRY(calm_strf(ctx, ctx->out, &text, "%s.%s", block, sublayer));
    *out = text;
    return CALM_OK;
}

static calm_status add_job(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *v)
{
    reading *r = user;
    (void)n;
    (void)names;
    if (!v)
        return CALM_OK;
    if (r->n_jobs == r->job_room || int_of(&v[6]) < 1 || int_of(&v[7]) < 1 || int_of(&v[6]) > INT32_MAX ||
        int_of(&v[7]) > INT32_MAX || !text_of(&v[1]) || !text_of(&v[2]) || !text_of(&v[3]) || !text_of(&v[4]))
        return calm_fail(ctx, CALM_EFORMAT, "%s: job %lld is not one of calm's", calm_store_path(r->store),
                         (long long)int_of(&v[0]));
    const calm_json *blocks = calm_json_get(r->run->recipe, "blocks");
    r->n_expected += int_of(&v[5]) >= calm_json_int(calm_json_at(blocks, 0), 0) &&
                     int_of(&v[5]) <= calm_json_int(calm_json_at(blocks, 1), INT64_MAX);
    calm_solve_job *job = &r->jobs[r->n_jobs++];
    *job = (calm_solve_job){.id = int_of(&v[0]), .out = (size_t)int_of(&v[6]), .in = (size_t)int_of(&v[7]),
                            .crest = real_of(&v[8]), .chosen = int_of(&v[9])};
    CALM_TRY(copy_text(ctx, &v[1], &job->name));
    CALM_TRY(copy_text(ctx, &v[2], &job->role));
    return name_unit(ctx, r->how->unit, v[4].text, v[3].text, job->role, job->name, &job->unit);
}

static calm_status read_jobs(calm_ctx *ctx, reading *r)
{
    const calm_value params[] = {calm_value_int(r->run->model_id), calm_value_int(r->run->id),
                                 calm_value_int(r->run->calibration_id)};
    calm_value count;
    CALM_TRY(calm_store_query_one(ctx, r->store, "SELECT count(*) FROM job j JOIN block b ON b.id = j.block_id"
                                  " WHERE b.model_id = ?1", params, 1, &count, 1));
    r->job_room = (size_t)int_of(&count);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->jobs, r->job_room));
    return calm_store_query(ctx, r->store,
                            "SELECT j.id, j.name, j.role, j.sublayer, b.name, b.number, j.out_features, j.in_features,"
                            " x.crest_median, c.candidate_id"
                            " FROM block b CROSS JOIN job j ON j.block_id = b.id"
                            " LEFT JOIN activation x ON x.model_id = ?1 AND x.calibration_id = ?3"
                            " AND x.hook = j.input_hook"
                            " LEFT JOIN choice c ON c.run_id = ?2 AND c.job_id = j.id"
                            " WHERE b.model_id = ?1 ORDER BY b.number, j.position, j.id",
                            params, 3, add_job, r);
}

/* Job ids with their places, for finding. */
typedef struct job_place {
    int64_t id;
    size_t at;
    bool used;
} job_place;

static int compare_places(const void *a, const void *b)
{
    const job_place *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static job_place *find_place(job_place *places, size_t n, int64_t id)
{
    const job_place wanted = {.id = id};
    return bsearch(&wanted, places, n, sizeof *places, compare_places);
}

/* Every candidate to its job and entry; jobs without any are not of the run (--blocks). */
static calm_status place_rows(calm_ctx *ctx, reading *r)
{
    job_place *places;
    size_t n_used = 0, cells, *now;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, places, r->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, now, r->n_jobs));
    for (size_t i = 0; i < r->n_jobs; i++)
        places[i] = (job_place){.id = r->jobs[i].id, .at = i};
    qsort(places, r->n_jobs, sizeof *places, compare_places);
    for (size_t i = 0; i < r->n_raw; i++) {
        job_place *place = find_place(places, r->n_jobs, r->raw[i].job_id);
        if (!place)
            return contradiction(ctx, r, "is of another model", r->raw[i].row.id);
        place->used = true;
    }
    for (size_t i = 0; i < r->n_jobs; i++) {
        now[i] = n_used;
        if (find_place(places, r->n_jobs, r->jobs[i].id)->used)
            r->jobs[n_used++] = r->jobs[i];
    }
    if (!calm_size_mul(&cells, n_used, r->n_entries))
        return calm_fail(ctx, CALM_ENOMEM, "%zu jobs of %zu candidates", n_used, r->n_entries);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->rows, cells));
    for (size_t i = 0; i < cells; i++)
        r->rows[i] = (calm_solve_row){.metric = NAN, .tie = NAN, .probe = NAN};
    for (size_t i = 0; i < r->n_raw; i++) {
        const size_t job = now[find_place(places, r->n_jobs, r->raw[i].job_id)->at];
        r->of_raw[i] = &r->rows[job * r->n_entries + r->raw[i].entry];
        *r->of_raw[i] = r->raw[i].row;    /* of two, the later */
    }
    r->n_jobs = n_used;
    return CALM_OK;
}

/* A run that did not come to its end may lack candidates: choosing among the others would be a plan of half a model. */
static calm_status check_complete(calm_ctx *ctx, const reading *r)
{
    size_t n_missing = r->n_expected > r->n_jobs ? (r->n_expected - r->n_jobs) * r->n_entries : 0;
    if (strcmp(r->run->status, "finished") == 0)
        return CALM_OK;
    for (size_t i = 0; i < r->n_jobs * r->n_entries && !r->light; i++)
        n_missing += !r->rows[i].id;
    return !n_missing ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND,
                                            "%s: run %lld (%s) stopped %zu candidates before it had all: "
                                            "the same calm quantize goes on there", calm_store_path(r->store),
                                            (long long)r->run->id, r->run->status, n_missing);
}

/* ---- scores ---- */

static calm_status add_score(calm_ctx *ctx, void *user, size_t n, const char *const *names, const calm_value *v)
{
    reading *r = user;
    const calm_pool_how *how = r->how;
    (void)n;
    (void)names;
    if (!v)
        return CALM_OK;
    while (r->at < r->n_raw && r->raw[r->at].row.id < int_of(&v[0]))
        r->at++;
    if (r->at == r->n_raw || r->raw[r->at].row.id != int_of(&v[0]) || !text_of(&v[1]))
        return contradiction(ctx, r, "came while the store was read", int_of(&v[0]));
    calm_solve_row *row = r->of_raw[r->at];
    if (row->id != int_of(&v[0]))    /* a later one took its place */
        return CALM_OK;
    if (strcmp(v[1].text, calm_score_name(how->point, how->score)) == 0)
        row->metric = real_of(&v[2]);
    if (strcmp(v[1].text, calm_score_name(how->point, CALM_METRIC_LOG_REL_MSE)) == 0)
        row->tie = real_of(&v[2]);
    if (strcmp(v[1].text, calm_score_name(calm_unit_point(how->unit), CALM_SCORE_PROBE_KL)) == 0)
        row->probe = real_of(&v[2]);
    return CALM_OK;
}

static calm_status read_scores(calm_ctx *ctx, reading *r)
{
    const calm_pool_how *how = r->how;
    const calm_value params[] = {calm_value_int(r->run->id), calm_value_text(calm_unit_name(how->unit)),
                                 calm_value_text(calm_score_name(how->point, how->score)),
                                 calm_value_text(calm_score_name(how->point, CALM_METRIC_LOG_REL_MSE)),
                                 calm_value_text(calm_score_name(calm_unit_point(how->unit), CALM_SCORE_PROBE_KL))};
    return calm_store_query(ctx, r->store,
                            "SELECT rc.candidate_id, s.metric, s.value FROM run_candidate rc CROSS JOIN score s"
                            " ON s.candidate_id = rc.candidate_id WHERE rc.run_id = ?1 AND s.unit = ?2"
                            " AND s.metric IN (?3, ?4, ?5) ORDER BY rc.candidate_id",
                            params, 5, add_score, r);
}

calm_status calm_stored_pool(calm_ctx *ctx, calm_store *store, const calm_stored_run *run, const calm_pool_how *how,
                             calm_solve_pool *out)
{
    reading r = {.store = store, .run = run, .how = how};
    size_t n_schemes;
    r.light = strcmp(calm_json_string(calm_json_get(calm_json_get(run->recipe, "choice"), "effort"), ""), "light") == 0;
    CALM_TRY(list_recipe(ctx, &r));
    CALM_TRY(read_candidates(ctx, &r));
    drop_untried(&r);
    CALM_TRY(sort_entries(ctx, &r, &n_schemes));
    CALM_TRY(read_jobs(ctx, &r));
    CALM_TRY(place_rows(ctx, &r));
    CALM_TRY(check_complete(ctx, &r));
    CALM_TRY(read_scores(ctx, &r));
    *out = (calm_solve_pool){.entries = r.entries, .n_entries = r.n_entries, .n_schemes = n_schemes, .jobs = r.jobs,
                             .n_jobs = r.n_jobs, .rows = r.rows, .unit = how->unit, .rule = how->rule,
                             .metric = calm_score_name(how->point, how->score)};
    return CALM_OK;
}

/* ---- what was chosen ---- */

calm_status calm_stored_pins(calm_ctx *ctx, const calm_stored_run *run, calm_solve_pin **pins, size_t *n)
{
    const calm_json *object = calm_json_get(calm_json_get(run->recipe, "choice"), "pins"), *value;
    const char *unit;
    *n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *pins, calm_json_size(object) + 1));
    /* A name counts more than a pattern, and of several the last counts. */
    for (int names = 0; names < 2; names++) {
        void *iter = NULL;
        while (calm_json_typeof(object) == CALM_JSON_OBJECT && calm_json_next(object, &iter, &unit, &value)) {
            const char *candidate = calm_json_string(value, NULL);
            if (candidate && names == !unit[strcspn(unit, "*?[")])
                (*pins)[(*n)++] = (calm_solve_pin){unit, candidate, true};
        }
    }
    return CALM_OK;
}

calm_status calm_stored_choice(calm_ctx *ctx, const calm_stored_run *run, const calm_solve_pool *pool, size_t **choice)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *choice, pool->n_jobs));
    for (size_t job = 0; job < pool->n_jobs; job++) {
        const calm_solve_job *of = &pool->jobs[job];
        size_t entry = 0;
        while (entry < pool->n_entries && calm_solve_at(pool, job, entry)->id != of->chosen)
            entry++;
        if (of->chosen && entry == pool->n_entries)
            return calm_fail(ctx, CALM_EFORMAT, "run %lld: candidate %lld, chosen for %s, did not compete there",
                             (long long)run->id, (long long)of->chosen, of->name);
        (*choice)[job] = of->chosen ? entry : SIZE_MAX;
    }
    return CALM_OK;
}

const char *calm_stored_advice(const calm_solve_pool *pool, size_t job, size_t entry, bool *disagrees)
{
    bool any = false;
    *disagrees = false;
    for (size_t i = 0; i < pool->n_entries; i++)
        any |= pool->entries[i].smooths;
    const char *advice = any && pool->entries[entry].scheme.act_bits ? calm_pick_advice(pool->jobs[job].crest) : NULL;
    *disagrees = advice && pool->entries[entry].smooths != (strcmp(advice, "smooth") == 0);
    return advice;
}
