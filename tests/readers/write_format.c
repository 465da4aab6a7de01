/* Writes a checkpoint in a format, and the weights that it represents:
 *
 *   write_format MODEL OUT FORMAT SCHEMES [SHARD-BYTES]
 *
 * SCHEMES, joined by ',', take turns over the model's jobs, rounded to nearest.  OUT.plan.safetensors has the plan's
 * weights of all linears, "<module>.weight" F32 [out, in]: a reader of OUT must compute the same bits. */
#include <stdio.h>

#include "ptq/plan/assemble.h"
#include "ptq/export/export.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_plan.h"

#define MOST_SCHEMES 16

static char **arguments;

static void write_weights(const tiny_plan *p, const char *path)
{
    const calm_layout *layout = calm_model_layout(p->model);
    calm_plan_override override = {p->model, &p->plan};
    calm_safetensors_writer writer;
    calm_tensor *tensors;
    ck_ok(CALM_NEW(ctx, ctx->out, tensors, layout->n_linears));
    for (size_t i = 0; i < layout->n_linears; i++)
        tensors[i] = (calm_tensor){.name = test_format("%s.weight", layout->linears[i].module),
                                   .dtype = CALM_F32,
                                   .n_dims = 2,
                                   .shape = {layout->linears[i].out, layout->linears[i].in}};
    ck_ok(calm_safetensors_begin(ctx, &writer, path, tensors, layout->n_linears));
    for (size_t j = 0; j < layout->n_jobs; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        calm_block block;
        ck_ok(calm_model_load_block(ctx, p->model, job->block, &block));
        ck_ok(calm_plan_apply(&override, ctx, job->block, &block));
        const calm_weight *weights = tiny_plan_weights(&block, job->expert);
        for (size_t i = job->first; i < job->first + job->n; i++) {
            const calm_weight *weight = &weights[layout->linears[i].role];
            ck_ok(calm_safetensors_put(ctx, &writer, weight->w, weight->out * weight->in * sizeof *weight->w));
        }
    }
    ck_ok(calm_safetensors_end(ctx, &writer));
}

TEST(write)
{
    const char *schemes[MOST_SCHEMES], *out = arguments[2];
    size_t n = 0;
    tiny_plan p;
    const calm_exporter *exporter;
    const calm_export_options options = {.max_shard_bytes = arguments[5] ? (size_t)atoll(arguments[5]) : 0,
                                         .asymmetric = true};
    for (char *word = strtok(arguments[4], ","); word && n < MOST_SCHEMES; word = strtok(NULL, ","))
        schemes[n++] = word;
    tiny_plan_open(&p, arguments[1]);
    tiny_plan_quantize_all(&p, schemes, n, TINY_UNSCALED);
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(calm_exporter_find(ctx, arguments[3], &exporter));
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_make_directories(ctx, out));
    ck_ok(calm_exporter_write(ctx, exporter, &input, out));
    write_weights(&p, test_format("%s.plan.safetensors", out));
    calm_model_close(p.model);
}
END_OF_TEST

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) {
        fputs("usage: write_format MODEL OUT FORMAT SCHEMES [SHARD-BYTES]\n", stderr);
        return 2;
    }
    arguments = argv;
    return run_tests("write_format", (const TTest *[]){write, NULL});
}
