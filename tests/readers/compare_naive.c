/* Compares the rounding of tests/support/naive_rounding.c with a tool's:
 *
 *   compare_naive MODEL gguf|ct SCHEME DIR [same]
 *
 * DIR has the model as the tool rounded it, dequantized to float32.  Prints one line for all jobs whose row length 256
 * divides: the share of equal weights, and the sum of squares that the tool minimises, for both.  Exit status 1 if the
 * imitation loses more than the tool, which would make the bound of conformance.test_naive_rounding too easy, or with
 * `same` if fewer than 90 of 100 weights agree: spans that are equally good in float32 and in double may differ. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/io/safetensors.h"
#include "tests/support/harness.h"
#include "tests/support/naive_rounding.h"
#include "tests/support/tiny_plan.h"

static char **words;

typedef struct tally {
    size_t n, same;
    double naive, tool;
} tally;

/* Stacks the linears of a job: the model's, or DIR's if `file` is given. */
static float *stack(const calm_layout *layout, const calm_job_ref *job, const calm_weight *weights,
                    const calm_safetensors *file)
{
    float *out;
    size_t at = 0;
    ck_ok(CALM_NEW_RAW(ctx, ctx->out, out, job->out * job->in));
    for (size_t i = job->first; i < job->first + job->n; i++) {
        const calm_linear_ref *linear = &layout->linears[i];
        const size_t shape[2] = {linear->out, linear->in}, n = linear->out * linear->in;
        const calm_tensor *tensor;
        if (!file) {
            memcpy(out + at, weights[linear->role].w, n * sizeof *out);
        } else {
            ck_ok(calm_safetensors_need_floats(ctx, file, test_format("%s.weight", linear->module), 2, shape, &tensor));
            ck_ok(calm_tensor_to_f32(ctx, tensor, out + at));
        }
        at += n;
    }
    return out;
}

static const char *add(const tiny_plan *p, size_t index, const calm_scheme *scheme, const calm_safetensors *file,
                       tally *sum)
{
    const calm_layout *layout = calm_model_layout(p->model);
    const calm_job_ref *job = &layout->jobs[index];
    const size_t n = job->out * job->in;
    calm_block block;
    float *naive, *weight;
    ck_ok(calm_model_load_block(ctx, p->model, job->block, &block));
    const float *w = stack(layout, job, tiny_plan_weights(&block, job->expert), NULL);
    const float *tool = stack(layout, job, NULL, file);
    ck_ok(CALM_NEW_RAW(ctx, ctx->out, naive, n));
    ck_ok(CALM_NEW_RAW(ctx, ctx->out, weight, n));
    const char *name = naive_round(scheme, words[2][0] == 'g', w, job->out, job->in, naive, weight);
    for (size_t i = 0; i < n; i++) {
        sum->same += fabsf(naive[i] - tool[i]) <= 0x1p-20f * fabsf(tool[i]);    /* four roundings of float32 */
        sum->naive += (double)weight[i] * pow((double)w[i] - (double)naive[i], 2);
        sum->tool += (double)weight[i] * pow((double)w[i] - (double)tool[i], 2);
    }
    sum->n += n;
    return name;
}

TEST(compare)
{
    calm_scheme scheme;
    calm_safetensors *file;
    tiny_plan p;
    tally sum = {0};
    const char *tool = NULL;
    ck_ok(calm_scheme_parse(ctx, words[3], &scheme));
    ck_ok(calm_safetensors_open(ctx, words[4], &file));
    tiny_plan_open(&p, words[1]);
    for (size_t j = 0; j < p.plan.n_jobs; j++)
        if (calm_model_layout(p.model)->jobs[j].in % 256 == 0)
            tool = add(&p, j, &scheme, file, &sum);
    ck_assert_ptr_nonnull(tool);
    printf("%s: %.4f of %zu weights as %s has them, error %.6e, the tool's %.6e (%+.4f %%)\n", words[3],
           (double)sum.same / (double)sum.n, sum.n, tool, sum.naive, sum.tool, 100 * (sum.naive / sum.tool - 1));
    ck_assert(sum.naive <= 1.001 * sum.tool && (!words[5] || (double)sum.same >= 0.9 * (double)sum.n));
    calm_safetensors_close(file);
    calm_model_close(p.model);
}
END_OF_TEST

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) {
        fputs("usage: compare_naive MODEL gguf|ct SCHEME DIR [same]\n", stderr);
        return 2;
    }
    words = argv;    /* ends with NULL */
    return run_tests("compare_naive", (const TTest *[]){compare, NULL});
}
