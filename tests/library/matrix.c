/* The second example of docs/library.md: one matrix by two algorithms, scored by linear CKA. */
#include <calm.h>
#include <stdio.h>
#include <stdlib.h>

enum { OUT = 48, IN = 128, ROWS = 512 };

static float w[OUT * IN], x[ROWS * IN], y[ROWS * OUT], z[ROWS * OUT], w_q[OUT * IN];

static void multiply(const float *weights, float *out)
{
    for (int t = 0; t < ROWS; t++)
        for (int o = 0; o < OUT; o++) {
            out[t * OUT + o] = 0;
            for (int i = 0; i < IN; i++)
                out[t * OUT + o] += x[t * IN + i] * weights[o * IN + i];
        }
}

static calm_status quantize(calm_ctx *ctx, const char *name, const calm_stats *stats, calm_score_ref *reference)
{
    const calm_linear linear = {.name = "matrix", .out = OUT, .in = IN, .w = w};
    calm_job job = {.name = "job", .linears = &linear, .n_linears = 1, .stats = stats};
    calm_algorithm *algorithm;
    calm_qjob quantized;
    calm_scores scores;
    if (calm_scheme_parse(ctx, "w3a16_g64", &job.scheme) || calm_algorithm_parse(ctx, name, &algorithm) ||
        calm_algorithm_run(ctx, algorithm, &job, &quantized))
        return CALM_EARG;
    calm_qjob_effective(&quantized, w_q);
    multiply(w_q, z);
    if (calm_score(ctx, reference, z, &scores))
        return CALM_EARG;
    printf("%-6s 1 - CKA %.2e, relative squared error %.2e\n", name, scores.value[CALM_METRIC_CKA],
           scores.value[CALM_METRIC_REL_MSE]);
    return CALM_OK;
}

int main(void)
{
    calm_ctx *ctx;
    calm_stats stats;
    calm_score_ref *reference;
    srand(1);
    for (int i = 0; i < OUT * IN; i++)
        w[i] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < ROWS * IN; i++)    /* neighbouring channels correlate */
        x[i] = (float)rand() / (float)RAND_MAX - 0.5f + (i % IN ? 0.8f * x[i - 1] : 0);
    multiply(w, y);
    if (calm_start(&ctx))
        return 1;
    if (calm_stats_new(ctx, x, ROWS, IN, &stats) || calm_score_prepare(ctx, y, ROWS, OUT, &reference) ||
        quantize(ctx, "rtn", &stats, reference) || quantize(ctx, "gptq", &stats, reference))
        fprintf(stderr, "%s\n", calm_error_text(ctx));
    const int failed = calm_error_text(ctx)[0] != 0;
    calm_stop(&ctx);
    return failed;
}
