/* Every model fixture whose architecture calm knows, discovered: logits, every hidden state, the mean NLL and the
 * statistics of each linear's input, in both spellings of config.json.
 *
 * Tolerances (fixtures/README.md): a float64 forward pass differs from the stored float32 values by at most 3e-5; another
 * float32 summation order adds about as much.  2e-4 is seven times that noise and a sixth of the smallest change that
 * a misread setting makes (1.2e-3).  Mean NLL 1e-5, sums of squares and maxima 1e-4 relative per channel. */
#include "tests/support/harness.h"

#include <stdio.h>

#include "ptq/base/file.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/linalg.h"

#define TOLERANCE 2e-4
#define RELATIVE 1e-4
#define NLL_TOLERANCE 1e-5

/* absmax and sums of squares per channel of each job's input, over all windows. */
typedef struct input_stats {
    float *absmax[CALM_N_HOOKS];
    double *sumsq[CALM_N_HOOKS];
} input_stats;

static calm_status collect(void *user, calm_ctx *task, calm_hook hook, size_t window, const float *x, size_t n, size_t width)
{
    input_stats *stats = user;
    (void)task;
    (void)window;
    if (!stats->absmax[hook]) {
        ck_ok(CALM_NEW(ctx, ctx->out, stats->absmax[hook], width));
        ck_ok(CALM_NEW(ctx, ctx->out, stats->sumsq[hook], width));
    }
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < width; i++) {
            float value = fabsf(x[t * width + i]);
            if (value > stats->absmax[hook][i])
                stats->absmax[hook][i] = value;
            stats->sumsq[hook][i] += (double)value * value;
        }
    return CALM_OK;
}

static const float *reference(const calm_safetensors *set, const char *name, size_t n)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    ck_assert_msg(tensor != NULL, "reference.safetensors lacks %s", name);
    ck_assert_uint_eq(tensor->n_elements, n);
    float *values;
    ck_ok(CALM_NEW(ctx, ctx->out, values, n));
    ck_ok(calm_tensor_to_f32(ctx, tensor, values));
    return values;
}

static void compare(const char *model, const char *what, const float *found, const float *expected, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)found[i] - expected[i]));
    ck_assert_msg(worst <= TOLERANCE, "%s: %s: largest difference %g, tolerance %g", model, what, worst, TOLERANCE);
}

static void compare_stats(const char *model, const calm_safetensors *set, const char *module, const float *absmax,
                          const double *sumsq, size_t width)
{
    const float *expected = reference(set, test_format("stats.%s.absmax", module), width);
    const float *squares = reference(set, test_format("stats.%s.sumsq", module), width);
    for (size_t i = 0; i < width; i++) {
        ck_assert_msg(fabs((double)absmax[i] - expected[i]) <= RELATIVE * expected[i], "%s: %s: absmax[%zu] %g, expected %g",
                      model, module, i, (double)absmax[i], (double)expected[i]);
        ck_assert_msg(fabs(sumsq[i] - squares[i]) <= RELATIVE * squares[i], "%s: %s: sumsq[%zu] %g, expected %g", model,
                      module, i, sumsq[i], (double)squares[i]);
    }
}

static calm_windows read_windows(const calm_safetensors *set)
{
    const calm_tensor *ids = calm_safetensors_find(set, "input_ids");
    ck_assert(ids && ids->dtype == CALM_I64 && ids->n_dims == 2);
    calm_windows windows = {.n = ids->shape[0], .longest = ids->shape[1], .n_available = ids->shape[0]};
    ck_ok(CALM_NEW(ctx, ctx->out, windows.ids, ids->n_elements));
    ck_ok(CALM_NEW(ctx, ctx->out, windows.begin, windows.n + 1));
    for (size_t i = 0; i < ids->n_elements; i++) {
        int64_t id;
        memcpy(&id, ids->data + 8 * i, sizeof id);
        windows.ids[i] = (uint32_t)id;
    }
    for (size_t w = 0; w <= windows.n; w++)
        windows.begin[w] = w * windows.longest;
    return windows;
}

static double mean_nll(const float *logits, const calm_windows *windows, size_t vocab)
{
    double total = 0;
    size_t n = 0;
    for (size_t w = 0; w < windows->n; w++)
        for (size_t row = windows->begin[w]; row + 1 < windows->begin[w + 1]; row++, n++) {
            double sum = 0;
            for (size_t v = 0; v < vocab; v++)
                sum += exp((double)logits[row * vocab + v]);
            total += log(sum) - (double)logits[row * vocab + windows->ids[row + 1]];
        }
    return total / (double)n;
}

static void check_nll(const char *name, const calm_safetensors *set, const float *logits, const calm_windows *windows,
                      size_t vocab)
{
    const calm_tensor *stored = calm_safetensors_find(set, "token_nll");
    double expected = 0;
    ck_assert(stored && stored->dtype == CALM_F64);
    for (size_t i = 0; i < stored->n_elements; i++) {
        double value;
        memcpy(&value, stored->data + 8 * i, sizeof value);
        expected += value;
    }
    double found = mean_nll(logits, windows, vocab);
    ck_assert_msg(fabs(found - expected / (double)stored->n_elements) <= NLL_TOLERANCE, "%s: mean NLL %.9g, expected %.9g", name,
                  found, expected / (double)stored->n_elements);
}

static void check_blocks(const char *name, const calm_model *model, const calm_safetensors *set, const calm_rope *rope,
                         calm_batch *batch)
{
    for (size_t k = 0; k < calm_model_config(model)->n_blocks; k++) {
        calm_block block;
        input_stats stats = {0};
        calm_observer observer = {collect, &stats, 0};
        ck_ok(calm_model_load_block(ctx, model, k, &block));
        ck_ok(calm_batch_block(ctx, &block, rope, batch, &observer));
        const char *hidden = test_format("hidden.%02zu", k);
        compare(name, hidden, batch->hidden, reference(set, hidden, batch->rows * batch->width), batch->rows * batch->width);
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            calm_hook hook = calm_job_input(calm_role_job(role));
            compare_stats(name, set, block.weight[role].name, stats.absmax[hook], stats.sumsq[hook], block.weight[role].in);
        }
    }
}

static void check_model(const char *name, const char *dir, const char *fixture)
{
    calm_model *model;
    calm_safetensors *set;
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    float *logits;
    ck_ok(calm_model_open(ctx, dir, &model));
    ck_ok(calm_safetensors_open(ctx, test_format("%s/reference.safetensors", fixture), &set));
    const calm_config *config = calm_model_config(model);
    calm_windows windows = read_windows(set);
    ctx->n_threads = 1;    /* `collect` sums over windows in order */
    ck_ok(calm_rope_init(ctx, config, windows.longest, &rope));
    ck_ok(calm_batch_embed(ctx, model, &windows, 0, windows.n, ctx->out, &batch));
    const size_t n = batch.rows * batch.width;
    compare(name, "hidden.embed", batch.hidden, reference(set, "hidden.embed", n), n);
    check_blocks(name, model, set, &rope, &batch);
    ck_ok(calm_model_load_head(ctx, model, &head));
    calm_head_norm(&head, batch.hidden, batch.rows);
    compare(name, "hidden.final_norm", batch.hidden, reference(set, "hidden.final_norm", n), n);
    ck_ok(CALM_NEW(ctx, ctx->out, logits, batch.rows * head.vocab));
    calm_head_logits(&head, batch.hidden, batch.rows, logits);
    compare(name, "logits", logits, reference(set, "logits", batch.rows * head.vocab), batch.rows * head.vocab);
    check_nll(name, set, logits, &windows, head.vocab);
    calm_safetensors_close(set);
    calm_model_close(model);
}

/* The same checkpoint under another spelling of its config: a copy of its shards and index beside that config. */
static const char *with_config(const char *fixture, const char *config, char **files)
{
    const char *dir = test_directory();
    for (size_t i = 0; files[i]; i++)
        if (strncmp(files[i], "model", 5) == 0)
            ck_ok(calm_copy_file(ctx, test_format("%s/%s", fixture, files[i]), test_format("%s/%s", dir, files[i])));
    ck_ok(calm_copy_file(ctx, test_format("%s/%s", fixture, config), test_format("%s/config.json", dir)));
    return dir;
}

TEST(model_fixtures)
{
    const char *root = fixtures_root();
    if (!root) {
        printf("SKIP: all: no reference fixtures (../shared/fixtures or CALM_FIXTURES)\n");
        return;
    }
    calm_linalg_setup();
    char **names = fixture_entries("models", NULL);
    size_t n_run = 0;
    for (size_t i = 0; names[i]; i++) {
        const char *fixture = test_format("%s/models/%s", root, names[i]);
        calm_model *model;
        calm_status status = calm_model_open(ctx, fixture, &model);
        if (status == CALM_EUNSUPPORTED) {
            printf("SKIP %s: %s\n", names[i], ctx->message);
            calm_ctx_forgive(ctx);
            continue;
        }
        ck_assert_msg(status == CALM_OK, "%s: %s", names[i], ctx->message);
        calm_model_close(model);
        check_model(names[i], fixture, fixture);
        char **files = fixture_entries(test_format("models/%s", names[i]), "");
        for (size_t f = 0; files[f]; f++)
            if (strncmp(files[f], "config.", 7) == 0 && strcmp(files[f], "config.json") != 0)
                check_model(test_format("%s (%s)", names[i], files[f]), with_config(fixture, files[f], files), fixture);
        printf("ok %s\n", names[i]);
        n_run++;
    }
    ck_assert_msg(!names[0] || n_run > 0, "no model fixture could be run");
}
END_OF_TEST

int main(void)
{
    return run_tests("model_fixtures", (const TTest *[]){model_fixtures, NULL});
}
