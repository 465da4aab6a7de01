/* Every model fixture against its reference: logits, every hidden state, mean NLL, routing, pooling, and statistics of
 * each linear's input, for each spelling of config.json.  calm must open all fixtures of models/; of families/ it
 * refuses by name those that it does not know.
 *
 * Tolerances (fixtures/README.md): a float64 forward pass differs from the stored float32 values by at most 3e-5 of
 * max(1, largest value), and another order of float32 sums adds about as much.  2e-4 is seven times that noise, and a
 * sixth of the smallest change that a misread setting makes (1.2e-3).  From it follow:
 *
 *   mean NLL    1e-5 of the largest logit: a token's is off by at most the noise of two logits, the mean by less
 *   routing     logits off by d make a softmax, or sigmoids divided by their sum, off by 2 d of the largest weight
 *   a channel   a value of a linear's input is off by d = 1e-4 a.  Here a is the channel's largest value, or the root
 *               mean square of all channels' largest values if that is more: the terms of the value's sum are as large
 *               as those of other channels, even if relu or a gate leaves nearly nothing of the sum.  So the largest
 *               value is off by d, and a sum S of n squares by 2 d sum |x| + n d^2 <= 2 d sqrt(n S) + n d^2 */
#include "tests/support/model_fixture.h"

#include <stdio.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/wrapper.h"
#include "ptq/base/file.h"
#include "ptq/layers/router.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"

#define TOLERANCE 2e-4
#define RELATIVE 1e-4
#define NLL_TOLERANCE 1e-5

/* absmax and sum of squares per channel at a hook, over all windows. */
typedef struct input_stats {
    long expert;
    size_t width;
    float *absmax;
    double *sumsq;
} input_stats;

#define MAX_EXPERTS 512

/* What the hooks of a block observed: of the block (slot 0) and of expert e (slot e + 1). */
typedef struct block_stats {
    input_stats at[CALM_N_HOOKS][MAX_EXPERTS + 1];
    calm_arena *arena;
} block_stats;

static calm_status collect(void *user, calm_ctx *task, const calm_observation *seen)
{
    block_stats *stats = user;
    (void)task;
    ck_assert(seen->expert < MAX_EXPERTS);
    if (seen->expert == CALM_SHARED_EXPERT)
        return CALM_OK;
    input_stats *at = &stats->at[seen->hook][seen->expert + 1];
    if (!at->absmax) {
        at->width = seen->width;
        ck_ok(CALM_NEW(ctx, stats->arena, at->absmax, seen->width));
        ck_ok(CALM_NEW(ctx, stats->arena, at->sumsq, seen->width));
    }
    for (size_t t = 0; t < seen->n_rows; t++)
        for (size_t i = 0; i < seen->width; i++) {
            const float value = fabsf(seen->x[t * seen->width + i]);
            if (value > at->absmax[i])
                at->absmax[i] = value;
            at->sumsq[i] += (double)value * (double)value;
        }
    return CALM_OK;
}

static const float *reference(const model_fixture *f, const char *name, size_t n)
{
    return model_fixture_tensor(f, f->set, name, n);
}

/* The reference is one of families/, which have fewer tensors than those of models/: no router logits, no statistics
 * of experts and of the head, no final norm of decoders, no pooled rows, no routers of some families; and the
 * experts of a token are in order of their number. */
static bool of_family;

static bool is_stored(const model_fixture *f, const char *name)
{
    return !of_family || calm_safetensors_find(f->set, name);
}

/* Results of the current fixture for the printed line: the largest difference of outputs and of hidden states, as a
 * share of max(1, largest value), and the number of blocks with a router. */
static double worst_output, worst_hidden;
static size_t n_routers;

/* Returns max(1, largest value). */
static double largest_of(const float *values, size_t n)
{
    double largest = 1;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* Compares the rows of tokens with the stored tensor [S, T, width], or with part `at` of a stored [n, S, T, width]. */
static void compare_part(const model_fixture *f, const char *what, const float *found, size_t width, size_t at,
                         size_t n)
{
    if (!is_stored(f, what))
        return;
    const float *expected = reference(f, what, n * f->windows.n * f->length * width)
                            + at * f->windows.n * f->length * width;
    const double largest = largest_of(expected, f->windows.n * f->length * width);
    double worst = 0;
    for (size_t t = 0; t < f->windows.begin[f->windows.n]; t++)
        for (size_t i = 0; i < width; i++) {
            const double difference = fabs((double)found[t * width + i] - (double)expected[f->row[t] * width + i]);
            worst = test_worse(worst, difference);
        }
    if (strncmp(what, "hidden.", 7) == 0)
        worst_hidden = fmax(worst_hidden, worst / largest);
    else
        worst_output = fmax(worst_output, worst / largest);
    ck_assert_msg(worst <= TOLERANCE * largest, "%s: %s: largest difference %g, tolerance %g", f->name, what, worst,
                  TOLERANCE * largest);
}

static void compare(const model_fixture *f, const char *what, const float *found, size_t width)
{
    compare_part(f, what, found, width, 0, 1);
}

/* Checks that a linear without observed input has none in the reference: an expert that no token chose. */
static void check_idle(const model_fixture *f, const char *module)
{
    const calm_tensor *squares = calm_safetensors_find(f->set, test_format("stats.%s.sumsq", module));
    ck_assert(squares && squares->n_elements > 0);
    const float *sums = reference(f, squares->name, squares->n_elements);
    for (size_t i = 0; i < squares->n_elements; i++)
        ck_assert_msg(sums[i] == 0, "%s: %s: its input was not observed", f->name, module);
}

static void compare_stats(const model_fixture *f, const char *module, const input_stats *found)
{
    if (!is_stored(f, test_format("stats.%s.absmax", module)))
        return;
    if (!found->absmax) {
        check_idle(f, module);
        return;
    }
    const float *expected = reference(f, test_format("stats.%s.absmax", module), found->width);
    const float *squares = reference(f, test_format("stats.%s.sumsq", module), found->width);
    const double n = (double)f->windows.begin[f->windows.n];
    double usual = 0;
    for (size_t i = 0; i < found->width; i++)
        usual += (double)expected[i] * (double)expected[i] / (double)found->width;
    for (size_t i = 0; i < found->width; i++) {
        const double d = RELATIVE * fmax((double)expected[i], sqrt(usual)), square = (double)squares[i];
        ck_assert_msg(fabs((double)found->absmax[i] - (double)expected[i]) <= d,
                      "%s: %s: absmax[%zu] %g, expected %g, tolerance %g", f->name, module, i,
                      (double)found->absmax[i], (double)expected[i], d);
        ck_assert_msg(fabs(found->sumsq[i] - square) <= 2 * d * sqrt(n * square) + n * d * d,
                      "%s: %s: sumsq[%zu] %g, expected %g, values within %g", f->name, module, i, found->sumsq[i],
                      square, d);
    }
}

/* ---- the parts of a model ---- */

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

static void check_nll(const model_fixture *f, const float *logits, size_t vocab)
{
    const double tolerance = NLL_TOLERANCE * largest_of(logits, f->windows.begin[f->windows.n] * vocab);
    const calm_tensor *stored = calm_safetensors_find(f->set, "token_nll");
    double expected = 0;
    ck_assert_msg(stored && stored->n_elements > 0, "%s: reference.safetensors lacks token_nll", f->name);
    for (size_t i = 0; i < stored->n_elements; i++) {
        double value;
        memcpy(&value, stored->data + 8 * i, sizeof value);
        expected += value;
    }
    expected /= (double)stored->n_elements;
    const double found = mean_nll(logits, &f->windows, vocab);
    ck_assert_msg(fabs(found - expected) <= tolerance, "%s: mean NLL %.9g, expected %.9g", f->name, found,
                  expected);
}

static int by_expert(const void *a, const void *b)
{
    const calm_route *x = a, *y = b;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Computes a router's input: the norm before the sublayer; for Gemma 4 x / rms(x) times a weight and D^-1/2. */
static void router_input(const calm_block *block, const float *x, size_t n, float *h)
{
    const size_t width = block->config->hidden;
    const float *scale = block->plain[CALM_PLAIN_ROUTER_SCALE].w;
    calm_norm_rows(&block->norm[CALM_SUBLAYER_MLP][CALM_NORM_IN], x, n, h);
    for (size_t t = 0; scale && t < n; t++) {
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)x[t * width + i] * (double)x[t * width + i];
        const double rms = sqrt(sum / (double)width + (double)block->config->norm_eps);
        for (size_t i = 0; i < width; i++)
            h[t * width + i] = (float)((double)x[t * width + i] / rms * (double)scale[i] / sqrt((double)width));
    }
}

/* Compares a router's logits, choice and weights; x are the rows that enter the MLP sublayer. */
static void check_router(const model_fixture *f, const calm_block *block, const float *x)
{
    const calm_moe_config *moe = &block->config->moe;
    const size_t n = f->windows.begin[f->windows.n];
    float *h, *logits;
    calm_route *routes;
    ck_ok(CALM_NEW(ctx, ctx->out, logits, n * moe->n_experts));
    ck_ok(CALM_NEW(ctx, ctx->out, routes, n * moe->top_k));
    ck_ok(CALM_NEW(ctx, ctx->out, h, n * block->config->hidden));
    router_input(block, x, n, h);
    calm_router_logits(block, h, n, logits);
    ck_ok(calm_router_choose(ctx, block, logits, n, routes));
    compare(f, test_format("router.%02zu.logits", block->index), logits, moe->n_experts);
    /* Llama 4's class returns weights of all experts and no choice. */
    if (!is_stored(f, test_format("router.%02zu.topk_index", block->index)))
        return;
    n_routers++;
    const float *weights = reference(f, test_format("router.%02zu.topk_weight", block->index), n * moe->top_k);
    const calm_tensor *index = calm_safetensors_find(f->set, test_format("router.%02zu.topk_index", block->index));
    ck_assert(index && index->dtype == CALM_I64 && index->n_elements == n * moe->top_k);
    for (size_t t = 0; of_family && t < n; t++)
        qsort(routes + t * moe->top_k, moe->top_k, sizeof *routes, by_expert);
    const double tolerance = 2 * TOLERANCE * largest_of(logits, n * moe->n_experts) * largest_of(weights,
                                                                                                n * moe->top_k);
    for (size_t i = 0; i < n * moe->top_k; i++) {
        ck_assert_int_eq(routes[i].expert, model_fixture_integer(index, i));
        ck_assert_msg(fabs((double)routes[i].weight - (double)weights[i]) <= tolerance,
                      "%s: weight of expert %u: %g, expected %g", f->name, routes[i].expert, (double)routes[i].weight,
                      (double)weights[i]);
    }
}

/* Returns the hidden states alone, for families whose blocks hand on further rows. */
static const float *hidden_rows(const calm_batch *batch)
{
    calm_batch copy;
    ck_ok(calm_batch_copy(ctx, batch, batch->n, ctx->out, NULL, &copy));
    ck_ok(calm_batch_drop_carried(ctx, &copy));
    return copy.hidden.data;
}

/* Compares each of a family's streams, which its blocks hand on (streams.h). */
static void check_streams(const model_fixture *f, const char *what, const calm_config *config, const calm_batch *batch)
{
    float *stream;
    ck_ok(CALM_NEW(ctx, ctx->out, stream, batch->rows * config->hidden));
    for (size_t i = 0; i < config->streams.n; i++) {
        for (size_t w = 0; w < batch->n; w++) {
            const calm_span span = calm_batch_span(batch, w);
            const size_t row = calm_batch_row(batch, w);
            const float *from = calm_batch_carried(batch, &span, batch->hidden.data + row * batch->width);
            for (size_t t = 0; t < span.n_tokens; t++)
                memcpy(stream + (row + t) * config->hidden,
                       from + t * config->carried + config->streams.at + i * config->hidden,
                       config->hidden * sizeof *stream);
        }
        compare_part(f, what, stream, config->hidden, i, config->streams.n);
    }
}

static void check_block(const model_fixture *f, const calm_model *model, size_t index, const calm_rope *rope,
                        calm_batch *batch)
{
    const calm_config *config = calm_model_config(model);
    const calm_layout *layout = calm_model_layout(model);
    static block_stats stats;
    const calm_observer observer = {collect, &stats};
    calm_block block;
    memset(&stats, 0, sizeof stats);
    stats.arena = ctx->out;
    ck_ok(calm_model_load_block(ctx, model, index, &block));
    ck_ok(calm_batch_sublayer(ctx, &block, CALM_SUBLAYER_ATTENTION, rope, batch, &observer));
    if (block.moe.router)
        check_router(f, &block, hidden_rows(batch));
    ck_ok(calm_batch_sublayer(ctx, &block, CALM_SUBLAYER_MLP, rope, batch, &observer));
    if (config->streams.n)
        check_streams(f, test_format("hidden.%02zu", index), config, batch);
    else
        compare(f, test_format("hidden.%02zu", index), hidden_rows(batch), config->hidden);
    for (size_t j = layout->block_begin[index]; j < layout->block_begin[index + 1]; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        for (size_t i = job->first; i < job->first + job->n && job->expert != CALM_SHARED_EXPERT; i++)
            compare_stats(f, layout->linears[i].module, &stats.at[calm_job_input(job->kind)][job->expert + 1]);
    }
    if (config->per_layer)
        compare_stats(f, test_format("%s%s.%zu.%s", calm_model_prefix(model), config->arch->names->blocks, index,
                                     config->arch->names->tail->projection), &stats.at[CALM_HOOK_LAYER_INPUT][0]);
    if (block.moe.router)
        compare_stats(f, test_format("%s%s.%zu.%s", calm_model_prefix(model), config->arch->names->blocks, index,
                                     config->arch->names->moe.router), &stats.at[CALM_HOOK_GATE_UP_IN][0]);
}

static void check_pooling(const model_fixture *f, const calm_head *head, const calm_batch *batch)
{
    const size_t width = batch->width;
    if (!is_stored(f, "pooled_mean"))
        return;
    const float *means = reference(f, "pooled_mean", f->windows.n * width), *pooled = NULL;
    float *out;
    ck_ok(CALM_NEW(ctx, ctx->out, out, width));
    if (calm_safetensors_find(f->set, "pooler_output"))
        pooled = reference(f, "pooler_output", f->windows.n * width);
    ck_assert(!pooled == !head->pooler.w);
    const double tolerance = TOLERANCE * largest_of(batch->hidden.data, batch->rows * width);
    for (size_t w = 0; w < batch->n; w++) {
        const float *x = batch->hidden.data + calm_batch_row(batch, w) * width;
        for (size_t i = 0; i < width; i++) {
            double sum = 0;
            for (size_t t = 0; t < calm_batch_tokens(batch, w); t++)
                sum += (double)x[t * width + i];
            ck_assert(fabs(sum / (double)calm_batch_tokens(batch, w) - (double)means[w * width + i]) <= tolerance);
        }
        if (pooled)
            ck_ok(calm_head_pool(ctx, head, x, out));
        for (size_t i = 0; pooled && i < width; i++)
            ck_assert(fabs((double)out[i] - (double)pooled[w * width + i]) <= tolerance);
    }
}

/* Compares statistics of the head's input, the final norm's output, for which this test calls the hook itself. */
static void check_head_input(const model_fixture *f, const char *module, const calm_batch *batch)
{
    static block_stats stats;
    const calm_observation seen = {.hook = CALM_HOOK_FINAL_NORM, .expert = CALM_NO_EXPERT, .x = batch->hidden.data,
                                   .n_rows = batch->rows, .width = batch->width};
    memset(&stats, 0, sizeof stats);
    stats.arena = ctx->out;
    ck_ok(collect(&stats, ctx, &seen));
    compare_stats(f, module, &stats.at[CALM_HOOK_FINAL_NORM][0]);
}

static void check_head(const model_fixture *f, const calm_model *model, calm_batch *batch)
{
    const calm_config *config = calm_model_config(model);
    calm_head head;
    float *logits;
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_norm(ctx, &head.norm, batch));
    compare(f, config->arch->encoder ? "last_hidden_state" : "hidden.final_norm", batch->hidden.data, batch->width);
    if (config->arch->encoder)
        check_pooling(f, &head, batch);
    else
        check_head_input(f, calm_model_layout(model)->head, batch);
    ck_assert(of_family || !head.table == !calm_safetensors_find(f->set, "logits"));
    if (!head.table)
        return;
    ck_ok(CALM_NEW(ctx, ctx->out, logits, batch->rows * head.vocab));
    ck_ok(calm_head_prepare(ctx, &head, batch->hidden.data, batch->rows));
    ck_ok(calm_head_tile_logits(ctx, &head, batch->hidden.data, batch->rows, 0, head.vocab, logits, head.vocab));
    compare(f, "logits", logits, head.vocab);
    if (!config->arch->encoder)
        check_nll(f, logits, head.vocab);
}

static void check_model(const char *name, const char *dir, const char *source)
{
    model_fixture f;
    calm_model *model;
    calm_rope rope;
    calm_batch batch;
    ck_ok(calm_model_open(ctx, dir, &model));
    model_fixture_open(name, source, &f);
    ctx->n_threads = 1;    /* collect() sums over windows in order */
    ck_ok(calm_rope_init(ctx, calm_model_config(model), calm_windows_reach(&f.windows), &rope));
    ck_ok(calm_batch_embed(ctx, model, &f.windows, 0, f.windows.n, ctx->out, NULL, &batch));
    ck_ok(calm_batch_new_shared(ctx, calm_model_config(model), ctx->out, &batch));
    /* The fixture stores all streams; before block 0 only the first one exists. */
    const size_t streams = calm_model_config(model)->streams.n;
    compare_part(&f, "hidden.embed", hidden_rows(&batch), calm_model_config(model)->hidden, 0, streams ? streams : 1);
    for (size_t k = 0; k < calm_model_config(model)->n_blocks; k++)
        check_block(&f, model, k, &rope, &batch);
    check_head(&f, model, &batch);
    calm_batch_close(&batch);
    model_fixture_close(&f);
    calm_model_close(model);
}

/* Copies the checkpoint with another config.json: its shards and index next to that file. */
static const char *with_config(const char *source, const char *config, char **files)
{
    const char *dir = test_directory();
    for (size_t i = 0; files[i]; i++)
        if (strncmp(files[i], "model", 5) == 0)
            ck_ok(calm_copy_file(ctx, test_format("%s/%s", source, files[i]), test_format("%s/%s", dir, files[i])));
    ck_ok(calm_copy_file(ctx, test_format("%s/%s", source, config), test_format("%s/config.json", dir)));
    return dir;
}

/* Checks the fixture with each spelling of its config.json. */
static void check_spellings(const char *group, const char *name, const char *source)
{
    worst_output = worst_hidden = 0;
    n_routers = 0;
    check_model(name, source, source);
    char **files = fixture_entries(test_format("%s/%s", group, name), "");
    for (size_t f = 0; files[f]; f++)
        if (strncmp(files[f], "config.", 7) == 0 && strcmp(files[f], "config.json") != 0)
            check_model(test_format("%s (%s)", name, files[f]), with_config(source, files[f], files), source);
    printf("ok %s, output %.1e, hidden %.1e, router %s\n", name, worst_output, worst_hidden, n_routers ? "equal" : "-");
}

TEST(model_fixtures)
{
    const char *root = fixtures_root();
    if (!root)
        return;
    calm_linalg_setup();
    char **names = fixture_entries("models", NULL);
    size_t n_run = 0;
    for (size_t i = 0; names[i]; i++, n_run++) {
        const char *source = test_format("%s/models/%s", root, names[i]);
        calm_model *model;
        calm_status status = calm_model_open(ctx, source, &model);
        ck_assert_msg(status == CALM_OK, "%s: %s", names[i], ctx->message);
        calm_model_close(model);
        check_spellings("models", names[i], source);
    }
    ck_assert_msg(n_run > 0, "no model fixture could be run");
}
END_OF_TEST

/* Tells whether calm knows the class in config.json; then the fixture must open. */
static bool is_known(const char *source)
{
    CALM_SCOPED_JSON(json);
    CALM_SCOPED_JSON(text);
    ck_ok(calm_json_read(ctx, test_format("%s/config.json", source), (size_t)1 << 20, &json));
    const bool known = calm_config_text(ctx, "config.json", json, &text) == CALM_OK
                       && calm_arch_find(calm_json_string(calm_json_at(calm_json_get(text ? text : json,
                                                                                     "architectures"), 0), NULL),
                                         NULL);
    calm_ctx_clear_failure(ctx);
    return known;
}

TEST(family_fixtures)
{
    const char *root = fixtures_root();
    if (!root || !calm_is_directory(test_format("%s/families", root)))
        return;
    calm_linalg_setup();
    of_family = true;
    char **names = fixture_entries("families", NULL);
    size_t n_run = 0;
    for (size_t i = 0; names[i]; i++) {
        const char *source = test_format("%s/families/%s", root, names[i]);
        calm_model *model;
        if (!is_known(source)) {
            ck_assert_int_eq(calm_model_open(ctx, source, &model), CALM_EUNSUPPORTED);
            printf("not known: %s\n", names[i]);
            calm_ctx_clear_failure(ctx);
            continue;
        }
        check_spellings("families", names[i], source);
        n_run++;
    }
    printf("%zu families\n", n_run);
    ck_assert_msg(n_run > 0, "no fixture of a family could be run");
}
END_OF_TEST

int main(void)
{
    return run_tests("model_fixtures", (const TTest *[]){model_fixtures, family_fixtures, NULL});
}
