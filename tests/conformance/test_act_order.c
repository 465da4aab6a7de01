/* Schemes with groups in activation order: every chain gives what it gives for the same job whose inputs were sorted
 * by falling power beforehand, and a GPTQ checkpoint of such a scheme reads back bit for bit. */
#include "algorithms/act_order.h"

#include <math.h>
#include "ptq/arch/arch.h"
#include "ptq/export/export.h"
#include "ptq/io/json.h"
#include "ptq/plan/assemble.h"
#include "ptq/quant/qjob.h"
#include "tests/conformance/all_chains.h"
#include "tests/conformance/sample_job.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define OUT 40
#define IN  48
#define SCHEME "w3a16_g16_asym"

/* Sorts the inputs of a sample by falling power (sum of squares); of equal inputs the one with the lower number
 * comes first. */
static void find_order(const sample *s, size_t order[IN])
{
    bool used[IN] = {false};
    for (size_t k = 0; k < IN; k++) {
        size_t best = IN;
        for (size_t j = 0; j < IN; j++)
            if (!used[j] && (best == IN || s->sumsq[j] > s->sumsq[best]))
                best = j;
        used[order[k] = best] = true;
    }
}

/* Makes the same job with its inputs permuted: input k is input order[k] of `from`. */
static void reorder(const sample *from, const size_t order[IN], sample *to)
{
    make_sample(to, OUT, IN, from->rows, SCHEME);
    for (size_t k = 0; k < IN; k++) {
        for (size_t t = 0; t < from->rows; t++)
            to->x[t * IN + k] = from->x[t * IN + order[k]];
        for (size_t l = 0; l < 2; l++)
            for (size_t row = 0; row < from->linears[l].out; row++)
                to->w[l][row * IN + k] = from->w[l][row * IN + order[k]];
    }
    measure(to);
}

static void check_reordered(const char *name, const calm_qjob *found, const calm_qjob *expected, const size_t order[IN])
{
    const size_t cells = OUT * found->n_groups;
    ck_assert_msg(found->scheme.act_order && !expected->scheme.act_order, "%s", name);
    ck_assert_msg(memcmp(found->codes, expected->codes, OUT * IN) == 0, "%s: codes differ", name);
    ck_assert_msg(memcmp(found->scales, expected->scales, cells * sizeof *found->scales) == 0, "%s: scales", name);
    ck_assert_msg(memcmp(found->zeros, expected->zeros, cells) == 0, "%s: zeros differ", name);
    ck_assert(!found->in_scale == !expected->in_scale && !found->bias_delta == !expected->bias_delta);
    ck_assert(!found->bias_delta ||
              memcmp(found->bias_delta, expected->bias_delta, OUT * sizeof *found->bias_delta) == 0);
    for (size_t k = 0; k < IN; k++) {
        ck_assert_uint_eq(found->order[k], order[k]);
        ck_assert(!found->in_scale || found->in_scale[order[k]] == expected->in_scale[k]);
    }
    float w[OUT * IN], v[OUT * IN];
    calm_qjob_effective(found, w);
    calm_qjob_effective(expected, v);
    for (size_t i = 0; i < OUT * IN; i++)
        ck_assert(w[i / IN * IN + order[i % IN]] == v[i]);
}

/* Every chain that reaches the scheme runs with its own Hessian and with a shared one. */
TEST(chains_see_the_job_in_order)
{
    const char **chains = all_chains();
    size_t n = 0;
    for (size_t i = 0; chains[i]; i++) {
        sample s, ordered;
        size_t order[IN];
        calm_qjob found, shared, expected;
        calm_algorithm *algorithm;
        calm_hessian hessian;
        double *gram;
        if (!reaches(chains[i], SCHEME))
            continue;
        make_sample(&s, OUT, IN, 16 * IN, SCHEME);
        find_order(&s, order);
        reorder(&s, order, &ordered);
        ck_ok(try(chains[i], &ordered.job, &expected));
        s.job.scheme.act_order = true;
        ck_ok(try(chains[i], &s.job, &found));
        check_reordered(chains[i], &found, &expected, order);
        ck_ok(CALM_NEW(ctx, ctx->out, gram, IN * IN));
        memcpy(gram, s.gram, IN * IN * sizeof *gram);
        ck_ok(calm_hessian_make(ctx, "job", IN, &s.stats, gram, 0.01, &hessian));
        ck_ok(calm_algorithm_parse(ctx, chains[i], &algorithm));
        ck_ok(calm_algorithm_run_shared(ctx, algorithm, &s.job, &hessian, &shared));
        check_reordered(chains[i], &shared, &expected, order);
        n++;
    }
    ck_assert_uint_ge(n, 12);
}
END_OF_TEST

/* One channel of 13 is an outlier.  Activation order puts outliers into the same groups, so that the other groups
 * have finer scales and the weighted error falls. */
TEST(like_inputs_share_scales)
{
    sample s;
    double error[2] = {0, 0};
    make_sample(&s, OUT, IN, 16 * IN, "w4a16_g16");
    /* Inputs with large magnitude have small weights, as in trained models. */
    for (size_t l = 0; l < 2; l++)
        for (size_t i = 0; i < s.linears[l].out * IN; i++)
            s.w[l][i] *= (float)(1 / sqrt(s.sumsq[i % IN] / (double)s.rows));
    for (int ordered = 0; ordered < 2; ordered++) {
        calm_qjob q;
        float w[OUT * IN];
        s.job.scheme.act_order = ordered;
        ck_ok(try("rtn", &s.job, &q));
        calm_qjob_effective(&q, w);
        for (size_t l = 0, row = 0; l < 2; row += s.linears[l++].out)
            for (size_t i = 0; i < s.linears[l].out * IN; i++)
                error[ordered] += pow((double)(w[row * IN + i] - s.w[l][i]), 2) * s.sumsq[i % IN];
    }
    ck_assert_msg(error[1] < error[0], "%g, in the order of inputs %g", error[1], error[0]);
}
END_OF_TEST

TEST(refusals)
{
    sample s;
    calm_qjob q;
    make_sample(&s, OUT, IN, 16 * IN, "w4a16_g16_actorder");
    s.stats.sumsq = NULL;
    ck_fails(try("rtn", &s.job, &q), CALM_EARG, "needs the inputs' sums of squares");
    s.job.stats = NULL;
    ck_fails(try("rtn", &s.job, &q), CALM_EARG, "rtn needs calibration");
    make_sample(&s, OUT, IN, 16 * IN, "w4a16_g16_actorder");
    s.sumsq[7] = NAN;
    ck_fails(try("gptq", &s.job, &q), CALM_ENUMERIC, "the sum of x^2 of input 7 is nan");
    make_sample(&s, OUT, IN, 16 * IN, "w4a16_g16_actorder");
    s.w[1][2 * IN + 9] = INFINITY;
    ck_fails(try("gptq", &s.job, &q), CALM_ENUMERIC, "second.weight[2, 9] is inf");
}
END_OF_TEST

/* A run holds no more than the estimate and three arena chunks: one each for the result, scratch and the worker. */
TEST(memory)
{
    const char **chains = all_chains();
    for (size_t i = 0; chains[i]; i++) {
        sample s;
        calm_qjob q;
        calm_algorithm *algorithm;
        if (!reaches(chains[i], SCHEME "_actorder"))
            continue;
        make_sample(&s, OUT, IN, 16 * IN, SCHEME "_actorder");
        ck_ok(calm_algorithm_parse(ctx, chains[i], &algorithm));
        calm_job_shape shape = calm_job_shape_of(&s.job.scheme, OUT, IN);
        shape.n_samples = s.rows;
        shape.biased = true;
        const size_t said = calm_algorithm_run_bytes(algorithm, &shape) +
                            calm_algorithm_run_scratch_bytes(algorithm, &shape);
        ctx->n_threads = 1;
        test_memory_begin();
        ck_ok(calm_algorithm_run(ctx, algorithm, &s.job, &q));
        const test_memory found = test_memory_end();
        ck_assert_msg(found.most <= said + 3 * CALM_ARENA_CHUNK, "%s: took %zu, said %zu", chains[i], found.most, said);
    }
}
END_OF_TEST

/* Checks that the written checkpoint, opened as a model, has the plan's weights bit for bit. */
static void check_written(const tiny_plan *p, const char *dir)
{
    calm_plan_override override = {p->model, &p->plan};
    calm_model *written;
    ck_ok(calm_model_open(ctx, dir, &written));
    for (size_t i = 0; i < calm_model_config(p->model)->n_blocks; i++) {
        calm_block found, expected;
        ck_ok(calm_model_load_block(ctx, written, i, &found));
        ck_ok(calm_model_load_block(ctx, p->model, i, &expected));
        ck_ok(calm_plan_apply(&override, ctx, i, &expected));
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            const calm_weight *f = &found.weight[role], *e = &expected.weight[role];
            ck_assert(!f->w == !e->w);
            ck_assert_msg(!f->w || memcmp(f->w, e->w, f->out * f->in * sizeof *f->w) == 0, "%s differs", e->name);
        }
    }
    calm_model_close(written);
}

/* Activation order on all jobs, on most of the jobs, and on a minority of them. */
TEST(gptq_files)
{
    static const struct {
        const char *schemes[4];
        size_t n;
        bool ordered;    /* the file's "desc_act": whether most weights have activation order */
    } rows[] = {{{"w4a16_g32_actorder"}, 1, true},
                {{"w3a16_g32_actorder_f16s"}, 1, true},
                {{"w8a16_g16_asym_actorder"}, 1, true},
                {{"w4a16_g32_actorder", "w4a16_g32_actorder", "w4a16_g32", "w8a16_g32_actorder"}, 4, true},
                {{"w4a16_g32_actorder", "w4a16_g32", "w4a16_g32", "float"}, 4, false}};
    const calm_export_options options = {.asymmetric = true};
    const calm_exporter *exporter;
    tiny_model spec = tiny_default;
    spec.hidden = 64;
    spec.inner = 96;
    spec.head_dim = 16;
    ck_ok(calm_exporter_find(ctx, "gptq", &exporter));
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const char *dir = test_directory();
        tiny_plan p;
        calm_json *config;
        tiny_plan_open(&p, tiny_model_write(&spec));
        tiny_plan_quantize_all(&p, rows[r].schemes, rows[r].n, TINY_GENERAL);
        const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
        ck_ok(exporter->check(ctx, &input));
        ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
        check_written(&p, dir);
        ck_ok(calm_json_read(ctx, test_format("%s/config.json", dir), 1 << 20, &config));
        const calm_json *entry = calm_json_get(config, "quantization_config");
        ck_assert(calm_json_bool(calm_json_get(entry, "desc_act"), false) == rows[r].ordered);
        calm_json_free(config);
        calm_model_close(p.model);
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("act_order", (const TTest *[]){chains_see_the_job_in_order, like_inputs_share_scales, refusals,
                                                    memory, gptq_files, NULL});
}
