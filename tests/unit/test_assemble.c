/* Assembly: folding an input scale into norms, v and up keeps the function of the block.  The reference computes
 * with the candidate before folding: dequantized weights whose input is divided by in_scale. */
#include "ptq/plan/assemble_impl.h"

#include "ptq/arch/arch.h"
#include "ptq/base/rng.h"
#include "ptq/model/forward.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define TOKENS 24
#define ALL_JOBS ((1u << CALM_N_JOBS) - 1)

/* A plan for block 1 of a model with two blocks; block 0 stays float. */
typedef struct bench {
    tiny_plan p;
    calm_block block;
    calm_rope rope;
    size_t first, end;    /* the block's jobs */
} bench;

/* Opens the model, loads block 1 and quantizes the jobs of `set`, in all experts. */
static void new_bench(bench *b, const tiny_model *spec, const char *scheme, unsigned set, tiny_scales kind)
{
    *b = (bench){0};
    tiny_plan_open(&b->p, tiny_model_write(spec));
    const calm_layout *layout = calm_model_layout(b->p.model);
    ck_ok(calm_model_load_block(ctx, b->p.model, 1, &b->block));
    ck_ok(calm_rope_init(ctx, calm_model_config(b->p.model), TOKENS, &b->rope));
    b->first = layout->block_begin[1];
    b->end = layout->block_begin[2];
    for (size_t job = b->first; job < b->end; job++)
        if (set >> layout->jobs[job].kind & 1)
            tiny_plan_quantize(&b->p, job, scheme, kind);
}

/* Returns the number of the block's first job of this kind; b->end if there is none. */
static size_t job_of(const bench *b, calm_job_kind kind)
{
    size_t job = b->first;
    while (job < b->end && calm_model_layout(b->p.model)->jobs[job].kind != kind)
        job++;
    return job;
}

static calm_qjob *qjob_of(bench *b, calm_job_kind kind)
{
    return &b->p.qjobs[job_of(b, kind)];
}

static calm_status assemble(const bench *b, calm_sublayer sublayer, calm_fold_set *out)
{
    const calm_fold_set_ref group = {&b->block, sublayer, CALM_NO_EXPERT, b->block.weight};
    return calm_assemble_fold_set(ctx, b->p.model, &b->p.plan, &group, out);
}

/* Returns the output of the block for random rows. */
static float *run_block(const bench *b, const calm_block *block)
{
    const size_t lengths[] = {TOKENS}, width = calm_batch_width(block->config);
    const calm_windows windows = tiny_windows(lengths, 1);
    calm_batch batch = {.windows = &windows, .n = 1, .rows = TOKENS, .width = width, .carried = block->config->carried,
                        .hidden = {.n = TOKENS, .width = width, .file = -1}};
    ck_ok(CALM_NEW(ctx, ctx->out, batch.hidden.data, TOKENS * width));
    for (size_t i = 0; i < TOKENS * width; i++)
        batch.hidden.data[i] = (float)calm_rng_normal(11, 0, i);
    ck_ok(calm_batch_block(ctx, block, &b->rope, &batch, NULL));
    return batch.hidden.data;
}

static void check_folded(const calm_weight weight[CALM_N_ROLES])
{
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        ck_assert_ptr_null(weight[role].in_scale);
}

static float *assembled_output(const bench *b)
{
    calm_plan_override override = {b->p.model, &b->p.plan};
    calm_block block = b->block;
    ck_ok(calm_plan_apply(&override, ctx, 1, &block));
    check_folded(block.weight);
    check_folded(block.moe.shared);
    return run_block(b, &block);
}

/* Replaces the bias by the sum of the bias and its correction. */
static calm_status corrected(calm_ctx *task, const float *delta, calm_weight *weight)
{
    float *bias;
    CALM_TRY(CALM_NEW(task, task->out, bias, weight->out));
    for (size_t i = 0; i < weight->out; i++)
        bias[i] = weight->bias[i] + delta[i];
    weight->bias = bias;
    return CALM_OK;
}

/* Replaces the weights of the block, or of an expert, by their candidates before folding. */
static calm_status put_candidates(const bench *b, calm_ctx *task, long expert, calm_weight weight[CALM_N_ROLES])
{
    const calm_layout *layout = calm_model_layout(b->p.model);
    for (size_t j = b->first; j < b->end; j++) {
        const calm_qjob *q = &b->p.qjobs[j];
        float *w, *first;
        if (layout->jobs[j].expert != expert || !b->p.plan.jobs[j].quantized)
            continue;
        CALM_TRY(CALM_NEW(task, task->out, first, q->out * q->in));
        calm_qjob_dequantize(q, first);
        w = first;
        for (size_t i = layout->jobs[j].first; i < layout->jobs[j].first + layout->jobs[j].n; i++) {
            calm_weight *replaced = &weight[layout->linears[i].role];
            replaced->w = w;
            replaced->in_scale = q->in_scale;
            replaced->act_bits = q->scheme.act_bits;
            replaced->act_asymmetric = q->scheme.act_asymmetric;
            replaced->act_rule = q->scheme.act_rule;
            if (q->bias_delta && replaced->bias)
                CALM_TRY(corrected(task, q->bias_delta + (w - first) / (ptrdiff_t)replaced->in, replaced));
            w += replaced->out * replaced->in;
        }
    }
    return CALM_OK;
}

static calm_status load_candidate(void *user, calm_ctx *task, size_t block, size_t expert,
                                  calm_weight weight[CALM_N_ROLES])
{
    const bench *b = user;
    CALM_TRY(b->block.moe.load(b->block.moe.user, task, block, expert, weight));
    return put_candidates(b, task, (long)expert, weight);
}

static float *reference_output(bench *b)
{
    calm_block block = b->block;
    ck_ok(put_candidates(b, ctx, CALM_NO_EXPERT, block.weight));
    ck_ok(put_candidates(b, ctx, CALM_SHARED_EXPERT, block.moe.shared));
    if (block.moe.load)
        block.moe.load = load_candidate, block.moe.user = b;
    return run_block(b, &block);
}

/* A norm stored less one is rounded as (1 + w) / s - 1, so a channel's relative error may be far larger than
 * rounding.  The reference therefore has s times the norm as applied, which must be the norm up to the rounding to
 * `dtype`. */
static void take_applied_norms(bench *b, calm_dtype dtype)
{
    const double unit = dtype == CALM_BF16 ? 0x1p-8 : dtype == CALM_F16 ? 0x1p-11 : 0x1p-24;
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        calm_norm *norm = &b->block.norm[s][CALM_NORM_IN];
        const calm_job_kind kind = s == CALM_SUBLAYER_ATTENTION ? CALM_JOB_QKV : CALM_JOB_GATE_UP;
        const calm_qjob *q = job_of(b, kind) < b->end ? qjob_of(b, kind) : NULL;
        calm_fold_set assembled;
        float *w;
        if (!q || !q->in_scale || norm->kind != CALM_NORM_RMS_PLUS_ONE)
            continue;
        ck_ok(assemble(b, s, &assembled));
        ck_ok(CALM_NEW(ctx, ctx->out, w, norm->width));
        for (size_t i = 0; i < norm->width; i++) {
            const double stored = (double)assembled.norm[i], wanted = (double)norm->w[i] / (double)q->in_scale[i];
            /* Rounded to float32 before one is subtracted, and then to the dtype. */
            ck_near(1 + stored, wanted, unit * fabs(stored) + 0x1p-23 * fmax(1, wanted));
            w[i] = (1 + assembled.norm[i]) * q->in_scale[i];
        }
        norm->w = w;
    }
}

/* Returns the relative difference |a - b| / |b| of the two outputs. */
static double difference(const tiny_model *spec, const char *scheme, unsigned set, tiny_scales kind)
{
    bench b;
    new_bench(&b, spec, scheme, set, kind);
    const float *found = assembled_output(&b);
    take_applied_norms(&b, spec->dtype);
    const float *expected = reference_output(&b);
    double error = 0, size = 0;
    for (size_t i = 0; i < TOKENS * b.block.config->hidden; i++) {
        error += pow((double)found[i] - (double)expected[i], 2);
        size += pow((double)expected[i], 2);
    }
    ck_assert(isfinite(error) && size > 0);
    calm_model_close(b.p.model);
    return sqrt(error / size);
}

/* ---- the function is kept ---- */

/* Dividing by a power of two is exact, in bfloat16 too, and so are the sums of what is divided. */
TEST(powers_of_two_fold_exactly)
{
    static const char *const schemes[] = {"w4a16_g16", "w4a16_g16_asym", "w8a16", "w8a8", "w8a8_asymact", "w4a4_g16"};
    const unsigned all = 1u << CALM_JOB_QKV | 1u << CALM_JOB_O | 1u << CALM_JOB_GATE_UP | 1u << CALM_JOB_DOWN;
    tiny_model spec = tiny_default;
    for (int variant = 0; variant < 4; variant++) {
        spec.bias = variant & 1;
        spec.n_kv = variant & 2 ? 1 : 4;
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
            for (unsigned set = all; set; set = (set - 1) & all)
                ck_assert_msg(difference(&spec, schemes[s], set, TINY_POWERS_OF_TWO) == 0, "%s, jobs %u", schemes[s],
                              set);
    }
}
END_OF_TEST

/* The same for every family: fused q, k, v and gate, up, experts, shared experts, biases. */
TEST(every_family_folds)
{
    static const char *const schemes[] = {"w4a16_g16", "w4a16_g16_asym", "w8a8"};
    static const unsigned sets[] = {ALL_JOBS, 1u << CALM_JOB_QKV, 1u << CALM_JOB_O, 1u << CALM_JOB_GATE_UP,
                                    1u << CALM_JOB_DOWN};
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        spec.bias = true;
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
            for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
                const double found = difference(&spec, schemes[s], sets[i], TINY_POWERS_OF_TWO);
                ck_assert_msg(found == 0, "%s, %s, jobs %u: %g", spec.family, schemes[s], sets[i], found);
            }
    }
}
END_OF_TEST

/* Multiplies a job's input scales and its weights' scales by `factor`, which is the same candidate with more to
 * fold. */
static void lean_on_rows(bench *b, calm_job_kind kind, float factor)
{
    calm_qjob *q = qjob_of(b, kind);
    for (size_t i = 0; i < q->in; i++)
        q->in_scale[i] *= factor;
    for (size_t i = 0; i < q->out * q->n_groups; i++)
        q->scales[i] *= factor;
}

/* Codes are fixed when a scale is folded, so a small resulting scale must not be raised to the least scale of a new
 * grid.  A row of at most .01 has a scale of 8e-5 at 8 bits; 2^-17 is 10.3 times less. */
TEST(small_scales_fold_exactly)
{
    static const char *const schemes[] = {"w8a8", "w8a16", "w4a16_g16", "w4a16_g16_asym"};
    tiny_model spec = tiny_default;
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        for (int kind = CALM_JOB_O; kind <= CALM_JOB_DOWN; kind += CALM_JOB_DOWN - CALM_JOB_O) {
            bench b;
            calm_fold_set assembled;
            float least = INFINITY;
            spec.n_kv = s & 1 ? 1 : 4;
            new_bench(&b, &spec, schemes[s], ALL_JOBS, TINY_POWERS_OF_TWO);
            const float *expected = reference_output(&b);
            lean_on_rows(&b, (calm_job_kind)kind, 0x1p14f);
            const float *found = assembled_output(&b);
            for (size_t i = 0; i < TOKENS * b.block.config->hidden; i++)
                ck_assert_float_eq(found[i], expected[i]);
            ck_ok(assemble(&b, calm_job_sublayer((calm_job_kind)kind), &assembled));
            const calm_qlinear *fed = &assembled.linear[kind == CALM_JOB_O ? CALM_ROLE_V : CALM_ROLE_UP];
            for (size_t i = 0; i < fed->out * fed->n_groups; i++)
                least = fminf(least, fabsf(fed->scales[i]));
            ck_assert(least < 0x1p-17f);
            calm_model_close(b.p.model);
        }
}
END_OF_TEST

/* In a float32 checkpoint, folding into tensors that stay float rounds to float32 only. */
TEST(folding_into_float_tensors)
{
    static const unsigned sets[] = {1u << CALM_JOB_QKV | 1u << CALM_JOB_GATE_UP, 1u << CALM_JOB_O | 1u << CALM_JOB_DOWN,
                                    1u << CALM_JOB_O, 1u << CALM_JOB_DOWN};
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        spec.dtype = CALM_F32;
        spec.bias = true;
        for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
            const double found = difference(&spec, "w4a16_g16", sets[i], TINY_GENERAL);
            ck_assert_msg(found <= 1e-5, "%s, jobs %u: %g", spec.family, sets[i], found);
        }
    }
}
END_OF_TEST

/* bfloat16 norms and scales are rounded anew by at most 2^-9 each, in five places in sequence: two norms, v, up, and
 * the softmax's argument, which changes by |score| times two of them.  In a mixture attention stays float, because
 * rounding could send a token to another expert. */
TEST(folding_into_bfloat16)
{
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        const bool mixture = strstr(spec.family, "moe");
        for (int variant = 0; variant < 2; variant++) {
            spec.dtype = variant ? CALM_BF16 : CALM_F32;
            const double found = difference(
                &spec, "w4a16_g16", mixture ? 1u << CALM_JOB_GATE_UP | 1u << CALM_JOB_DOWN : ALL_JOBS, TINY_GENERAL);
            /* Nemotron has only plain MLPs. */
            const bool some = found > 1e-6 || strncmp(spec.family, "nemotron", strlen("nemotron")) == 0;
            ck_assert_msg(found <= 16 * 0x1p-9 && some, "%s: %g", spec.family, found);
        }
    }
}
END_OF_TEST

/* A bias correction is relative to the bias before input scales: correction and folding together keep the function. */
TEST(corrections_are_added_before_folding)
{
    size_t n_biased = 0;
    for (size_t f = 0; tiny_families[f]; f++) {
        tiny_model spec = tiny_of(tiny_families[f]);
        bench b;
        double error = 0, size = 0, moved = 0;
        spec.bias = true;
        spec.dtype = CALM_F32;
        new_bench(&b, &spec, "w4a16_g16", ALL_JOBS, TINY_POWERS_OF_TWO);
        const float *before = assembled_output(&b);
        for (size_t job = b.first; job < b.end; job++)
            tiny_plan_correct(&b.p, job);
        const float *found = assembled_output(&b), *expected;
        take_applied_norms(&b, spec.dtype);
        expected = reference_output(&b);
        for (size_t i = 0; i < TOKENS * b.block.config->hidden; i++) {
            error += pow((double)found[i] - (double)expected[i], 2);
            moved += pow((double)found[i] - (double)before[i], 2);
            size += pow((double)expected[i], 2);
        }
        ck_assert_msg(error == 0, "%s: %g", spec.family, sqrt(error / size));
        bool biased = false;
        for (size_t job = b.first; job < b.end; job++)
            biased |= calm_layout_biased(calm_model_layout(b.p.model), &calm_model_layout(b.p.model)->jobs[job]);
        ck_assert_msg((sqrt(moved / size) > 1e-3) == biased, "%s: %g", spec.family, sqrt(moved / size));
        n_biased += biased;
        calm_model_close(b.p.model);
    }
    ck_assert_uint_gt(n_biased, 2);
}
END_OF_TEST

/* A corrected bias is rounded to what its file can hold; a correction out of range is refused. */
TEST(corrected_biases_are_storable)
{
    tiny_model spec = tiny_of("qwen2");
    calm_fold_set assembled;
    bench b;
    spec.dtype = CALM_F16;
    new_bench(&b, &spec, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    const size_t qkv = job_of(&b, CALM_JOB_QKV);
    tiny_plan_correct(&b.p, qkv);
    ck_ok(assemble(&b, CALM_SUBLAYER_ATTENTION, &assembled));
    const calm_weight *k = &b.block.weight[CALM_ROLE_K];
    const float *delta = b.p.qjobs[qkv].bias_delta + b.block.weight[CALM_ROLE_Q].out;
    for (size_t i = 0; i < k->out; i++)
        ck_assert(assembled.linear[CALM_ROLE_K].bias[i] == calm_f16_to_f32(calm_f32_to_f16(k->bias[i] + delta[i])));
    ck_assert_ptr_null(assembled.linear[CALM_ROLE_O].bias);
    b.p.qjobs[qkv].bias_delta[b.block.weight[CALM_ROLE_Q].out + 3] = 1e6f;
    ck_fails(assemble(&b, CALM_SUBLAYER_ATTENTION, &assembled), CALM_ENUMERIC,
             "model.layers.1.self_attn.k_proj.bias: value 3 is out of range of F16");
    calm_model_close(b.p.model);
}
END_OF_TEST

/* A scale that no tensor can absorb is refused, and not dropped. */
TEST(scales_that_nothing_takes_are_refused)
{
    static const struct {
        const char *family;
        calm_job_kind kind;
    } rows[] = {{"olmo2", CALM_JOB_QKV}, {"olmo2", CALM_JOB_GATE_UP}, {"bert", CALM_JOB_QKV}, {"bert", CALM_JOB_DOWN},
                {"qwen2_moe", CALM_JOB_GATE_UP}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const tiny_model spec = tiny_of(rows[i].family);
        calm_plan_override override;
        bench b;
        new_bench(&b, &spec, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
        calm_qjob *q = qjob_of(&b, rows[i].kind);
        override = (calm_plan_override){b.p.model, &b.p.plan};
        ck_assert_ptr_null(q->in_scale);
        ck_ok(CALM_NEW(ctx, ctx->out, q->in_scale, q->in));
        for (size_t c = 0; c < q->in; c++)
            q->in_scale[c] = 2;
        calm_block block = b.block;
        ck_fails(calm_plan_apply(&override, ctx, 1, &block), CALM_EFORMAT,
                 calm_model_layout(b.p.model)->jobs[job_of(&b, rows[i].kind)].name);
        calm_model_close(b.p.model);
    }
}
END_OF_TEST

/* ---- what is stored ---- */

/* Values are computed with as they are stored: norms in the checkpoint's dtype, scales in the scheme's. */
TEST(folded_values_are_storable)
{
    bench b;
    new_bench(&b, &tiny_default, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        calm_fold_set assembled;
        ck_ok(assemble(&b, s, &assembled));
        for (size_t i = 0; i < 32; i++)
            ck_assert(assembled.norm[i] == calm_bf16_to_f32(calm_f32_to_bf16(assembled.norm[i])));
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            const calm_qlinear *linear = &assembled.linear[role];
            ck_assert(linear->quantized == (b.block.weight[role].w && calm_job_sublayer(calm_role_job(role)) == s));
            for (size_t i = 0; i < linear->out * linear->n_groups; i++)
                ck_assert(linear->scales[i] == calm_bf16_to_f32(calm_f32_to_bf16(linear->scales[i])));
        }
    }
    calm_model_close(b.p.model);
}
END_OF_TEST

/* Block 0 of the plan stays float: it is unchanged, and the override finds the right block. */
TEST(float_jobs_stay)
{
    bench b;
    calm_block first, changed;
    new_bench(&b, &tiny_default, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    calm_plan_override override = {b.p.model, &b.p.plan};
    ck_ok(calm_model_load_block(ctx, b.p.model, 0, &first));
    changed = first;
    ck_ok(calm_plan_apply(&override, ctx, 0, &changed));
    ck_assert(memcmp(&first, &changed, sizeof first) == 0);
    changed = b.block;
    ck_ok(calm_plan_apply(&override, ctx, 1, &changed));
    ck_assert_ptr_ne(changed.weight[CALM_ROLE_Q].w, b.block.weight[CALM_ROLE_Q].w);
    calm_model_close(b.p.model);
}
END_OF_TEST

static void refused(const bench *b, calm_sublayer sublayer, calm_status status, const char *words)
{
    calm_fold_set assembled;
    ck_fails(assemble(b, sublayer, &assembled), status, words);
}

TEST(what_does_not_fit_is_refused)
{
    bench b;
    new_bench(&b, &tiny_default, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    const calm_qjob whole = *qjob_of(&b, CALM_JOB_QKV);
    qjob_of(&b, CALM_JOB_QKV)->out--;
    refused(&b, CALM_SUBLAYER_ATTENTION, CALM_EFORMAT,
            "model.layers.1.qkv: [64, 32], but the stored candidate has [63, 32]");
    qjob_of(&b, CALM_JOB_QKV)->out = whole.out + 1;
    refused(&b, CALM_SUBLAYER_ATTENTION, CALM_EFORMAT,
            "model.layers.1.qkv: [64, 32], but the stored candidate has [65, 32]");
    *qjob_of(&b, CALM_JOB_QKV) = whole;
    qjob_of(&b, CALM_JOB_DOWN)->in--;
    refused(&b, CALM_SUBLAYER_MLP, CALM_EFORMAT,
            "model.layers.1.down: [32, 48], but the stored candidate has [32, 47]");
    calm_model_close(b.p.model);
}
END_OF_TEST

TEST(scales_out_of_range_are_refused)
{
    bench b;
    new_bench(&b, &tiny_default, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    qjob_of(&b, CALM_JOB_GATE_UP)->in_scale[5] = 1e-44f;
    refused(&b, CALM_SUBLAYER_MLP, CALM_ENUMERIC, "layernorm.weight: value 5");
    calm_model_close(b.p.model);
    new_bench(&b, &tiny_default, "w4a16_g16", ALL_JOBS, TINY_GENERAL);
    qjob_of(&b, CALM_JOB_DOWN)->in_scale[7] = 1e-30f;
    refused(&b, CALM_SUBLAYER_MLP, CALM_ENUMERIC, "model.layers.1.mlp.up_proj: scale of row 7");
    calm_model_close(b.p.model);
}
END_OF_TEST

/* A scale that its dtype cannot hold is an error with the row's name, in float16 long before bfloat16; a group of
 * zeros is equal at any scale and is no error. */
TEST(rows_that_a_type_cannot_hold_are_refused)
{
    static const struct {
        const char *scheme, *type;
        calm_dtype checkpoint;
        float held, lost;    /* input scales of row 5 */
    } rows[] = {{"w8a8", "BF16", CALM_BF16, 0x1p60f, 0x1p122f}, {"w8a8", "F16", CALM_F16, 16, 512},
                {"w8a8_f16s", "F16", CALM_BF16, 16, 512}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tiny_model spec = tiny_default;
        calm_fold_set assembled;
        bench b;
        spec.dtype = rows[i].checkpoint;
        new_bench(&b, &spec, rows[i].scheme, ALL_JOBS, TINY_POWERS_OF_TWO);
        calm_qjob *down = qjob_of(&b, CALM_JOB_DOWN), *up = qjob_of(&b, CALM_JOB_GATE_UP);
        const size_t row = b.block.weight[CALM_ROLE_UP].out + 5;    /* rows of gate come first */
        up->scales[row] = 0x1.8p-17f;
        down->in_scale[5] = rows[i].held;
        ck_ok(assemble(&b, CALM_SUBLAYER_MLP, &assembled));
        ck_assert(assembled.linear[CALM_ROLE_UP].scales[5] == 0x1.8p-17f / rows[i].held);
        down->in_scale[5] = rows[i].lost;
        refused(&b, CALM_SUBLAYER_MLP, CALM_ENUMERIC,
                test_format("model.layers.1.mlp.up_proj: scale of row 5, group 0 is %g after folding %g, which is out "
                            "of range of %s", (double)(0x1.8p-17f / rows[i].lost), (double)rows[i].lost, rows[i].type));
        memset(up->codes + row * up->in, 128, up->in);
        ck_ok(assemble(&b, CALM_SUBLAYER_MLP, &assembled));
        ck_assert(assembled.linear[CALM_ROLE_UP].scales[5] == 0x1.8p-17f);
        calm_model_close(b.p.model);
    }
}
END_OF_TEST

/* ---- memory ---- */

/* The estimate for assembling and applying a sublayer, or an expert, from blobs; exact if all jobs have an input
 * scale or none has. */
static void check_memory(const bench *b, const calm_scheme *scheme, calm_sublayer s, long expert, unsigned extras)
{
    const calm_layout *layout = calm_model_layout(b->p.model);
    calm_weight weight[CALM_N_ROLES];
    calm_norm norm = b->block.norm[s][CALM_NORM_IN];
    calm_fold_set assembled;
    size_t begin, end, unscaled = 0;
    memcpy(weight, tiny_plan_weights(&b->block, expert), sizeof weight);
    calm_layout_fold_set(layout, 1, s, expert, &begin, &end);
    for (size_t j = begin; j < end; j++)
        unscaled += extras & CALM_QJOB_SCALED && !layout->jobs[j].can_absorb
                        ? CALM_BYTES(float, layout->jobs[j].in) : 0;
    const calm_fold_set_ref group = {&b->block, s, expert, weight};
    test_memory_begin();
    ck_ok(calm_assemble_fold_set(ctx, b->p.model, &b->p.plan, &group, &assembled));
    const test_memory found = test_memory_end();
    ck_assert_uint_eq(found.out + unscaled, calm_assemble_fold_set_bytes(b->p.model, begin, end, scheme, extras));
    const size_t held = calm_assemble_fold_set_scratch_bytes(b->p.model, begin, end, scheme);
    ck_assert(found.scratch >= held && found.scratch <= held + 8 * CALM_BYTES(char, 64));    /* names */
    ck_ok(calm_assemble_fold_set(ctx, b->p.model, &b->p.plan, &group, &assembled));
    ck_memory(calm_fold_set_apply(ctx, &assembled, weight, expert < 0 ? &norm : NULL),
              calm_fold_set_apply_bytes(b->p.model, begin, end, extras), 0);
}

TEST(memory)
{
    static const char *const schemes[] = {"w4a16_g16", "w8a8", "w3a16_g32_asym", "w4a16_g32"};
    for (size_t f = 0; tiny_families[f]; f++)
        for (int variant = 0; variant < 4; variant++) {
            tiny_model spec = tiny_wide(tiny_families[f]);
            calm_scheme scheme;
            bench b;
            ck_ok(calm_scheme_parse(ctx, schemes[variant], &scheme));
            new_bench(&b, &spec, schemes[variant], ALL_JOBS, variant ? TINY_GENERAL : TINY_UNSCALED);
            for (size_t j = b.first; variant == 3 && j < b.end; j++)
                if (calm_layout_biased(calm_model_layout(b.p.model), &calm_model_layout(b.p.model)->jobs[j]))
                    tiny_plan_correct(&b.p, j);
            tiny_plan_pack(&b.p);
            const unsigned extras = variant == 3 ? CALM_QJOB_SCALED | CALM_QJOB_BIASED : variant ? CALM_QJOB_SCALED : 0;
            const bool mixture = b.block.moe.router;
            size_t all = 0;
            check_memory(&b, &scheme, CALM_SUBLAYER_ATTENTION, CALM_NO_EXPERT, extras);
            if (!mixture || b.block.moe.shared[CALM_ROLE_DOWN].w)
                check_memory(&b, &scheme, CALM_SUBLAYER_MLP, mixture ? CALM_SHARED_EXPERT : CALM_NO_EXPERT, extras);
            if (mixture)
                check_memory(&b, &scheme, CALM_SUBLAYER_MLP, 3, extras);
            for (size_t j = b.first; j < b.end; j++)
                all += calm_model_layout(b.p.model)->jobs[j].expert < 0
                           ? calm_assemble_fold_set_bytes(b.p.model, j, j + 1, &scheme, extras) : 0;
            for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++)
                all += calm_model_load_sublayer_bytes(b.p.model, 1, s);
            ck_assert_uint_eq(calm_assembled_block_bytes(b.p.model, 1, &scheme, extras), all);
            ck_assert_int_eq(calm_assembled_expert_bytes(b.p.model, 1, &scheme, extras) > 0, mixture);
            calm_model_close(b.p.model);
        }
}
END_OF_TEST

int main(void)
{
    return run_tests("assemble", (const TTest *[]){
        powers_of_two_fold_exactly, small_scales_fold_exactly, every_family_folds, folding_into_float_tensors,
        folding_into_bfloat16, corrections_are_added_before_folding, corrected_biases_are_storable,
        scales_that_nothing_takes_are_refused, folded_values_are_storable, float_jobs_stay,
        what_does_not_fit_is_refused, scales_out_of_range_are_refused, rows_that_a_type_cannot_hold_are_refused,
        memory, NULL});
}
