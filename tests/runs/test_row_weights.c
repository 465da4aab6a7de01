/* Calibration rows weighted by gradients: the weights themselves, and runs with them. */
#include "ptq/search/search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/arch/kind.h"
#include "tests/support/play.h"

static const fault none = {0};

/* ---- lengths of gradients ---- */

/* Norms of the gradient rows at the outputs of the blocks, in double. */
typedef struct seen {
    double *length;    /* [n_blocks, rows] */
    size_t rows;
} seen;

static calm_status keep_lengths(calm_ctx *context, calm_gradient_pass *pass, size_t block)
{
    const seen *out = pass->user;
    const size_t width = pass->work.width;
    (void)context;
    for (size_t t = 0; t < out->rows; t++) {
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)pass->d[t * width + i] * (double)pass->d[t * width + i];
        out->length[block * out->rows + t] = sqrt(sum);
    }
    return CALM_OK;
}

static float **new_lengths(size_t n, size_t rows)
{
    float **out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n));
    for (size_t i = 0; i < n; i++)
        ck_ok(CALM_NEW(ctx, ctx->out, out[i], rows));
    return out;
}

static void pass_of(calm_run *p, size_t n_windows, size_t first_block, int n_threads, float **lengths)
{
    calm_gradient_pass pass = {.run = p, .n_windows = n_windows, .stage = CALM_STAGE_WEIGH, .first_block = first_block,
                               .lengths = lengths};
    ctx->n_threads = n_threads;
    ck_ok(calm_gradient_pass_run(ctx, &pass));
}

/* Without a norm after it the output of `down` is added to the residual stream, so its gradient row has the norm of
 * d there.  The rows of a window do not depend on the number of threads or on how far back the pass goes, nor on the
 * windows after them if the head multiplies them in the same products: of 256 rows (ptq/eval/predict.c), 8 windows. */
TEST(lengths_of_a_pass)
{
    play run = play_new(NULL, "w4a16_g16", "gptq");
    calm_run *p;
    seen d;
    run.recipe.calib_windows = 12;
    ck_ok(calm_run_open(ctx, &run.recipe, &p));
    const size_t rows = p->in.calib.begin[p->in.calib.n], few = p->in.calib.begin[8];
    ck_assert_uint_eq(few, 256);
    d.rows = rows;
    ck_ok(CALM_NEW(ctx, ctx->out, d.length, 2 * rows));
    float **all = new_lengths(2 * CALM_N_JOBS, rows), **first = new_lengths(2 * CALM_N_JOBS, rows);
    float **fewer = new_lengths(2 * CALM_N_JOBS, rows);
    calm_gradient_pass pass = {.run = p, .n_windows = 12, .stage = CALM_STAGE_WEIGH, .visit = keep_lengths, .user = &d,
                               .lengths = all};
    ctx->n_threads = 1;
    ck_ok(calm_gradient_pass_run(ctx, &pass));
    for (size_t b = 0; b < 2; b++)
        for (size_t t = 0; t < rows; t++) {
            const double expected = d.length[b * rows + t];
            ck_near(all[b * CALM_N_JOBS + CALM_JOB_DOWN][t], expected, 0x1p-23 * expected);
        }
    pass_of(p, 12, 1, 2, first);
    pass_of(p, 8, 1, 1, fewer);
    for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++) {
        const float *of = all[CALM_N_JOBS + kind];
        if (!calm_slot_has_job(calm_model_config(p->in.model), calm_job_sublayer(kind), kind))
            continue;
        ck_assert(memcmp(first[CALM_N_JOBS + kind], of, rows * sizeof(float)) == 0);
        ck_assert(first[kind][0] == 0 && fewer[CALM_N_JOBS + kind][few] == 0);
        ck_assert(all[kind][0] > 0 && of[few] > 0);
        ck_assert(memcmp(fewer[CALM_N_JOBS + kind], of, few * sizeof(float)) == 0);
    }
    calm_run_close(&p);
}
END_OF_TEST

/* ---- runs ---- */

static play weighed(const tiny_model *spec, const char *scheme, const char *algorithms)
{
    play run = play_new(spec, scheme, algorithms);
    run.recipe.calib_windows = 12;
    run.recipe.weight = CALM_WEIGHT_GRADIENT;
    return run;
}

/* Another number of threads gives the same bytes in another store.  A run without weights in the same store has
 * other keys, other codes and another recipe. */
static void over_threads(const char *family, const char *scheme, const char *algorithms, calm_row_weight weight)
{
    const tiny_model spec = tiny_of(family);
    play first = weighed(&spec, scheme, algorithms);
    first.recipe.weight = weight;
    play again = play_elsewhere(&first, "again"), plain = play_elsewhere(&first, "plain");
    again.threads = first.threads == 1 ? 2 : 1;
    plain.recipe.store = first.recipe.store;
    plain.recipe.weight = CALM_WEIGHT_NONE;
    play_must_run(&first);
    play_must_run(&again);
    ck_assert_str_eq(play_digest(first.recipe.output), play_digest(again.recipe.output));
    ck_assert_uint_eq(play_must_run(&plain).cached, 0);
    ck_assert_int_gt(play_sql(&first, "SELECT count(*) FROM candidate a JOIN candidate b USING (job_id, algorithm_id)"
                                      " WHERE a.id < b.id AND a.blob <> b.blob"), 0);
    ck_assert_int_eq(play_sql(&first, test_format("SELECT count(*) FROM run WHERE id = 1 AND json_extract(recipe,"
                                                  " '$.calibration.weight') = '%s'",
                                                  weight == CALM_WEIGHT_FIRST ? "first" : "gradient")), 1);
    ck_assert_int_eq(play_sql(&first, "SELECT json_extract(recipe, '$.calibration.weight') = 'none' FROM run"
                                      " WHERE id = 2"), 1);
}

TEST(weighed_runs)
{
    over_threads("qwen3", "w3a16_g16", "rtn,gptq", CALM_WEIGHT_GRADIENT);
    over_threads("qwen2_moe", "w4a16_g8", "gptq", CALM_WEIGHT_GRADIENT);
    over_threads("qwen3", "w3a16_g16", "rtn,gptq", CALM_WEIGHT_FIRST);
    over_threads("bert", "w4a16_g8", "gptq", CALM_WEIGHT_FIRST);
}
END_OF_TEST

/* Both kinds of weights in one store have separate keys. */
TEST(kinds_of_weights)
{
    const play first = weighed(NULL, "w3a16_g16", "gptq");
    play other = play_elsewhere(&first, "other");
    other.recipe.store = first.recipe.store;
    other.recipe.weight = CALM_WEIGHT_FIRST;
    play_must_run(&first);
    ck_assert_uint_eq(play_must_run(&other).cached, 0);
}
END_OF_TEST

/* Writes documents of one window each, which all begin with the same word, as windows with <bos> do. */
static const char *alike(const play *run)
{
    const char *path = play_path(run, "alike.jsonl"), *text = "";
    for (int i = 0; i < 24; i++) {
        text = test_format("%s{\"text\": \"The", text);
        for (int word = 0; word < 28; word++)
            text = test_format("%s %c", text, 'a' + (7 * i + word * word) % 26);
        text = test_format("%s\"}\n", text);
    }
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
    return path;
}

/* Checks that `auto` uses the candidates of the same run with this weight. */
static outcome automatic(play run, calm_row_weight as)
{
    run.recipe.weight = as;
    play_must_run(&run);
    play other = play_elsewhere(&run, "automatic");
    other.recipe.store = run.recipe.store;
    other.recipe.weight = CALM_WEIGHT_AUTO;
    const outcome found = play_must_run(&other);
    ck_assert_msg(found.cached > 0, "%s", found.log);
    return found;
}

TEST(automatic_weights)
{
    static const char *const says = "all windows begin with one token";
    play run = weighed(NULL, "w3a16_g16", "gptq");
    ck_assert_ptr_null(strstr(automatic(run, CALM_WEIGHT_NONE).log, says));
    run = weighed(NULL, "w3a16_g16", "rtn,gptq");
    run.recipe.calib_path = alike(&run);
    ck_assert_ptr_nonnull(strstr(automatic(run, CALM_WEIGHT_FIRST).log, says));
    /* No weights with quantized activations, without a fit to rows, and for an encoder. */
    run = weighed(NULL, "w4a8_g16", "gptq");
    run.recipe.calib_path = alike(&run);
    automatic(run, CALM_WEIGHT_NONE);
    run = weighed(NULL, "w4a16_g16", "rtn");
    run.recipe.calib_path = alike(&run);
    automatic(run, CALM_WEIGHT_NONE);
    const tiny_model bert = tiny_of("bert");
    run = weighed(&bert, "w4a16_g8", "gptq");
    run.recipe.calib_path = alike(&run);
    automatic(run, CALM_WEIGHT_NONE);
}
END_OF_TEST

/* Candidates of a killed run, and those whose codes were dropped, are computed again with the same weights. */
TEST(weights_that_are_computed_again)
{
    const play first = weighed(NULL, "w3a16_g16", "gptq,mkq");
    const play killed = play_elsewhere(&first, "killed");
    const outcome said = play_must_run(&first);
    ck_assert(play_run(&killed, (fault){.at = said.calls / 2}).killed);
    play_must_run(&killed);
    ck_assert_str_eq(play_digest(first.recipe.output), play_digest(killed.recipe.output));
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"gptq", "mkq"};
        play one = first, afresh = play_elsewhere(&first, test_format("afresh-%d", i));
        one.recipe.output = play_path(&first, names[i]);
        play_pool(&one, NULL, names[i]);
        play_pool(&afresh, NULL, names[i]);
        ck_assert_uint_eq(play_must_run(&one).cached, 8);    /* codes of one algorithm were dropped, but for a few */
        play_must_run(&afresh);
        ck_assert_str_eq(play_digest(one.recipe.output), play_digest(afresh.recipe.output));
    }
}
END_OF_TEST

/* After quantized blocks rows have the weights of their tokens. */
TEST(behind_quantized_blocks)
{
    play run = weighed(NULL, "w2a16_g16", "gptq,asym+absmax+gptq");
    run.recipe.calib_windows = 60;
    run.recipe.prefix = CALM_PREFIX_ASYMMETRIC;
    play again = play_elsewhere(&run, "again"), quantized = play_elsewhere(&run, "quantized");
    again.threads = 1;
    quantized.recipe.prefix = CALM_PREFIX_QUANTIZED;
    play_pool(&quantized, NULL, "gptq");
    play_must_run(&run);
    play_must_run(&again);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
    play_must_run(&quantized);
}
END_OF_TEST

static void refused(const play *run, calm_status status, const char *words)
{
    const outcome said = play_run(run, none);
    ck_assert_int_eq(said.status, status);
    ck_assert_msg(strstr(said.message, words), "%s", said.message);
}

/* down's inputs and weights are so large that their products overflow float32. */
TEST(weights_that_are_refused)
{
    const tiny_model encoder = tiny_of("bert");
    const play bert = weighed(&encoder, "w4a16_g16", "gptq");
    refused(&bert, CALM_EUNSUPPORTED, "`calibration.weight` gradient is of predictions, which an encoder has not");
    const play run = weighed(NULL, "w4a16_g16", "gptq");
    play_scale_tensor(&run, "model.layers.1.mlp.up_proj.weight", 120);
    play_scale_tensor(&run, "model.layers.1.mlp.down_proj.weight", 120);
    refused(&run, CALM_ENUMERIC, "block 1: the output is not finite");
}
END_OF_TEST

/* The test of passes with threads comes last: sanitized builds run in this process, which cannot fork once it has
 * threads. */
int main(void)
{
    return run_tests("row_weights", (const TTest *[]){weighed_runs, kinds_of_weights, automatic_weights,
                                                      weights_that_are_computed_again,
                                                      behind_quantized_blocks, weights_that_are_refused,
                                                      lengths_of_a_pass, NULL});
}
