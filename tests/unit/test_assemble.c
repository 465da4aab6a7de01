/* Assembly: folding an input scale into norms, v and up keeps the function of the block.
 *
 * The reference computes with the candidate as it was made: dequantized weights whose input is divided by in_scale. */
#include "ptq/hybrid/assemble.h"

#include "ptq/base/rng.h"
#include "ptq/quant/grid.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define TOKENS 24
#define ALL_JOBS 15u    /* bits: qkv, o, gate_up, down */

/* How the input scales of the test are drawn. */
typedef enum drawing { POWERS_OF_TWO, GENERAL } drawing;

typedef struct bench {
    calm_model *model;
    calm_block block;
    calm_rope rope;
    calm_plan plan;
    calm_plan_job jobs[2 * CALM_N_JOBS];
    calm_qjob qjobs[CALM_N_JOBS];    /* of the block */
} bench;

static calm_status fetch(void *user, calm_ctx *task, const calm_plan_job *job, calm_qjob *out)
{
    const bench *b = user;
    *out = b->qjobs[(size_t)(job - b->jobs) % CALM_N_JOBS];
    /* What is fetched belongs to the assembly, which changes its scales. */
    const float *scales = out->scales;
    CALM_TRY(CALM_NEW(task, task->out, out->scales, out->out * out->n_groups));
    memcpy(out->scales, scales, out->out * out->n_groups * sizeof *scales);
    return CALM_OK;
}

/* One scale per channel; o's is shared by the query heads of a kv head, which is what folding into v needs. */
static float draw_scale(const calm_config *config, calm_job_kind job, size_t i, drawing kind)
{
    const size_t d = config->head_dim, per_kv = config->n_heads / config->n_kv;
    const size_t channel = job == CALM_JOB_O ? i / (d * per_kv) * d + i % d : i;
    const double exponent = 2 * calm_rng_normal(3, job, channel);
    return (float)exp2(kind == POWERS_OF_TWO ? rint(exponent) : exponent);
}

/* Round each weight of the job, times its input's scale, to the nearest point of the scheme's grid. */
static calm_qjob quantize(const calm_block *block, calm_job_kind job, const calm_scheme *scheme, drawing kind)
{
    calm_qjob q = {.scheme = *scheme};
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        if (calm_role_job(role) == job)
            q.out += block->weight[role].out, q.in = block->weight[role].in;
    q.group = calm_scheme_group_size(scheme, q.in);
    q.n_groups = calm_scheme_groups(scheme, q.in);
    ck_ok(CALM_NEW(ctx, ctx->out, q.codes, q.out * q.in));
    ck_ok(CALM_NEW(ctx, ctx->out, q.scales, (q.out + 1) * q.n_groups));    /* a test says one row too many */
    ck_ok(CALM_NEW(ctx, ctx->out, q.zeros, q.out * q.n_groups));
    ck_ok(CALM_NEW(ctx, ctx->out, q.in_scale, q.in));
    for (size_t i = 0; i < q.in; i++)
        q.in_scale[i] = draw_scale(block->config, job, i, kind);
    size_t row = 0;
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        for (size_t o = 0; calm_role_job(role) == job && o < block->weight[role].out; o++, row++)
            for (size_t g = 0; g < q.n_groups; g++) {
                const size_t first = g * q.group, n = q.in - first < q.group ? q.in - first : q.group;
                double w[64], lo, hi;
                for (size_t i = 0; i < n; i++)
                    w[i] = (double)block->weight[role].w[o * q.in + first + i] * (double)q.in_scale[first + i];
                calm_grid_span(w, n, &lo, &hi);
                const calm_grid grid = calm_grid_between(scheme, lo, hi);
                calm_grid_encode(scheme, grid, w, n, q.codes + row * q.in + first);
                q.scales[row * q.n_groups + g] = grid.scale;
                q.zeros[row * q.n_groups + g] = scheme->symmetric ? calm_symmetric_zero(scheme) : grid.zero;
            }
    if (scheme->symmetric)
        q.zeros = NULL;
    return q;
}

/* Open the model, load block 1 and quantize the jobs of `set`. */
static bench new_bench(const tiny_model *spec, const char *scheme_name, unsigned set, drawing kind)
{
    bench b = {0};
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, scheme_name, &scheme));
    ck_ok(calm_model_open(ctx, tiny_model_write(spec), &b.model));
    ck_ok(calm_model_load_block(ctx, b.model, 1, &b.block));
    ck_ok(calm_rope_init(ctx, calm_model_config(b.model), TOKENS, &b.rope));
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++)
        if (set >> job & 1) {
            b.qjobs[job] = quantize(&b.block, job, &scheme, kind);
            b.jobs[CALM_N_JOBS + job] = (calm_plan_job){.quantized = true, .scheme = scheme, .algorithm = "test"};
        }
    b.plan = (calm_plan){.n_blocks = 2, .jobs = b.jobs, .fetch = fetch};
    return b;
}

/* Output of the block on random rows. */
static float *run_block(const bench *b, const calm_block *block)
{
    const size_t n = TOKENS * block->config->hidden;
    float *x;
    ck_ok(CALM_NEW(ctx, ctx->out, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)calm_rng_normal(11, 0, i);
    ck_ok(calm_block_run(ctx, block, &b->rope, x, TOKENS, NULL));
    return x;
}

static float *assembled_output(bench *b)
{
    calm_qblock assembled;
    calm_block block = b->block;
    b->plan.jobs = b->jobs;
    b->plan.user = b;
    ck_ok(calm_assemble_block(ctx, b->model, &b->plan, &b->block, &assembled));
    ck_ok(calm_qblock_apply(ctx, &assembled, &block));
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        ck_assert_ptr_null(block.weight[role].in_scale);    /* all folded away */
    return run_block(b, &block);
}

static float *reference_output(bench *b)
{
    calm_block block = b->block;
    for (calm_job_kind job = 0; job < CALM_N_JOBS; job++) {
        const calm_qjob *q = &b->qjobs[job];
        float *w;
        if (!q->codes)
            continue;
        ck_ok(CALM_NEW(ctx, ctx->out, w, q->out * q->in));
        calm_qjob_dequantize(q, w);
        for (calm_role role = 0; role < CALM_N_ROLES; role++)
            if (calm_role_job(role) == job) {
                calm_weight *weight = &block.weight[role];
                weight->w = w;
                weight->in_scale = q->in_scale;
                weight->act_bits = q->scheme.act_bits;
                w += weight->out * weight->in;
            }
    }
    return run_block(b, &block);
}

/* Relative difference |a - b| / |b| of the two outputs. */
static double difference(const tiny_model *spec, const char *scheme, unsigned set, drawing kind)
{
    bench b = new_bench(spec, scheme, set, kind);
    const float *found = assembled_output(&b), *expected = reference_output(&b);
    double error = 0, size = 0;
    for (size_t i = 0; i < TOKENS * b.block.config->hidden; i++) {
        error += pow((double)found[i] - (double)expected[i], 2);
        size += pow((double)expected[i], 2);
    }
    ck_assert(isfinite(error) && size > 0);
    calm_model_close(b.model);
    return sqrt(error / size);
}

/* Dividing by a power of two is exact, also in bfloat16: nothing but the order of float32 sums may differ. */
TEST(powers_of_two_fold_exactly)
{
    static const char *const schemes[] = {"w4a16_g16", "w4a16_g16_asym", "w8a16", "w8a8", "w4a4_g16"};
    tiny_model spec = tiny_default;
    for (int variant = 0; variant < 4; variant++) {
        spec.bias = variant & 1;
        spec.n_kv = variant & 2 ? 1 : 4;
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
            for (unsigned set = 1; set <= ALL_JOBS; set++) {
                const double found = difference(&spec, schemes[s], set, POWERS_OF_TWO);
                ck_assert_msg(found <= 1e-6, "%s, jobs %u: %g", schemes[s], set, found);
            }
    }
}
END_OF_TEST

/* In a float32 checkpoint, folding into what stays float rounds to float32 alone. */
TEST(folding_into_float_tensors)
{
    static const unsigned sets[] = {1u << CALM_JOB_QKV | 1u << CALM_JOB_GATE_UP, 1u << CALM_JOB_O | 1u << CALM_JOB_DOWN,
                                    1u << CALM_JOB_O, 1u << CALM_JOB_DOWN};
    tiny_model spec = tiny_default;
    spec.dtype = CALM_F32;
    spec.bias = true;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const double found = difference(&spec, "w4a16_g16", sets[i], GENERAL);
        ck_assert_msg(found <= 1e-5, "jobs %u: %g", sets[i], found);
    }
}
END_OF_TEST

/* bfloat16 norms and scales are rounded again: each by at most 2^-9, in five places one after the other (two norms, v, up,
 * and the softmax's argument, which moves by some |score| times two of them). */
TEST(folding_into_bfloat16)
{
    tiny_model spec = tiny_default;
    for (int variant = 0; variant < 2; variant++) {
        spec.dtype = variant ? CALM_BF16 : CALM_F32;
        const double found = difference(&spec, "w4a16_g16", ALL_JOBS, GENERAL);
        ck_assert_msg(found <= 16 * 0x1p-9 && found > 1e-6, "%g", found);
    }
}
END_OF_TEST

/* What is stored is what is computed with: norms in the checkpoint's dtype, scales in the scheme's. */
TEST(folded_values_are_storable)
{
    bench b = new_bench(&tiny_default, "w4a16_g16", ALL_JOBS, GENERAL);
    calm_qblock assembled;
    b.plan.jobs = b.jobs, b.plan.user = &b;
    ck_ok(calm_assemble_block(ctx, b.model, &b.plan, &b.block, &assembled));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
        for (size_t i = 0; i < 32; i++)
            ck_assert(assembled.norm[s][i] == calm_bf16_to_f32(calm_f32_to_bf16(assembled.norm[s][i])));
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        const calm_qlinear *linear = &assembled.linear[role];
        for (size_t i = 0; i < linear->out * linear->n_groups; i++)
            ck_assert(linear->scales[i] == calm_bf16_to_f32(calm_f32_to_bf16(linear->scales[i])));
    }
    calm_model_close(b.model);
}
END_OF_TEST

/* Block 0 of the plan stays float: nothing changes, and the override finds the right block. */
TEST(float_jobs_stay)
{
    bench b = new_bench(&tiny_default, "w4a16_g16", ALL_JOBS, GENERAL);
    calm_block first, changed;
    calm_plan_override override = {b.model, &b.plan};
    b.plan.jobs = b.jobs, b.plan.user = &b;
    ck_ok(calm_model_load_block(ctx, b.model, 0, &first));
    changed = first;
    ck_ok(calm_plan_apply(&override, ctx, 0, &changed));
    ck_assert(memcmp(&first, &changed, sizeof first) == 0);
    changed = b.block;
    ck_ok(calm_plan_apply(&override, ctx, 1, &changed));
    ck_assert_ptr_ne(changed.weight[CALM_ROLE_Q].w, b.block.weight[CALM_ROLE_Q].w);
    calm_model_close(b.model);
}
END_OF_TEST

static void refused(bench *b, calm_status status, const char *words)
{
    calm_qblock assembled;
    b->plan.jobs = b->jobs, b->plan.user = b;
    ck_fails(calm_assemble_block(ctx, b->model, &b->plan, &b->block, &assembled), status, words);
}

TEST(what_does_not_fit_is_refused)
{
    bench b = new_bench(&tiny_default, "w4a16_g16", ALL_JOBS, GENERAL);
    const calm_qjob whole = b.qjobs[CALM_JOB_QKV];
    b.qjobs[CALM_JOB_QKV].out--;
    refused(&b, CALM_EFORMAT, "model.layers.1.self_attn.v_proj");
    b.qjobs[CALM_JOB_QKV].out = whole.out + 1;
    refused(&b, CALM_EFORMAT, "block 1, qkv: 64 rows, but the stored candidate has 65");
    b.qjobs[CALM_JOB_QKV] = whole;
    b.qjobs[CALM_JOB_DOWN].in--;
    refused(&b, CALM_EFORMAT, "model.layers.1.mlp.down_proj: [32, 48], but the stored candidate has [32, 47]");
    calm_model_close(b.model);
}
END_OF_TEST

TEST(scales_out_of_range_are_refused)
{
    bench b = new_bench(&tiny_default, "w4a16_g16", ALL_JOBS, GENERAL);
    b.qjobs[CALM_JOB_GATE_UP].in_scale[5] = 1e-44f;
    refused(&b, CALM_ENUMERIC, "layernorm.weight: value 5");
    calm_model_close(b.model);
    b = new_bench(&tiny_default, "w4a16_g16", ALL_JOBS, GENERAL);
    b.qjobs[CALM_JOB_DOWN].in_scale[7] = 1e-30f;
    refused(&b, CALM_ENUMERIC, "model.layers.1.mlp.up_proj: scale of row 7");
    calm_model_close(b.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("assemble", (const TTest *[]){
        powers_of_two_fold_exactly, folding_into_float_tensors, folding_into_bfloat16, folded_values_are_storable,
        float_jobs_stay, what_does_not_fit_is_refused, scales_out_of_range_are_refused, NULL});
}
