/* Quantized jobs as blobs: encoded and decoded in every format.  tests/data/mangled has the damaged ones. */
#include "ptq/quant/qblob.h"
#include "ptq/quant/grid.h"

#include "ptq/base/rng_impl.h"
#include "ptq/tensor/dtype.h"
#include "tests/support/harness.h"

static calm_qjob random_job(int bits, size_t out, size_t in, size_t group, bool symmetric, bool in_scale, bool biased,
                             uint64_t seed)
{
    calm_qjob job = {.out = out, .in = in, .group = group ? group : in, .damp = 0.01};
    job.n_groups = (in + job.group - 1) / job.group;
    job.scheme = (calm_scheme){.bits = bits, .group = group == in ? 0 : group, .symmetric = symmetric,
                               .act_bits = bits == 8 ? 8 : 0, .act_asymmetric = bits == 8 && in_scale,
                               .act_rule = bits == 8 && !symmetric ? CALM_ACT_RULE_VLLM
                                                                   : CALM_ACT_RULE_COMPRESSED_TENSORS,
                               .scale_dtype = in_scale ? CALM_F16 : CALM_BF16};
    ck_ok(CALM_NEW(ctx, ctx->out, job.codes, out * in));
    ck_ok(CALM_NEW(ctx, ctx->out, job.scales, out * job.n_groups));
    for (size_t i = 0; i < out * in; i++)
        job.codes[i] = (uint8_t)(calm_rng_u64(seed, 1, i) >> (64 - bits));
    for (size_t i = 0; i < out * job.n_groups; i++)
        job.scales[i] = calm_bf16_to_f32(calm_f32_to_bf16((float)calm_rng_normal(seed, 2, i)));
    if (!symmetric) {
        ck_ok(CALM_NEW(ctx, ctx->out, job.zeros, out * job.n_groups));
        for (size_t i = 0; i < out * job.n_groups; i++)
            job.zeros[i] = (uint8_t)(calm_rng_u64(seed, 3, i) >> (64 - bits));
    }
    if (in_scale) {
        ck_ok(CALM_NEW(ctx, ctx->out, job.in_scale, in));
        for (size_t i = 0; i < in; i++)
            job.in_scale[i] = (float)(0.01 + calm_rng_uniform(seed, 4, i));
    }
    if (biased) {
        ck_ok(CALM_NEW(ctx, ctx->out, job.bias_delta, out));
        for (size_t i = 0; i < out; i++)
            job.bias_delta[i] = (float)calm_rng_normal(seed, 5, i);
    }
    return job;
}

static void same_bytes(const void *a, const void *b, size_t n)
{
    ck_assert((a == NULL) == (b == NULL));
    ck_assert(!a || memcmp(a, b, n) == 0);
}

static void round_trip_of(const calm_qjob *job)
{
    void *bytes, *again;
    size_t n, n_again;
    calm_qjob back;
    ck_ok(calm_qblob_encode(ctx, job, &bytes, &n));
    const size_t held = ctx->scratch->used_bytes;
    ck_ok(calm_qblob_decode(ctx, "blob", bytes, n, &back));
    ck_assert_uint_eq(ctx->scratch->used_bytes, held);    /* a whole model is decoded job after job */
    ck_assert(back.out == job->out && back.in == job->in && back.group == job->group && back.n_groups == job->n_groups);
    ck_assert_int_eq(back.scheme.bits, job->scheme.bits);
    ck_assert_uint_eq(back.scheme.group, job->scheme.group);
    ck_assert_int_eq(back.scheme.symmetric, job->scheme.symmetric);
    ck_assert_int_eq(back.scheme.act_bits, job->scheme.act_bits);
    ck_assert(back.scheme.act_asymmetric == job->scheme.act_asymmetric);
    ck_assert_int_eq(back.scheme.act_rule, job->scheme.act_rule);
    ck_assert_int_eq(back.scheme.scale_dtype, job->scheme.scale_dtype);
    ck_assert(back.damp == job->damp);
    same_bytes(back.codes, job->codes, job->out * job->in);
    same_bytes(back.scales, job->scales, job->out * job->n_groups * sizeof *job->scales);
    same_bytes(back.zeros, job->zeros, job->out * job->n_groups);
    same_bytes(back.in_scale, job->in_scale, job->in * sizeof *job->in_scale);
    same_bytes(back.bias_delta, job->bias_delta, job->out * sizeof *job->bias_delta);
    ck_ok(calm_qblob_encode(ctx, &back, &again, &n_again));
    ck_assert_uint_eq(n, n_again);
    same_bytes(bytes, again, n);
    /* Every length but the right one is refused. */
    for (size_t cut = 0; cut < n; cut += cut < 80 ? 1 : 7)
        ck_fails(calm_qblob_decode(ctx, "blob", bytes, cut, &back), CALM_EFORMAT, "blob: not a quantized job");
}

TEST(there_and_back)
{
    static const int bits[] = {2, 3, 4, 8};
    static const size_t shapes[][3] = {
        {1, 1, 0}, {5, 37, 16}, {3, 64, 64}, {7, 33, 0}, {2, 20, 7}}; /* out, in, group */
    uint64_t seed = 0;
    for (size_t b = 0; b < 4; b++)
        for (size_t s = 0; s < 5; s++)
            for (int variant = 0; variant < 8; variant++) {
                const calm_qjob job =
                    random_job(bits[b], shapes[s][0], shapes[s][1], shapes[s][2], variant & 1, variant & 2,
                               variant & 4, ++seed);
                round_trip_of(&job);
            }
}
END_OF_TEST

TEST(static_activations)
{
    calm_qjob job = random_job(8, 3, 20, 0, true, false, false, 9), back;
    void *bytes;
    size_t n;
    job.scheme.act_rule = CALM_ACT_RULE_STATIC;
    job.act_global = 0x1p-5f;
    round_trip_of(&job);
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_assert_uint_le(n, calm_qblob_encode_bytes(&job.scheme, 3, 20, 0));
    ck_ok(calm_qblob_decode(ctx, "blob", bytes, n, &back));
    ck_assert(back.act_global == job.act_global);
    job.act_global = 0;
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "an impossible scale of activations");
    job.act_global = NAN;
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "an impossible scale of activations");
}
END_OF_TEST

/* The order must have every input once. */
TEST(order_of_columns)
{
    calm_qjob job = random_job(4, 3, 40, 16, false, true, true, 9), back;
    uint32_t order[40];
    void *bytes;
    size_t n;
    for (uint32_t k = 0; k < 40; k++)
        order[k] = (7 * k + 3) % 40;
    job.scheme.act_order = true;
    job.order = order;
    round_trip_of(&job);
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_assert_uint_eq(n, calm_qblob_bytes(&job.scheme, 3, 40, CALM_QJOB_SCALED | CALM_QJOB_BIASED));
    ck_memory(calm_qblob_decode(ctx, "blob", bytes, n, &back),
              calm_qjob_bytes(&job.scheme, 3, 40, CALM_QJOB_SCALED | CALM_QJOB_BIASED),
              calm_qblob_decode_scratch_bytes(&job.scheme, 3, 40));
    ck_assert(back.scheme.act_order && memcmp(back.order, order, sizeof order) == 0);
    /* Column k of the codes is input order[k]. */
    float ordered[3 * 40], plain[3 * 40];
    calm_qjob in_order = job;
    in_order.order = NULL;
    calm_qjob_dequantize(&job, ordered);
    calm_qjob_dequantize(&in_order, plain);
    for (size_t i = 0; i < 3 * 40; i++)
        ck_assert(ordered[i / 40 * 40 + order[i % 40]] == plain[i]);
    order[7] = order[8];
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "an order of columns that names one twice");
    order[7] = 40;
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "or one that is not there");
}
END_OF_TEST

/* Quantized activations in FP8: static ones, whose scale must be there; with integer weights only act_form tells. */
TEST(small_float_activations)
{
    static const char *const names[] = {"fp8_static", "w4afp8_g16", "w3afp8"};
    for (size_t i = 0; i < 3; i++) {
        calm_scheme scheme;
        void *bytes;
        size_t n;
        ck_ok(calm_scheme_parse(ctx, names[i], &scheme));
        calm_qjob job = random_job(scheme.bits, 3, 32, scheme.group, true, false, false, 9 + i), back;
        job.scheme = scheme;
        job.act_global = i ? 0 : 0x1p-5f;
        for (size_t c = 0; c < job.out * job.in; c++)    /* which have a level */
            job.codes[c] = (uint8_t)(job.codes[c] % (calm_code_max(&scheme) + 1));
        round_trip_of(&job);
        ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
        ck_ok(calm_qblob_decode(ctx, "blob", bytes, n, &back));
        ck_assert(calm_scheme_same(&back.scheme, &scheme) && back.act_global == job.act_global);
        uint8_t *form = (uint8_t *)bytes + 60;    /* a static scale that FP8 without integers lacks, and vice versa */
        ck_assert_uint_eq(*form, i ? 8 : 4);
        *form = i ? 8 + 4 : 8;
        ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "activations");
    }
}
END_OF_TEST

TEST(families)
{
    for (int f = 1; f < CALM_N_FAMILIES; f++)
        for (int in = 16; in <= 80; in += 32) {
            calm_scheme scheme;
            const calm_family *row = calm_scheme_family(&(calm_scheme){.family = f});
            ck_ok(calm_scheme_parse(ctx, row->name, &scheme));
            const size_t group = scheme.group && scheme.group < (size_t)in ? scheme.group : (size_t)in;
            calm_qjob job = random_job(scheme.bits, 5, (size_t)in, group, true, in == 48, false, (uint64_t)f);
            job.scheme = scheme;
            job.global = calm_scale_global(&scheme, 2);
            for (size_t i = 0; i < 5 * (size_t)in; i++)
                if (job.codes[i] > calm_code_max(&scheme))
                    job.codes[i] = (uint8_t)calm_code_max(&scheme);
            if (calm_scheme_has_mins(&scheme))
                job.mins = job.scales;
            round_trip_of(&job);
            calm_qjob back;
            void *bytes;
            size_t n_bytes;
            ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n_bytes));
            ck_ok(calm_qblob_decode(ctx, "blob", bytes, n_bytes, &back));
            ck_assert(back.scheme.family == scheme.family && back.global == job.global);
            same_bytes(back.mins, job.mins, 5 * job.n_groups * sizeof *job.mins);
            ((char *)bytes)[72] = 'x';
            ck_fails(calm_qblob_decode(ctx, "blob", bytes, n_bytes, &back), CALM_EFORMAT, "unknown family");
        }
}
END_OF_TEST

/* A code beyond the last level. */
TEST(codes_without_a_level)
{
    calm_qjob job = random_job(4, 2, 32, 32, true, false, false, 9), back;
    void *bytes;
    size_t n;
    ck_ok(calm_scheme_parse(ctx, "mxfp4a16", &job.scheme));
    memset(job.codes, 15, 64);
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_fails(calm_qblob_decode(ctx, "blob", bytes, n, &back), CALM_EFORMAT, "a code without a level");
}
END_OF_TEST

TEST(codes_are_packed)
{
    const calm_qjob job = random_job(3, 4, 64, 32, true, false, false, 9);
    void *bytes;
    size_t n;
    ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
    ck_assert_uint_eq(n, 72 + 4 * 4 * 2 + 4 * 64 * 3 / 8);    /* head, scales, codes */
}
END_OF_TEST

TEST(memory)
{
    static const int bits[] = {2, 3, 4, 8};
    for (int variant = 0; variant < 24; variant++) {
        const bool symmetric = variant & 1;
        const unsigned extras = (unsigned)variant / 2 % 4;
        const size_t in = variant < 8 ? 200 : 37, group = variant < 16 ? 32 : in;
        const calm_qjob job = random_job(bits[(variant + variant / 8) % 4], 50, in, group, symmetric,
                                         extras & CALM_QJOB_SCALED, extras & CALM_QJOB_BIASED, 3);
        ck_assert_uint_eq(calm_qjob_extras(&job), extras);
        calm_qjob found = job;
        void *bytes;
        size_t n;
        ck_memory(calm_qjob_new(ctx, extras, &found), calm_qjob_bytes(&job.scheme, 50, in, extras), 0);
        ck_memory(calm_qblob_encode(ctx, &job, &bytes, &n), calm_qblob_encode_bytes(&job.scheme, 50, in, extras), 0);
        ck_ok(calm_qblob_encode(ctx, &job, &bytes, &n));
        ck_memory(calm_qblob_decode(ctx, "blob", bytes, n, &found), calm_qjob_bytes(&job.scheme, 50, in, extras),
                  calm_qblob_decode_scratch_bytes(&job.scheme, 50, in));
    }
}
END_OF_TEST

/* A job whose cells exceed any number. */
TEST(impossible_jobs)
{
    calm_qjob job = {.out = SIZE_MAX / 2, .in = 4, .n_groups = 1};
    ck_fails(calm_qjob_new(ctx, 0, &job), CALM_ENOMEM, "does not fit");
    job = (calm_qjob){.out = SIZE_MAX / 4, .in = 2, .n_groups = 8};
    ck_fails(calm_qjob_new(ctx, 0, &job), CALM_ENOMEM, "does not fit");
}
END_OF_TEST

int main(void)
{
    return run_tests("qblob", (const TTest *[]){there_and_back, static_activations, small_float_activations,
                                                order_of_columns, families,
                                                codes_without_a_level,
                                                codes_are_packed, memory, impossible_jobs, NULL});
}
