/* What an exporter does with a scale that folding an input scale has made small: it is stored exactly, or rounded to
 * what the format stores and noted with the number of such scales and the loss.  The last test is about output
 * directories. */
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/output.h"
#include "ptq/export/export.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* Plans a model whose row 5 of `up` in block 1 gets the scale `scale` when the input scale of `down` is folded in. */
static void new_plan(tiny_plan *p, float scale)
{
    static const char *const schemes[] = {"w4a16_g32"};
    const tiny_model spec = tiny_wide("llama");
    tiny_plan_open(p, tiny_model_write(&spec));
    tiny_plan_quantize_all(p, schemes, 1, TINY_POWERS_OF_TWO);
    const calm_layout *layout = calm_model_layout(p->model);
    for (size_t j = layout->block_begin[1]; j < layout->block_begin[2]; j++) {
        calm_qjob *q = &p->qjobs[j];
        if (layout->jobs[j].kind == CALM_JOB_DOWN)
            q->in_scale[5] = 0x1p6f;
        if (layout->jobs[j].kind == CALM_JOB_GATE_UP)
            for (size_t g = 0; g < q->n_groups; g++)
                q->scales[(q->out / 2 + 5) * q->n_groups + g] = scale * 0x1p6f;
    }
}

static void keep_note(void *user, calm_log_level level, const char *line)
{
    if (level == CALM_LOG_INFO && strstr(line, "float16"))
        snprintf(user, 256, "%s", line);
}

/* Writes the plan with this scale; `note` [256] receives the log line about float16. */
static void write_as(const char *format, float scale, char note[256])
{
    static const calm_export_options options = {.asymmetric = true};
    const calm_exporter *exporter;
    tiny_plan p;
    new_plan(&p, scale);
    ck_ok(calm_exporter_find(ctx, format, &exporter));
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(exporter->check(ctx, &input));
    note[0] = '\0';
    ctx->log = keep_note;
    ctx->log_user = note;
    ck_ok(calm_exporter_write(ctx, exporter, &input, test_directory()));
    ctx->log = NULL;
    calm_model_close(p.model);
}

/* 11 * 2^-24 is a subnormal float16 and stays; 11 * 2^-25 is not a float16 and becomes 6 * 2^-24, a twelfth more,
 * for which codes are chosen anew with an error of at most half a step.  bfloat16 holds both. */
TEST(held_or_fitted)
{
    static const char *const formats[] = {"gptq", "awq", "mlx", "gguf"};
    char note[256];
    write_as("compressed-tensors", 0x1.6p-22f, note);
    ck_assert_str_eq(note, "");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        write_as(formats[i], 0x1.6p-21f, note);
        ck_assert_str_eq(note, "");
        write_as(formats[i], 0x1.6p-22f, note);
        ck_assert_msg(strstr(note, "model.layers.1.mlp.up_proj.weight: ") != NULL, "%s", note);
        double loss = 1;
        ck_assert_int_eq(sscanf(strstr(note, "relative error "), "relative error %lf", &loss), 1);
        ck_assert(loss > 0 && loss < 0.2);
    }
}
END_OF_TEST

static calm_status write_power(float scale)
{
    static const char *const schemes[] = {"mxfp4a16"};
    const tiny_model spec = tiny_wide("llama");
    const calm_exporter *exporter;
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 1, TINY_UNSCALED);
    p.qjobs[0].scales[0] = scale;
    ck_ok(calm_exporter_find(ctx, "gguf", &exporter));
    const calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_ok(exporter->check(ctx, &input));
    const calm_status status = calm_exporter_write(ctx, exporter, &input, test_directory());
    calm_model_close(p.model);
    return status;
}

/* Scales of MXFP4 in GGUF are powers of two, from below float16's range to above it. */
TEST(powers_of_two)
{
    ck_ok(write_power(0x1p-126f));
    ck_ok(write_power(0x1p127f));
    ck_fails(write_power(0x1.8p-3f), CALM_ENUMERIC, "0.1875 of row 0, group 0 or its minimum is no power of two");
}
END_OF_TEST

/* --force replaces the output of an earlier export, but no directory with other files. */
TEST(destinations)
{
    const char *ours = test_directory(), *theirs = test_directory();
    ck_ok(calm_write_file(ctx, test_format("%s/model.gguf", ours), "x", 1));
    ck_ok(calm_output_list(ctx, ours));
    ck_ok(calm_write_file(ctx, test_format("%s/letter.txt", theirs), "x", 1));
    ck_ok(calm_export_destination(ctx, ours, true, NULL));
    ck_fails(calm_export_destination(ctx, ours, false, NULL), CALM_EEXIST, "exists already");
    ck_fails(calm_export_destination(ctx, theirs, true, NULL), CALM_EARG, "letter.txt, which calm did not write");
}
END_OF_TEST

int main(void)
{
    return run_tests("export_scales", (const TTest *[]){held_or_fitted, powers_of_two, destinations, NULL});
}
