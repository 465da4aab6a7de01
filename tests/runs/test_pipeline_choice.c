/* What a run chooses from: units, prefixes, budgets, and candidates that must never be chosen. */
#include <math.h>

#include "algorithms/chain.h"
#include "ptq/stored/stored.h"
#include "tests/support/run_rooms.h"
#include "ptq/quant/qblob.h"
#include "store/blob.h"
#include "tests/support/play_select.h"

#define ALL_POINTS ((1u << CALM_N_POINTS) - 1)

static const fault none = {0};

static play with_unit(const play *run, calm_unit unit, const char *name)
{
    play other = play_elsewhere(run, name);
    other.recipe.selection.unit = unit;
    other.recipe.selection.point = calm_unit_point(unit);
    other.recipe.score_points = ALL_POINTS;
    return other;
}

/* ---- scores of units against a plain computation ---- */

/* Outputs of a block in the scoring windows. */
typedef struct outputs {
    double *attention, *block, *delta;    /* [n, D] */
    const calm_batch *batch;
} outputs;

static calm_status watch(void *user, calm_ctx *worker, const calm_observation *seen)
{
    const outputs *out = user;
    const size_t row = calm_batch_row(out->batch, seen->window);
    (void)worker;
    if (seen->hook == CALM_HOOK_ATTN_OUT)
        for (size_t i = 0; i < seen->n_rows * seen->width; i++)
            out->attention[row * seen->width + i] = seen->x[i];
    return CALM_OK;
}

/* Runs block 0 over the batch, with the dequantized rtn candidates of the store unless `store` is NULL. */
static outputs run_first_block(const calm_model *model, const calm_rope *rope, const calm_windows *windows,
                               calm_store *store)
{
    calm_batch *batch, before;
    calm_block block;
    outputs out;
    ck_ok(CALM_NEW(ctx, ctx->out, batch, 1));
    ck_ok(calm_batch_embed(ctx, model, windows, 0, windows->n, ctx->out, NULL, batch));
    ck_ok(calm_batch_copy(ctx, batch, batch->n, ctx->out, NULL, &before));
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    const calm_layout *layout = calm_model_layout(model);
    for (size_t job = 0; store && job < layout->block_begin[1]; job++) {
        const calm_value role = calm_value_text(layout->jobs[job].role);
        calm_value blob;
        calm_mapping map;
        calm_qjob qjob;
        float *w;
        ck_ok(calm_store_query_one(ctx, store,
                                   "SELECT k.blob FROM candidate k JOIN job j ON j.id = k.job_id JOIN block b"
                                   " ON b.id = j.block_id JOIN algorithm a ON a.id = k.algorithm_id WHERE b.number = 0"
                                   " AND j.role = ?1 AND a.name = 'rtn'",
                                   &role, 1, &blob, 1));
        ck_ok(calm_blob_get(ctx, calm_store_blobs(store), blob.text, &map));
        ck_ok(calm_qblob_decode(ctx, "blob", map.data, map.bytes, &qjob));
        calm_unmap_file(&map);
        ck_ok(CALM_NEW(ctx, ctx->out, w, qjob.out * qjob.in));
        calm_qjob_effective(&qjob, w);
        for (size_t i = layout->jobs[job].first, row = 0; i < layout->jobs[job].first + layout->jobs[job].n; i++) {
            block.weight[layout->linears[i].role].w = w + row * qjob.in;
            row += layout->linears[i].out;
        }
    }
    const size_t n = batch->rows * batch->width;
    ck_ok(CALM_NEW(ctx, ctx->out, out.attention, n));
    ck_ok(CALM_NEW(ctx, ctx->out, out.block, n));
    ck_ok(CALM_NEW(ctx, ctx->out, out.delta, n));
    out.batch = batch;
    const calm_observer observer = {watch, &out};
    ck_ok(calm_batch_block(ctx, &block, rope, batch, &observer));
    for (size_t i = 0; i < n; i++) {
        out.block[i] = batch->hidden.data[i];
        out.delta[i] = (double)(batch->hidden.data[i] - before.hidden.data[i]);
    }
    return out;
}

/* Returns sum |z - y|^2 / sum |y - mean y|^2. */
static double rel_mse(const double *y, const double *z, size_t n, size_t d)
{
    double error = 0, spread = 0;
    for (size_t j = 0; j < d; j++) {
        double mean = 0;
        for (size_t t = 0; t < n; t++)
            mean += y[t * d + j] / (double)n;
        for (size_t t = 0; t < n; t++) {
            error += (z[t * d + j] - y[t * d + j]) * (z[t * d + j] - y[t * d + j]);
            spread += (y[t * d + j] - mean) * (y[t * d + j] - mean);
        }
    }
    return error / spread;
}

static void check_score(calm_store *store, const char *unit, const char *metric, const char *role, double expected)
{
    const calm_value params[] = {calm_value_text(unit), calm_value_text(metric), calm_value_text(role)};
    calm_value value;
    ck_ok(calm_store_query_one(ctx, store,
                               "SELECT value FROM v_scores WHERE block = 0 AND algorithm = 'rtn' AND unit = ?1"
                               " AND metric = ?2 AND job = ?3",
                               params, 3, &value, 1));
    /* Both run the same float32 forward pass up to the order of rows in a product: 1e-7 of the values, 1e-5 of their
     * error. */
    ck_assert_msg(fabs(value.real - expected) <= 2e-5 * expected, "%s %s of %s: %.9g, expected %.9g", unit, metric,
                  role, value.real, expected);
}

TEST(scores_of_units_are_what_they_say)
{
    const play first = play_new(NULL, "w4a16_g16", "rtn,gptq"), run = with_unit(&first, CALM_UNIT_BLOCK, "block");
    calm_model *model;
    calm_tokenizer *tokenizer;
    calm_store *store;
    calm_windows all, windows;
    calm_rope rope;
    play_must_run(&run);
    ck_ok(calm_store_open(ctx, run.recipe.store, NULL, &store));
    ck_ok(calm_model_open(ctx, run.recipe.model.dir, &model));
    ck_ok(calm_tokenizer_open(ctx, test_format("%s/tokenizer.json", run.recipe.model.dir), &tokenizer));
    const calm_windows_options options = {.seqlen = 32, .seed = 0,
                                          .n_windows = (size_t)(run.recipe.calib_windows + run.recipe.guard_windows)};
    ck_ok(calm_windows_read(ctx, tokenizer, run.recipe.calib_path, &options, &all));
    /* One of the four calibration windows is held out. */
    ck_ok(calm_windows_slice(ctx, &all, 0, 1, &windows));
    ck_ok(calm_rope_init(ctx, calm_model_config(model), 32, &rope));
    const outputs y = run_first_block(model, &rope, &windows, NULL), z = run_first_block(model, &rope, &windows, store);
    const size_t n = y.batch->rows, d = y.batch->width;
    static const char *const roles[] = {"qkv", "o", "gate_up", "down"};
    for (size_t i = 0; i < 4; i++) {
        check_score(store, "block", "rel_mse", roles[i], rel_mse(y.block, z.block, n, d));
        check_score(store, "block", "delta_rel_mse", roles[i], rel_mse(y.delta, z.delta, n, d));
        if (i < 2)
            check_score(store, "sublayer", "rel_mse", roles[i], rel_mse(y.attention, z.attention, n, d));
    }
    calm_store_close(store);
    calm_tokenizer_close(tokenizer);
    calm_model_close(model);
}
END_OF_TEST

/* ---- units ---- */

TEST(a_unit_has_one_choice)
{
    const play first = play_new(NULL, "w3a16_g16", "rtn,gptq,gptq-hls");
    const play sublayer = with_unit(&first, CALM_UNIT_SUBLAYER, "sublayer"),
               block = with_unit(&first, CALM_UNIT_BLOCK, "block");
    play_must_run(&sublayer);
    play_must_run(&block);
    ck_assert_int_eq(play_sql(&sublayer, "SELECT count(DISTINCT unit) FROM choice"), 4);
    ck_assert_int_eq(play_sql(&block, "SELECT count(DISTINCT unit) FROM choice"), 2);
    ck_assert_int_eq(play_sql(&block, "SELECT max(n) FROM (SELECT count(DISTINCT k.algorithm_id) n FROM choice c JOIN"
                                      " candidate k ON k.id = c.candidate_id GROUP BY c.unit)"), 1);
    ck_assert_str_eq(play_text(&block, "SELECT DISTINCT unit FROM choice ORDER BY 1"),
                     "model.layers.0\nmodel.layers.1\n");
    ck_assert_str_eq(play_text(&sublayer, "SELECT DISTINCT unit FROM choice ORDER BY 1"),
                     "model.layers.0.attention\nmodel.layers.0.mlp\nmodel.layers.1.attention\nmodel.layers.1.mlp\n");
    ck_assert_str_eq(play_text(&block, "SELECT unit || ' ' || rule || ' ' || metric FROM run"),
                     "block token cka_token\n");
}
END_OF_TEST

/* Scores of units are added to candidates that already have scores as jobs, with any number of threads. */
TEST(units_of_stored_candidates)
{
    play first = play_new(NULL, "w3a16_g16", "rtn,gptq-hls");
    first.recipe.keep_candidates = true;
    play_must_run(&first);
    play later = with_unit(&first, CALM_UNIT_BLOCK, "later"), fresh = with_unit(&first, CALM_UNIT_BLOCK, "fresh");
    later.recipe.store = first.recipe.store;
    ck_assert_uint_eq(play_must_run(&later).cached, 16);
    fresh.threads = 1;
    play_must_run(&fresh);
    static const char scores[] = "SELECT k.key || s.unit || s.metric || s.value FROM score s JOIN candidate k"
                                 " ON k.id = s.candidate_id ORDER BY 1";
    ck_assert_str_eq(play_text(&later, scores), play_text(&fresh, scores));
    ck_assert_str_eq(play_digest(later.recipe.output), play_digest(fresh.recipe.output));
}
END_OF_TEST

/* Each expert is a sublayer; a mixture block is scored as a whole. */
TEST(units_of_a_mixture)
{
    const tiny_model mixture = tiny_of("qwen3_moe");
    const play first = play_new(&mixture, "w4a16_g8", "rtn,gptq");
    const play sublayer = with_unit(&first, CALM_UNIT_SUBLAYER, "sublayer"),
               block = with_unit(&first, CALM_UNIT_BLOCK, "block");
    play_must_run(&sublayer);
    play_must_run(&block);
    ck_assert_int_gt(
        play_sql(&sublayer, "SELECT count(*) FROM v_scores WHERE unit = 'sublayer' AND job LIKE 'experts.%'"), 0);
    ck_assert_int_eq(play_sql(&sublayer, "SELECT count(DISTINCT unit) FROM choice WHERE unit LIKE '%.experts.%'"),
                     (int64_t)(2 * mixture.n_experts));
    ck_assert_int_gt(play_sql(&block, "SELECT count(*) FROM v_scores WHERE unit = 'block' AND job LIKE 'experts.%'"),
                     0);
}
END_OF_TEST

/* ---- prefix ---- */

TEST(a_quantized_prefix)
{
    const play first = play_new(NULL, "w2a16_g16", "rtn,gptq-hls");
    play_must_run(&first);
    play run = play_elsewhere(&first, "prefix"), again = play_elsewhere(&first, "again");
    run.recipe.prefix = again.recipe.prefix = CALM_PREFIX_QUANTIZED;
    run.recipe.store = first.recipe.store;    /* the same store as the float prefix */
    again.threads = 1;
    ck_assert_uint_eq(play_must_run(&run).cached, 0);
    play_must_run(&again);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
    /* Block 0 has nothing before it, and block 1 reads other inputs. */
    static const char differ[] =
        "SELECT count(*) FROM v_scores a JOIN v_scores b USING (block, job, algorithm, unit, metric)"
        " WHERE a.calibration < b.calibration AND a.value <> b.value AND block = %d";
    ck_assert_int_eq(play_sql(&first, test_format(differ, 0)), 0);
    ck_assert_int_gt(play_sql(&first, test_format(differ, 1)), 0);
    run.recipe.output = play_path(&first, "third");
    ck_assert_uint_eq(play_must_run(&run).cached, 16);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
}
END_OF_TEST

/* ---- budgets ---- */

static play with_budget(const play *run, double *bits, size_t n, const char *name)
{
    play other = play_elsewhere(run, name);
    other.recipe.store = run->recipe.store;
    other.recipe.budgets = bits;
    other.recipe.n_budgets = n;
    return other;
}

TEST(bits_are_shared)
{
    double budgets[] = {3.6, 4.2, 5.5};
    const play first = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16,w8a16", "gptq-hls");
    double last = 0;
    for (size_t i = 0; i < 3; i++) {
        const play run = with_budget(&first, &budgets[i], 1, test_format("of%zu", i));
        const outcome said = play_must_run(&run);
        ck_assert_uint_eq(said.cached, i ? 32 : 0);
        const double bits = (double)play_sql(&run,
                                             "SELECT round(1e6 * bits_per_weight) FROM run ORDER BY id DESC LIMIT 1")
                            / 1e6;
        ck_assert_msg(bits <= budgets[i] && bits > last, "%g bits of %g", bits, budgets[i]);
        last = bits;
    }
    /* There is one probe for each of 8 units, at the narrowest scheme, for any number of budgets. */
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM score WHERE metric = 'probe_kl'"), 8);
    ck_assert_int_eq(
        play_sql(&first, "SELECT count(*) FROM v_scores WHERE metric = 'probe_kl' AND scheme <> 'w2a16_g16'"), 0);
    const play table = with_budget(&first, budgets, 3, "table");
    const outcome said = play_must_run(&table);
    ck_assert_uint_eq(said.cached, 32);
    ck_assert_ptr_null(play_digest(table.recipe.output));
    ck_assert_int_eq(play_sql(&first, "SELECT count(*) FROM run_evaluation WHERE role = 'budget'"), 3);
}
END_OF_TEST

/* The same budget gives the same plan from another store and with another number of threads. */
TEST(a_budget_is_repeatable)
{
    double bits = 4.2;
    const play first = play_new(NULL, "w2a16_g16,w3a16_g16,w4a16_g16", "rtn,gptq-hls");
    play run = with_budget(&first, &bits, 1, "run"), again = with_budget(&first, &bits, 1, "again");
    again.recipe.store = play_path(&first, "again.db");
    again.threads = 1;
    play_must_run(&run);
    play_must_run(&again);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
}
END_OF_TEST

TEST(budgets_out_of_reach)
{
    double bits[] = {2.0, 20};
    const play first = play_new(NULL, "w2a16_g16,w3a16_g16", "rtn");
    for (size_t i = 0; i < 2; i++) {
        const play run = with_budget(&first, &bits[i], 1, "none");
        const outcome said = play_run(&run, none);
        ck_assert_int_eq(said.status, CALM_EARG);
        ck_assert_msg(strstr(said.message, "take from 3.0000 to 4.0000 bits per weight"), "%s", said.message);
        ck_assert_str_eq(play_list(&run, "none"), "");
    }
}
END_OF_TEST

/* A budget of 7 activation bits over schemes of 4, 8 and 16: the plan keeps it, calm select chooses the same from
 * the store, and calm assemble writes the same file. */
TEST(bits_of_activations_are_shared)
{
    double none_of_weights[] = {INFINITY};
    play run = play_new(NULL, "w4a4_g16,w4a8_g16,w4a16_g16", "rtn,gptq");
    run.recipe.budgets = none_of_weights;
    run.recipe.n_budgets = 1;
    run.recipe.act_budget = 7;
    run.recipe.keep_hybrid = true;
    play_must_run(&run);
    /* The mean over weights of the activation bits that schemes' names say. */
    const char *const mean =
        "SELECT sum((CASE WHEN k.scheme LIKE '%a4\\_%' ESCAPE '\\' THEN 4 WHEN k.scheme LIKE '%a8\\_%' ESCAPE '\\'"
        " THEN 8 ELSE 16 END) * j.out_features * j.in_features) / sum(j.out_features * j.in_features) FROM choice c"
        " JOIN candidate k ON k.id = c.candidate_id JOIN job j ON j.id = c.job_id WHERE c.run_id = 1";
    ck_assert_int_le(play_sql(&run, mean), 7);
    ck_assert_int_gt(play_sql(&run, "SELECT count(DISTINCT k.scheme) FROM choice c JOIN candidate k"
                                    " ON k.id = c.candidate_id WHERE c.run_id = 1"), 1);
    /* A uniform run above the budget does not compete in the guard. */
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard'"
                                    " AND subject = 'all w4a8_g16'"), 0);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard'"
                                    " AND subject = 'all w4a4_g16'"), 1);
    play again = play_elsewhere(&run, "again");
    calm_assembly assembly;
    const calm_assemble_options o = {.store = run.recipe.store, .run = 1, .output = again.recipe.output,
                                     .model = run.recipe.model.dir};
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    calm_assembly_close(&assembly);
    char digest[2][CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", run.recipe.output), digest[0]));
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", again.recipe.output), digest[1]));
    ck_assert_str_eq(digest[0], digest[1]);
    /* The same budget, then a smaller one. */
    calm_reselect_options how = play_selecting(&run, 1);
    how.dry_run = true;
    calm_reselected same, fewer;
    ck_ok(calm_reselect(ctx, &how, &same));
    ck_assert_uint_eq(same.n_changed, 0);
    how.act_budget = 5;
    ck_ok(calm_reselect(ctx, &how, &fewer));
    ck_assert_uint_gt(fewer.n_changed, 0);
    ck_assert(fewer.solution.mean_act_bits <= 5 && same.solution.mean_act_bits <= 7);
    calm_reselected_clear(&same);
    calm_reselected_clear(&fewer);
    play few = play_elsewhere(&run, "none");
    few.recipe.act_budget = 3;
    const outcome said = play_run(&few, none);
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_msg(strstr(said.message, "`choice.act_budget` 3: the given schemes take from 4.0000 to 16.0000"),
                  "%s", said.message);
}
END_OF_TEST

/* ---- light effort ---- */

TEST(light_effort)
{
    const play full = play_new(NULL, "w4a4_g16", "rtn,smoothquant");
    play light = play_elsewhere(&full, "light"), later = play_elsewhere(&full, "later");
    light.recipe.skip_smoothing = later.recipe.skip_smoothing = true;
    later.recipe.store = full.recipe.store;
    play_must_run(&full);
    play_must_run(&light);
    /* The tiny model's inputs are flat: every crest factor is below 5. */
    ck_assert_int_eq(play_sql(&light, "SELECT count(*) FROM activation WHERE point LIKE '%_in' AND crest_median >= 5"),
                     0);
    ck_assert_int_eq(play_sql(&light, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                      " WHERE a.name = 'smoothquant'"), 0);
    ck_assert_int_eq(play_sql(&light, "SELECT count(*) FROM candidate"), 8);
    /* Candidates that an earlier run stored do not change the choice. */
    ck_assert_uint_eq(play_must_run(&later).cached, 8);
    ck_assert_str_eq(play_digest(later.recipe.output), play_digest(light.recipe.output));
}
END_OF_TEST

/* With float inputs smoothing matters even without outliers, since it changes how the rounding error is spread over
 * columns.  So of a pool with both kinds of schemes only those with quantized activations skip it. */
TEST(light_effort_is_about_quantized_inputs)
{
    play run = play_new(NULL, "w4a16_g16,w4a4_g16", "rtn,smoothquant");
    run.recipe.skip_smoothing = true;
    play_must_run(&run);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                    " WHERE a.name = 'smoothquant' AND k.scheme = 'w4a16_g16'"), 8);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                    " WHERE a.name = 'smoothquant' AND k.scheme = 'w4a4_g16'"), 0);
}
END_OF_TEST

/* ---- equal candidates ---- */

/* Returns the number of pairs of candidates of one job and scheme by these two algorithms for which `where` holds. */
static int64_t pairs(const play *run, const char *one, const char *two, const char *where)
{
    return play_sql(run, test_format("SELECT count(*) FROM candidate a JOIN candidate b ON a.job_id = b.job_id"
                                     " JOIN algorithm na ON na.id = a.algorithm_id"
                                     " JOIN algorithm nb ON nb.id = b.algorithm_id JOIN job j ON j.id = a.job_id"
                                     " WHERE na.name = '%s' AND nb.name = '%s' AND a.scheme = b.scheme AND %s",
                                     one, two, where));
}

#define SAME_RESULT                                                                                                    \
    "a.blob = b.blob AND (SELECT group_concat(metric || value) FROM score WHERE candidate_id = a.id)"                  \
    " = (SELECT group_concat(metric || value) FROM score WHERE candidate_id = b.id)"

/* No norm or linear before an expert's gate and up can absorb an input scale, so smoothing is skipped and two
 * algorithms give the same bits.  One candidate is copied from the other together with its seconds, which no two
 * measurements share. */
TEST(twins_are_computed_once)
{
    const char *const where = "j.role LIKE 'experts.%.gate_up'";
    tiny_model spec = tiny_of("qwen3_moe");
    spec.expert_inner = 32;    /* multiples of the group of 16 */
    spec.shared_inner = 48;
    play run = play_new(&spec, "w4a4_g16", "smoothquant,rtn"), turned = play_elsewhere(&run, "turned");
    play_pool(&turned, NULL, "rtn,smoothquant");
    run.recipe.least_tokens = turned.recipe.least_tokens = 1;
    play_must_run(&run);
    const int64_t n = pairs(&run, "smoothquant", "rtn", where);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(pairs(&run, "smoothquant", "rtn", test_format("%s AND " SAME_RESULT, where)), n);
    ck_assert_int_eq(pairs(&run, "smoothquant", "rtn", test_format("%s AND a.seconds = b.seconds", where)), n);
    ck_assert_int_eq(pairs(&run, "smoothquant", "rtn", "j.role NOT LIKE 'experts.%' AND a.seconds = b.seconds"), 0);
    /* Of equal candidates the first of the list is chosen. */
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_choices WHERE job LIKE 'experts.%.gate_up'"
                                    " AND algorithm = 'smoothquant'"), n);
    play_must_run(&turned);
    ck_assert_int_eq(play_sql(&turned, "SELECT count(*) FROM v_choices WHERE job LIKE 'experts.%.gate_up'"
                                       " AND algorithm = 'rtn'"), n);
    /* A stored candidate is copied for the second algorithm. */
    play first = play_elsewhere(&run, "first");
    play_pool(&first, NULL, "rtn");
    play_must_run(&first);
    play more = play_elsewhere(&run, "more");
    more.recipe.store = first.recipe.store;
    play_must_run(&more);
    ck_assert_int_eq(pairs(&more, "smoothquant", "rtn", test_format("%s AND " SAME_RESULT, where)), n);
    ck_assert_int_eq(pairs(&more, "smoothquant", "rtn", test_format("%s AND a.seconds = b.seconds", where)), n);
    ck_assert_str_eq(play_digest(more.recipe.output), play_digest(run.recipe.output));
}
END_OF_TEST

/* A bias correction changes nothing in a job without biases, and gives other candidates and scores in a job with
 * biases. */
TEST(corrections_of_biases)
{
    tiny_model spec = tiny_of("qwen2");
    play run = play_new(&spec, "w4a4_g16", "rtn,absmax+nearest+bias");
    play_must_run(&run);
    ck_assert_int_eq(pairs(&run, "rtn", "absmax+nearest+bias", "j.role <> 'qkv' AND " SAME_RESULT), 6);
    ck_assert_int_eq(pairs(&run, "rtn", "absmax+nearest+bias", "j.role = 'qkv' AND a.blob <> b.blob"), 2);
    ck_assert_int_eq(pairs(&run, "rtn", "absmax+nearest+bias", "j.role = 'qkv' AND " SAME_RESULT), 0);
}
END_OF_TEST

/* ---- candidates that must never be chosen ---- */

/* A rounding that sets all codes to zero, so that the output is constant. */
static calm_status dead(calm_ctx *c, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    CALM_TRY(calm_problem_grids(c, problem, qjob));
    memset(qjob->codes, calm_symmetric_zero(&qjob->scheme), qjob->out * qjob->in);
    return CALM_OK;
}

static calm_status not_a_number(calm_ctx *c, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    CALM_TRY(dead(c, problem, opts, qjob));
    qjob->scales[0] = NAN;
    return CALM_OK;
}

/* Replaces entry i of the pool by absmax and the test's rounding, under another name. */
static void replace_entry(play *run, size_t i, const char *name, calm_part *part)
{
    calm_algorithm *algorithm;
    calm_entry *pool;
    ck_ok(CALM_NEW(ctx, ctx->out, pool, run->recipe.n_pool));
    memcpy(pool, run->recipe.pool, run->recipe.n_pool * sizeof *pool);
    ck_ok(calm_algorithm_parse(ctx, "absmax+nearest", &algorithm));
    algorithm->name = algorithm->canonical = pool[i].name = name;
    algorithm->steps[1].part = part;
    pool[i].algorithm = algorithm;
    run->recipe.pool = pool;
}

static void check_failed(const play *run, const char *name, const char *why, int64_t n)
{
    ck_assert_int_eq(
        play_sql(run, test_format("SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                  " WHERE a.name = '%s' AND k.failure LIKE '%%%s%%'",
                                  name, why)),
        n);
    ck_assert_int_eq(play_sql(run, test_format("SELECT count(*) FROM v_choices WHERE algorithm = '%s'", name)), 0);
}

static void check_failed_jobs(const play *run, const char *name, int64_t n)
{
    ck_assert_int_eq(
        play_sql(run, test_format("SELECT count(*) FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                  " WHERE a.name = '%s' AND k.failure IS NOT NULL", name)), n);
}

TEST(dead_and_nan_candidates)
{
    static calm_part dead_part = {.name = "dead", .kind = CALM_KIND_ROUND, .run.round = dead};
    static calm_part nan_part = {.name = "nan", .kind = CALM_KIND_ROUND, .run.round = not_a_number};
    static const calm_choice_rule rules[] = {CALM_CHOICE_RULE_TOKEN, CALM_CHOICE_RULE_ARGMAX};
    for (size_t i = 0; i < 2; i++) {
        play run = play_new(NULL, "w4a16_g16", "mkq,rtn,gptq");
        run.recipe.selection.rule = rules[i];
        replace_entry(&run, 0, "dead", &dead_part);
        replace_entry(&run, 1, "nan", &nan_part);
        play_must_run(&run);
        check_failed(&run, "dead", "the same for all rows (dead)", 8);
        check_failed(&run, "nan", "nan at row", 8);
        ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM v_choices WHERE algorithm = 'gptq'"), 8);
    }
}
END_OF_TEST

/* A rounding that fails in one job, as for a matrix that is not positive definite. */
static calm_status brittle(calm_ctx *c, calm_problem *problem, const void *opts, calm_qjob *qjob)
{
    (void)opts;
    if (strcmp(problem->job->name, "model.layers.1.o") == 0)
        return calm_fail(c, CALM_ENUMERIC, "not positive definite");
    return calm_problem_nearest(c, problem, qjob);
}

/* A uniform run with a failed job stays in the guard, with the rule's candidate in that job, and can be assembled. */
TEST(a_uniform_run_with_a_failed_job)
{
    static calm_part part = {.name = "brittle", .kind = CALM_KIND_ROUND, .run.round = brittle};
    play run = play_new(NULL, "w4a16_g16", "mkq,rtn,gptq");
    replace_entry(&run, 0, "brittle", &part);
    play_must_run(&run);
    check_failed_jobs(&run, "brittle", 1);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM run_evaluation WHERE role = 'guard' AND subject = 'brittle'"
                                    " AND delta_kl IS NOT NULL"), 1);
    /* As the result, it is assembled from the store with the same substitute. */
    play again = play_elsewhere(&run, "again");
    play_sql(&run, "UPDATE run SET result = 'brittle', reason = 'as the test says'");
    calm_assembly assembly;
    const calm_assemble_options o = {.store = run.recipe.store, .run = 1, .output = again.recipe.output,
                                     .model = run.recipe.model.dir};
    ck_ok(calm_reassemble(ctx, &o, &assembly));
    for (size_t j = 0; j < assembly.result.plan.n_jobs; j++) {
        const char *entry = assembly.result.plan.jobs[j].entry_name;
        const bool fails = strcmp(calm_model_layout(assembly.in.model)->jobs[j].name, "model.layers.1.o") == 0;
        ck_assert_int_eq(strcmp(entry, "brittle") != 0, fails);
    }
    calm_assembly_close(&assembly);
}
END_OF_TEST

TEST(starved_actfit)
{
    const play run = play_new(NULL, "w4a4_g16", "rtn,actfit");
    play_must_run(&run);
    check_failed(&run, "actfit", "96 kept rows", 8);    /* three of four windows of 32 tokens */
}
END_OF_TEST

/* ---- rows ---- */

TEST(too_few_rows_to_choose)
{
    play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    run.recipe.seqlen = 3;
    run.recipe.score_windows = 1;
    const outcome said = play_run(&run, none);
    ck_assert_int_eq(said.status, CALM_EARG);
    ck_assert_msg(strstr(said.message, "3 rows were scored") && strstr(said.message, "needs at least 4"), "%s",
                  said.message);
    ck_assert_msg(strstr(said.log, "with fewer than 16 per input"), "%s", said.log);
}
END_OF_TEST

int main(void)
{
    return run_tests("pipeline_choice", (const TTest *[]){
        a_unit_has_one_choice, units_of_stored_candidates, units_of_a_mixture,
        a_quantized_prefix, bits_are_shared, a_budget_is_repeatable, budgets_out_of_reach,
        bits_of_activations_are_shared, light_effort,
        light_effort_is_about_quantized_inputs,
        twins_are_computed_once, corrections_of_biases, dead_and_nan_candidates, a_uniform_run_with_a_failed_job,
        starved_actfit, too_few_rows_to_choose,
        scores_of_units_are_what_they_say, NULL});    /* last: OpenMP of this process does not survive a fork */
}
