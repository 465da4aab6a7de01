/* Pools, read back from the store.
 *
 * Candidates, jobs and scores come from three queries and meet in one table of cells, [n_jobs][n_entries].  The store
 * is a file that people may have edited, merged or damaged: whatever contradicts itself is an error that names the
 * candidate, and no number of a row is an index before it was checked. */
#include "ptq/stored/stored_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "algorithms/algorithm.h"
#include "ptq/base/array.h"
#include "ptq/quant/mix.h"

/* Most entries of a pool: more is not a run of calm.  It bounds arrays on the stack below. */
#define MAX_ENTRIES ((size_t)1000)

/* ---- reading the pool ---- */

/* A candidate as it comes from the store. */
typedef struct raw_row {
    int64_t job_id;
    size_t entry;
    calm_scheme scheme;        /* with a GGUF mix: type of the job               */
    calm_pool_cell cell;
    calm_stored_run_cell more;
} raw_row;

/* The state of reading, filled by the queries' callbacks in the order of the members. */
typedef struct reading {
    calm_store *store;
    const calm_stored_run *run;
    const calm_pool_query *query;
    calm_pool_entry *entries;
    size_t n_entries, entry_room;
    bool several;              /* the run has several schemes                        */
    calm_scheme mix;           /* the run's only scheme if it is a GGUF mix; .mix 0: it is not */
    raw_row *raw;              /* [n_raw] candidates by rising id                    */
    size_t n_raw, raw_room;
    calm_pool_job *jobs;       /* [n_jobs]                                           */
    calm_stored_run_choice *choices;    /* [n_jobs] choice of each job               */
    size_t n_jobs, job_room;
    calm_pool_cell *cells;     /* [n_jobs][n_entries]                                */
    calm_stored_run_cell *more;    /* [n_jobs][n_entries]                            */
    calm_pool_cell **of_raw;   /* [n_raw] cell of each candidate                     */
    size_t at;                 /* index into raw: scores come in the same order      */
    bool light;                /* the run skipped candidates (--effort light)        */
    bool gradient;             /* the run's sensitivities are from gradients         */
    size_t n_expected;         /* jobs in the run's blocks                           */
    const char *tie, *probe;   /* names of the tie metric and the probe              */
} reading;

/* Fails because of a row that contradicts others; the message has file, run and candidate. */
static calm_status contradiction(calm_ctx *ctx, const reading *r, const char *what, int64_t candidate)
{
    return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld: candidate %lld %s", calm_store_path(r->store),
                     (long long)r->run->id, (long long)candidate, what);
}

/* Returns the run's only scheme if it is a GGUF mix. */
static calm_scheme mix_of(const calm_stored_run *run)
{
    calm_scheme out;
    if (calm_mix_find(calm_json_string(calm_json_get(run->recipe, "scheme"), ""), &out))
        return out;
    return (calm_scheme){.symmetric = true};
}

/* ---- entries ---- */

/* Adds an entry.  An algorithm of another version is no error, because its candidates exist and may be chosen; it is
 * only parsed for the activation rule.  An unknown scheme is an error, because its bits are unknown. */
static calm_status add_entry(calm_ctx *ctx, reading *r, const char *algorithm, const char *chain, const char *scheme,
                             size_t *out)
{
    calm_algorithm *parsed;
    if (r->n_entries == MAX_ENTRIES)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld has more than %zu algorithms and schemes",
                         calm_store_path(r->store), (long long)r->run->id, MAX_ENTRIES);
    CALM_TRY(CALM_GROW(ctx, ctx->out, r->entries, r->n_entries, &r->entry_room, r->n_entries + 1));
    calm_pool_entry *entry = &r->entries[r->n_entries];
    *entry = (calm_pool_entry){0};
    /* Rows are valid only during the query, so kept texts are copied to ctx->out. */
    CALM_TRY(calm_strf(ctx, ctx->out, &entry->algorithm, "%s", algorithm));
    CALM_TRY(calm_strf(ctx, ctx->out, &entry->chain, "%s", chain));
    CALM_TRY(calm_strf(ctx, ctx->out, &entry->scheme_name, "%s", scheme));
    const bool known = calm_scheme_parse(ctx, scheme, &entry->scheme) == CALM_OK;
    calm_ctx_clear_failure(ctx);
    if (!known && !r->query->partial)
        return calm_fail(ctx, CALM_EFORMAT, "%s: run %lld: \"%s\" is no scheme that this calm knows",
                         calm_store_path(r->store), (long long)r->run->id, scheme);
    if (calm_algorithm_parse(ctx, algorithm, &parsed) == CALM_OK)
        entry->smooths = calm_algorithm_smooths(parsed);
    calm_ctx_clear_failure(ctx);
    *out = r->n_entries++;
    return CALM_OK;
}

/* Returns true if the algorithm can be in a pool with this scheme: recipes leave out pairs that cannot work.  Unknown
 * names are assumed to work. */
static bool may_reach(calm_ctx *ctx, const char *algorithm, const char *scheme_name)
{
    calm_algorithm *parsed;
    calm_scheme scheme;
    const bool known = calm_algorithm_parse(ctx, algorithm, &parsed) == CALM_OK &&
                       calm_scheme_parse(ctx, scheme_name, &scheme) == CALM_OK;
    const bool reaches = !known || calm_algorithm_reaches(ctx, parsed, &scheme) == CALM_OK;
    calm_ctx_clear_failure(ctx);
    return reaches;
}

/* Lists the entries in the recipe's order, by scheme, then by algorithm.  Entries that it lacks (an older recipe)
 * follow in the order of their candidates. */
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
            const char *chain = calm_json_string(calm_json_get(algorithm, "chain"), "");
            if (scheme && name && (n_schemes == 1 || may_reach(ctx, name, scheme)))
                CALM_TRY(add_entry(ctx, r, name, chain, scheme, &entry));
        }
    r->several = n_schemes > 1;
    return CALM_OK;
}

/* Finds the entry of a candidate by its chain; "rtn for gptq", of an expert with too few tokens, belongs to gptq. */
static calm_status find_entry(calm_ctx *ctx, reading *r, const char *name, const char *chain, const char *scheme,
                              size_t *out)
{
    /* Chains identify an entry, names do not: a preset may have got another name or other options since the run. */
    const char *asked = strstr(name, " for ");
    for (size_t i = 0; i < r->n_entries; i++) {
        const calm_pool_entry *entry = &r->entries[i];
        if (strcmp(entry->scheme_name, scheme) != 0)
            continue;
        const bool unknown = !entry->chain[0];    /* an older recipe has only names of algorithms */
        if (asked || unknown ? strcmp(entry->algorithm, asked ? asked + 5 : name) == 0
                             : strcmp(entry->chain, chain) == 0) {
            *out = i;
            return unknown && !asked ? calm_strf(ctx, ctx->out, &r->entries[i].chain, "%s", chain) : CALM_OK;
        }
    }
    calm_algorithm *parsed;
    if (asked && calm_algorithm_parse(ctx, asked + 5, &parsed) == CALM_OK)
        for (size_t i = 0; i < r->n_entries; i++)    /* an earlier run may have had another name for the chain */
            if (strcmp(r->entries[i].scheme_name, scheme) == 0 &&
                strcmp(calm_algorithm_canonical(parsed), r->entries[i].chain) == 0) {
                *out = i;
                return CALM_OK;
            }
    calm_ctx_clear_failure(ctx);
    return add_entry(ctx, r, asked ? asked + 5 : name, asked ? asked + 5 : chain, scheme, out);
}

/* ---- candidates ---- */

/* Adds a candidate of the run.  Several runs share candidates, so the names in this run's recipe decide the name of the
 * entry. */
static calm_status add_raw(calm_ctx *ctx, void *user, const calm_value *v)
{
    reading *r = user;
    if (r->n_raw == r->raw_room)    /* more rows than were counted */
        return contradiction(ctx, r, "came while the store was read", calm_value_as_int(&v[0]));
    raw_row *raw = &r->raw[r->n_raw++];
    *raw = (raw_row){.job_id = calm_value_as_int(&v[1]), .more.bits_per_weight = calm_value_as_real(&v[9]),
                     .cell = {.id = calm_value_as_int(&v[0]), .blob_bytes = calm_value_as_int(&v[8]), .metric = NAN,
                              .tie = NAN, .probe = NAN}};
    if (!calm_value_as_string(&v[2]) || !calm_value_as_string(&v[3]) || !calm_value_as_string(&v[4])
        || !calm_value_as_string(&v[5]))
        return contradiction(ctx, r, "has no name", raw->cell.id);
    CALM_TRY(calm_value_copy(ctx, &v[2], &raw->more.algorithm));
    CALM_TRY(calm_value_copy(ctx, &v[5], &raw->cell.key));
    CALM_TRY(calm_value_copy(ctx, &v[6], &raw->cell.failure));
    CALM_TRY(calm_value_copy(ctx, &v[7], &raw->cell.blob));
    if (!raw->cell.failure && !raw->cell.blob)
        return contradiction(ctx, r, "has neither a result nor a failure", raw->cell.id);
    if (!r->mix.mix)
        return find_entry(ctx, r, v[2].text, v[3].text, v[4].text, &raw->entry);
    /* The row has the type of one job; entries are of the mix. */
    char name[CALM_SCHEME_NAME_MAX];
    calm_mix_name(&r->mix, name);
    CALM_TRY(calm_scheme_parse(ctx, v[4].text, &raw->scheme));
    return find_entry(ctx, r, v[2].text, v[3].text, name, &raw->entry);
}

/* By rising id, because scores come in the same order.  CROSS JOIN makes SQLite use the tables in the written order:
 * from the run to its candidates, by their keys. */
static calm_status read_candidates(calm_ctx *ctx, reading *r)
{
    const calm_value run = calm_value_int(r->run->id);
    calm_value count;
    CALM_TRY(calm_store_query_one(ctx, r->store, "SELECT count(*) FROM run_candidate WHERE run_id = ?1", &run, 1,
                                  &count, 1));
    r->raw_room = (size_t)calm_value_as_int(&count);
    if (!r->raw_room && !r->query->partial)    /* the run was interrupted before its first candidate */
        return calm_fail(ctx, CALM_ENOTFOUND,
                         "%s: run %lld (%s%s%s) has no candidates: the same calm quantize continues where it stopped",
                         calm_store_path(r->store), (long long)r->run->id, r->run->status, r->run->reason ? ": " : "",
                         r->run->reason ? r->run->reason : "");
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->raw, r->raw_room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->of_raw, r->raw_room));
    return calm_store_each(ctx, r->store,
                           "SELECT k.id, k.job_id, a.name, a.chain, k.scheme, k.key, k.failure, k.blob, k.blob_bytes,"
                           " k.bits_per_weight"
                           " FROM run_candidate rc CROSS JOIN candidate k ON k.id = rc.candidate_id"
                           " CROSS JOIN algorithm a ON a.id = k.algorithm_id WHERE rc.run_id = ?1"
                           " ORDER BY rc.candidate_id",
                           &run, 1, add_raw, r);
}

/* Sorts entries by scheme, in the order in which schemes and entries came, and names them, with the scheme if there are
 * several.  Removes entries that were not tried on any job: pairs that the recipe forbids while other pairs have the
 * same algorithm or scheme.  A light run may have skipped an entry everywhere, so its entries stay.  `place` maps old
 * indices to new ones. */
static calm_status sort_entries(calm_ctx *ctx, reading *r, size_t *n_schemes)
{
    bool tried[MAX_ENTRIES] = {false};
    calm_pool_entry *sorted;
    size_t place[MAX_ENTRIES], n = 0;
    CALM_TRY(CALM_NEW(ctx, ctx->out, sorted, r->n_entries));
    for (size_t i = 0; i < r->n_raw; i++)
        tried[r->raw[i].entry] = true;
    *n_schemes = 0;
    for (size_t i = 0; i < r->n_entries; i++) {
        const size_t before = n;
        bool first = true;
        for (size_t j = 0; j < i && first; j++)    /* true for the first entry of its scheme */
            first = strcmp(r->entries[j].scheme_name, r->entries[i].scheme_name) != 0;
        for (size_t j = i; j < r->n_entries && first; j++)
            if ((tried[j] || r->light) && strcmp(r->entries[j].scheme_name, r->entries[i].scheme_name) == 0) {
                sorted[n] = r->entries[j];
                sorted[n].of_scheme = *n_schemes;
                place[j] = n++;
            }
        *n_schemes += n > before;
    }
    for (size_t i = 0; i < n; i++) {
        const bool several = (r->several || *n_schemes > 1) && strcmp(sorted[i].algorithm, CALM_FLOAT) != 0;
        CALM_TRY(calm_strf(ctx, ctx->out, &sorted[i].name, "%s%s%s", sorted[i].algorithm, several ? " " : "",
                           several ? sorted[i].scheme_name : ""));
    }
    for (size_t i = 0; i < r->n_raw; i++)
        r->raw[i].entry = place[r->raw[i].entry];
    r->entries = sorted;
    r->n_entries = n;
    return CALM_OK;
}

/* ---- jobs ---- */

/* Returns the name of a job's unit, as calm_layout_unit_name does with a layout; here block, sublayer and role are
 * columns. */
static calm_status name_unit(calm_ctx *ctx, calm_unit unit, const char *block, const char *sublayer, const char *role,
                             const char *name, const char **out)
{
    const char *dot = strrchr(name, '.');
    if (unit != CALM_UNIT_SUBLAYER)
        return calm_strf(ctx, ctx->out, out, "%s", unit == CALM_UNIT_JOB ? name : block);
    if (strchr(role, '.') && dot)    /* experts.3.down, shared_expert.down: the unit is the expert */
        return calm_strf(ctx, ctx->out, out, "%.*s", (int)(dot - name), name);
    return calm_strf(ctx, ctx->out, out, "%s.%s", block, sublayer);
}

/* Adds a job of the model with the run's choice for it, if any.  Sizes must be positive, because they become weights
 * and bits. */
static calm_status add_job(calm_ctx *ctx, void *user, const calm_value *v)
{
    reading *r = user;
    /* The store may have the jobs of both layouts of a model (q, k, v together, or v separate); the run has one. */
    const bool halved = calm_value_as_string(&v[2]) && (strcmp(v[2].text, "qk") == 0 || strcmp(v[2].text, "v") == 0);
    const bool whole = calm_value_as_string(&v[2]) && strcmp(v[2].text, "qkv") == 0;
    const bool splits = calm_mix_splits(&r->mix) || calm_json_bool(calm_json_get(r->run->recipe, "split_v"), false);
    if (splits ? whole : halved)
        return CALM_OK;
    if (r->n_jobs == r->job_room || calm_value_as_int(&v[6]) <= 0 || calm_value_as_int(&v[7]) <= 0
        || calm_value_as_int(&v[5]) < 0 || !calm_value_as_string(&v[1]) || !calm_value_as_string(&v[2])
        || !calm_value_as_string(&v[3]) || !calm_value_as_string(&v[4]))
        return calm_fail(ctx, CALM_EFORMAT, "%s: job %lld is not one of calm's", calm_store_path(r->store),
                         (long long)calm_value_as_int(&v[0]));
    /* Counts the jobs that should have candidates, for check_complete; without "blocks" all. */
    const calm_json *blocks = calm_json_get(r->run->recipe, "blocks");
    r->n_expected += calm_value_as_int(&v[5]) >= calm_json_int(calm_json_at(blocks, 0), 0) &&
                     calm_value_as_int(&v[5]) <= calm_json_int(calm_json_at(blocks, 1), INT64_MAX);
    calm_pool_job *job = &r->jobs[r->n_jobs];
    calm_stored_run_choice *choice = &r->choices[r->n_jobs++];
    *job = (calm_pool_job){.id = calm_value_as_int(&v[0]),
                           .block = (size_t)calm_value_as_int(&v[5]),
                           .out = (size_t)calm_value_as_int(&v[6]),
                           .in = (size_t)calm_value_as_int(&v[7]),
                           .crest = calm_value_as_real(&v[8])};
    *choice = (calm_stored_run_choice){.decided = calm_value_as_int(&v[10]) != 0, .candidate = calm_value_as_int(&v[9]),
                                   .disagrees = calm_value_as_int(&v[13]) != 0, .block_id = calm_value_as_int(&v[14]),
                                   .position = calm_value_as_int(&v[15])};
    CALM_TRY(calm_value_copy(ctx, &v[1], &job->name));
    CALM_TRY(calm_value_copy(ctx, &v[2], &job->role));
    CALM_TRY(calm_value_copy(ctx, &v[11], &choice->reason));
    CALM_TRY(calm_value_copy(ctx, &v[12], &choice->advice));
    job->expert = strncmp(job->role, "experts.", 8) == 0;
    job->down = calm_text_ends_with(job->role, "down");
    return name_unit(ctx, r->query->unit, v[4].text, v[3].text, job->role, job->name, &job->unit);
}

/* Reads all jobs of the model in its order; place_cells removes those outside of the run. */
static calm_status read_jobs(calm_ctx *ctx, reading *r)
{
    const calm_value params[] = {calm_value_int(r->run->model_id), calm_value_int(r->run->id),
                                 calm_value_int(r->run->calibration_id)};
    calm_value count;
    CALM_TRY(calm_store_query_one(ctx, r->store, "SELECT count(*) FROM job j JOIN block b ON b.id = j.block_id"
                                  " WHERE b.model_id = ?1", params, 1, &count, 1));
    r->job_room = (size_t)calm_value_as_int(&count);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->jobs, r->job_room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->choices, r->job_room));
    return calm_store_each(ctx, r->store,
                           "SELECT j.id, j.name, j.role, j.sublayer, b.name, b.number, j.out_features, j.in_features,"
                           " x.crest_median, c.candidate_id, c.run_id IS NOT NULL, c.reason, c.advice, c.disagrees,"
                           " b.id, j.position"
                           " FROM block b CROSS JOIN job j ON j.block_id = b.id"
                           " LEFT JOIN activation x ON x.model_id = ?1 AND x.calibration_id = ?3"
                           " AND x.hook = j.input_hook"
                           " LEFT JOIN choice c ON c.run_id = ?2 AND c.job_id = j.id"
                           " WHERE b.model_id = ?1 ORDER BY b.number, j.position, j.id",
                           params, 3, add_job, r);
}

/* The index of a job, sorted by id: ids are in the order in which jobs were stored, which is arbitrary. */
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

/* Allocates cells without candidates: id 0, scores NaN. */
static calm_status new_cells(calm_ctx *ctx, reading *r, size_t n_jobs)
{
    size_t n;
    if (!calm_size_mul(&n, n_jobs, r->n_entries))
        return calm_fail(ctx, CALM_ENOMEM, "%zu jobs of %zu candidates", n_jobs, r->n_entries);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->cells, n));
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->more, n));
    for (size_t i = 0; i < n; i++) {
        r->cells[i] = (calm_pool_cell){.metric = NAN, .tie = NAN, .probe = NAN};
        r->more[i] = (calm_stored_run_cell){.bits_per_weight = NAN};
    }
    return CALM_OK;
}

/* Puts every candidate into the cell of its job and entry.  Jobs without candidates are outside of the run (--blocks)
 * and are removed, unless all are wanted. */
static calm_status place_cells(calm_ctx *ctx, reading *r)
{
    job_place *places;
    size_t n_used = 0, *now;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, places, r->n_jobs));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, now, r->n_jobs));
    for (size_t i = 0; i < r->n_jobs; i++)
        places[i] = (job_place){.id = r->jobs[i].id, .at = i, .used = r->query->partial};
    qsort(places, r->n_jobs, sizeof *places, compare_places);
    for (size_t i = 0; i < r->n_raw; i++) {
        job_place *place = find_place(places, r->n_jobs, r->raw[i].job_id);
        if (!place)
            return contradiction(ctx, r, "is of another model", r->raw[i].cell.id);
        place->used = true;
    }
    for (size_t i = 0; i < r->n_jobs; i++) {
        now[i] = n_used;    /* new index of job i */
        r->jobs[n_used] = r->jobs[i];
        r->choices[n_used] = r->choices[i];
        n_used += find_place(places, r->n_jobs, r->jobs[i].id)->used;
    }
    CALM_TRY(new_cells(ctx, r, n_used));
    for (size_t i = 0; i < r->n_raw; i++) {
        const size_t job = now[find_place(places, r->n_jobs, r->raw[i].job_id)->at];
        /* Scores find their cell by this pointer, without job and entry. */
        r->of_raw[i] = &r->cells[job * r->n_entries + r->raw[i].entry];
        *r->of_raw[i] = r->raw[i].cell;    /* the later one of two */
        if (r->mix.mix)
            r->jobs[job].scheme = &r->raw[i].scheme;
        r->more[job * r->n_entries + r->raw[i].entry] = r->raw[i].more;
    }
    r->n_jobs = n_used;
    return CALM_OK;
}

/* Fails if a run that did not finish lacks candidates: a choice among the others would be a plan of half a model.  A
 * light run skips candidates on purpose, so only whole jobs count. */
static calm_status check_complete(calm_ctx *ctx, const reading *r)
{
    size_t n_missing = r->n_expected > r->n_jobs ? (r->n_expected - r->n_jobs) * r->n_entries : 0;
    if (r->query->partial || strcmp(r->run->status, "finished") == 0)
        return CALM_OK;
    for (size_t i = 0; i < r->n_jobs * r->n_entries && !r->light; i++)
        n_missing += !r->cells[i].id;
    return !n_missing ? CALM_OK : calm_fail(ctx, CALM_ENOTFOUND,
                                            "%s: run %lld (%s) stopped %zu candidates before it had all: "
                                            "the same calm quantize continues there", calm_store_path(r->store),
                                            (long long)r->run->id, r->run->status, n_missing);
}

/* ---- scores ---- */

/* Adds a score; both lists rise by candidate, so `at` only moves forward. */
static calm_status add_score(calm_ctx *ctx, void *user, const calm_value *v)
{
    reading *r = user;
    while (r->at < r->n_raw && r->raw[r->at].cell.id < calm_value_as_int(&v[0]))
        r->at++;
    if (r->at == r->n_raw || r->raw[r->at].cell.id != calm_value_as_int(&v[0]) || !calm_value_as_string(&v[1]))
        return contradiction(ctx, r, "came while the store was read", calm_value_as_int(&v[0]));
    calm_pool_cell *cell = r->of_raw[r->at];
    if (cell->id != calm_value_as_int(&v[0]))    /* a later candidate has the cell */
        return CALM_OK;
    if (r->query->metric && strcmp(v[1].text, r->query->metric) == 0)
        cell->metric = calm_value_as_real(&v[2]);
    if (strcmp(v[1].text, r->tie) == 0)
        cell->tie = calm_value_as_real(&v[2]);
    if (strcmp(v[1].text, r->probe) == 0)
        cell->probe = calm_value_as_real(&v[2]);
    return CALM_OK;
}

/* Reads the scores that a choice reads: the rule's metric, the tie metric, and the probe.  Failed candidates have
 * none. */
static calm_status read_scores(calm_ctx *ctx, reading *r)
{
    const char *metric = r->query->metric ? r->query->metric : r->tie;
    const bool delta = strncmp(metric, "delta_", 6) == 0;
    r->tie = calm_score_name(delta ? CALM_POINT_DELTA : calm_unit_point(r->query->unit), CALM_METRIC_LOG_REL_MSE);
    r->probe = calm_score_name(calm_unit_point(r->query->unit),
                               r->gradient ? CALM_SCORE_GRADIENT_KL : CALM_SCORE_PROBE_KL);
    const calm_value params[] = {calm_value_int(r->run->id), calm_value_text(calm_unit_name(r->query->unit)),
                                 calm_value_text(metric), calm_value_text(r->tie), calm_value_text(r->probe)};
    return calm_store_each(ctx, r->store,
                           "SELECT rc.candidate_id, s.metric, s.value FROM run_candidate rc CROSS JOIN score s"
                           " ON s.candidate_id = rc.candidate_id WHERE rc.run_id = ?1 AND s.unit = ?2"
                           " AND s.metric IN (?3, ?4, ?5) ORDER BY rc.candidate_id",
                           params, 5, add_score, r);
}

/* ---- the whole pool ---- */

/* Gives the caller what was read. */
static calm_status hand_over(calm_ctx *ctx, const reading *r, size_t n_schemes, calm_stored_run_pool *out)
{
    calm_scheme *schemes;
    CALM_TRY(CALM_NEW(ctx, ctx->out, schemes, n_schemes));
    for (size_t i = 0; i < r->n_entries; i++)
        schemes[r->entries[i].of_scheme] = r->entries[i].scheme;
    out->choices = r->choices;
    out->cells = r->more;
    out->pool = (calm_pool){.entries = r->entries, .n_entries = r->n_entries, .schemes = schemes,
                            .n_schemes = n_schemes, .jobs = r->jobs, .n_jobs = r->n_jobs, .cells = r->cells,
                            .unit = r->query->unit, .rule = r->query->rule,
                            .shortlist = r->query->shortlist, .metric = r->query->metric, .numbered = true,
                            .gradient = r->gradient};
    return calm_pool_index(ctx, &out->pool);
}

/* In this order: entries are final (sorted, removed) before cells are counted, jobs before cells are placed, cells
 * before scores are added. */
calm_status calm_pool_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out)
{
    reading r = {.store = store, .run = run, .query = query, .mix = mix_of(run)};
    const calm_json *choice = calm_json_get(run->recipe, "choice");
    size_t n_schemes;
    r.light = strcmp(calm_json_string(calm_json_get(choice, "effort"), ""), "light") == 0;
    r.gradient = strcmp(calm_json_string(calm_json_get(choice, "sensitivity"), ""), "gradient") == 0;
    CALM_TRY(list_recipe(ctx, &r));
    CALM_TRY(read_candidates(ctx, &r));
    CALM_TRY(sort_entries(ctx, &r, &n_schemes));
    CALM_TRY(read_jobs(ctx, &r));
    CALM_TRY(place_cells(ctx, &r));
    CALM_TRY(check_complete(ctx, &r));
    CALM_TRY(read_scores(ctx, &r));
    return hand_over(ctx, &r, n_schemes, out);
}

calm_status calm_jobs_of_store(calm_ctx *ctx, calm_store *store, const calm_stored_run *run,
                               const calm_pool_query *query, calm_stored_run_pool *out)
{
    reading r = {.store = store, .run = run, .query = query, .mix = mix_of(run)};
    CALM_TRY(read_jobs(ctx, &r));
    return hand_over(ctx, &r, 0, out);
}

calm_status calm_stored_run_entries(calm_ctx *ctx, const calm_stored_run *run, const calm_stored_run_pool *stored,
                                size_t **entries)
{
    const calm_pool *pool = &stored->pool;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *entries, pool->n_jobs));
    for (size_t job = 0; job < pool->n_jobs; job++) {
        const int64_t chosen = stored->choices[job].candidate;
        size_t entry = 0;
        while (entry < pool->n_entries && calm_pool_cell_at(pool, job, entry)->id != chosen)
            entry++;
        if (chosen && entry == pool->n_entries)
            return calm_fail(ctx, CALM_EFORMAT, "run %lld: candidate %lld, chosen for %s, did not compete there",
                             (long long)run->id, (long long)chosen, pool->jobs[job].name);
        (*entries)[job] = chosen ? entry : SIZE_MAX;
    }
    return CALM_OK;
}
