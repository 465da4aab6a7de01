/* hessian.c: chains give the same bytes with a shared Hessian as with the job's Gram matrix, whatever chain ran
 * before them, and keep within the memory of their estimates. */
#include "algorithms/hessian.h"

#include <math.h>

#include "algorithms/inverse.h"
#include "tests/conformance/sample_job.h"
#include "tests/support/harness.h"

#define OUT 40
#define IN 64

/* In addition to the presets: other dampings and orders, and each part that reads the Hessian. */
static const char *const more[] = {"absmax+gptq(damp=0.02)", "absmax+gptq(order=none)", "absmax+cd",
                                   "hls+gptq+mkq(damp=0.05)+restarts(n=2)", "hls+gptq+mkq+restarts(n=2, damp=0.02)",
                                   "hls+gptq+restarts(n=2, jitter=0)", "absmax+nearest+ls", "absmax+nearest+channel",
                                   "asym+absmax+gptq", "absmax+gptq+channel+mkq"};
#define N_MORE (sizeof more / sizeof *more)

static calm_algorithm *chain_at(size_t i)
{
    size_t n;
    const calm_preset *presets = calm_presets(&n);
    calm_algorithm *algorithm = NULL;
    if (i < n + N_MORE)
        ck_ok(calm_algorithm_parse(ctx, i < n ? presets[i].name : more[i - n], &algorithm));
    return algorithm;
}

/* Makes a sample, with quantized activations if the chain needs those. */
static void make_for(const calm_algorithm *algorithm, sample *s)
{
    calm_scheme scheme;
    ck_ok(calm_scheme_parse(ctx, "w3a16_g16_asym", &scheme));
    const bool reaches = calm_algorithm_reaches(ctx, algorithm, &scheme) == CALM_OK;
    calm_ctx_clear_failure(ctx);
    make_sample(s, OUT, IN, 16 * IN, reaches ? "w3a16_g16_asym" : "w4a4_g16");
}

static void check_same(const char *name, const calm_qjob *a, const calm_qjob *b)
{
    const size_t cells = a->out * a->n_groups;
    ck_assert_msg(memcmp(a->codes, b->codes, a->out * a->in) == 0, "%s: codes differ", name);
    ck_assert_msg(memcmp(a->scales, b->scales, cells * sizeof *a->scales) == 0, "%s: scales differ", name);
    ck_assert_msg(!a->zeros || memcmp(a->zeros, b->zeros, cells) == 0, "%s: zeros differ", name);
    ck_assert(!a->in_scale == !b->in_scale && !a->bias_delta == !b->bias_delta);
    ck_assert(!a->in_scale || memcmp(a->in_scale, b->in_scale, a->in * sizeof *a->in_scale) == 0);
    ck_assert(!a->bias_delta || memcmp(a->bias_delta, b->bias_delta, a->out * sizeof *a->bias_delta) == 0);
    ck_assert(a->damp == b->damp);
}

/* Makes the Hessian in a copy of the sample's Gram matrix. */
static calm_hessian share(sample *s, double damp)
{
    calm_hessian out;
    double *gram;
    ck_ok(CALM_NEW(ctx, ctx->out, gram, IN * IN));
    memcpy(gram, s->gram, IN * IN * sizeof *gram);
    ck_ok(calm_hessian_make(ctx, "job", IN, &s->stats, gram, damp, &out));
    ck_assert(out.h == gram);
    return out;
}

typedef enum way { NO_FACTOR, COMMON, LENT, N_WAYS } way;

static calm_hessian share_in(sample *s, way how)
{
    calm_hessian out = share(s, 0.01);
    if (how == COMMON)
        ck_ok(calm_hessian_factor(ctx, "job", IN, 0.01, &out));
    if (how == LENT)
        ck_ok(calm_inverse_new(ctx, ctx->out, "job", IN, &out.inverse));
    ck_assert(!out.inverse == (how == NO_FACTOR));
    out.lent = how == LENT;
    return out;
}

/* Every chain runs after each of two others: one that leaves the factor in the common order, and one that leaves
 * another. */
TEST(same_bytes_as_on_its_own)
{
    static const char *const before[] = {"gptq", "mkq-full"};
    calm_algorithm *algorithm;
    for (size_t i = 0; (algorithm = chain_at(i)); i++)
        for (way how = 0; how < N_WAYS; how++)
            for (size_t k = 0; k < 2; k++) {
                sample s;
                calm_algorithm *first;
                calm_qjob own, there, shared;
                make_for(algorithm, &s);
                calm_hessian hessian = share_in(&s, how);
                ck_ok(calm_algorithm_parse(ctx, before[k], &first));
                ck_ok(calm_algorithm_run(ctx, algorithm, &s.job, &own));
                ck_ok(calm_algorithm_run_shared(ctx, first, &s.job, &hessian, &there));
                ck_ok(calm_algorithm_run_shared(ctx, algorithm, &s.job, &hessian, &shared));
                check_same(calm_algorithm_name(algorithm), &own, &shared);
            }
}
END_OF_TEST

TEST(without_input_it_is_the_identity)
{
    calm_algorithm *algorithm;
    for (size_t i = 0; (algorithm = chain_at(i)); i++) {
        sample s;
        calm_qjob own, shared;
        make_for(algorithm, &s);
        if (calm_algorithm_caps(algorithm) & (CALM_NEEDS_SAMPLES | CALM_NEEDS_CROSS))
            continue;    /* fits to rows refuse these */
        memset(s.x, 0, s.rows * IN * sizeof *s.x);
        measure(&s);
        calm_hessian hessian = share(&s, 0.01);
        ck_assert(hessian.blind && hessian.diagonal[3] == 1 && hessian.h[3 * IN + 3] == 1.01 && hessian.h[3] == 0);
        ck_ok(calm_algorithm_run(ctx, algorithm, &s.job, &own));
        ck_ok(calm_algorithm_run_shared(ctx, algorithm, &s.job, &hessian, &shared));
        check_same(calm_algorithm_name(algorithm), &own, &shared);
    }
}
END_OF_TEST

TEST(bad_matrices_stay_as_they_are)
{
    sample s;
    calm_hessian hessian = {.h = NULL};
    make_sample(&s, OUT, IN, 100, "w4a16_g16");
    s.gram[5] = NAN;
    ck_fails(calm_hessian_make(ctx, "job", IN, &s.stats, s.gram, 0.01, &hessian), CALM_ENUMERIC,
             "job: Gram matrix [0, 5] is nan");
    s.gram[5] = 0;
    s.gram[2 * IN + 2] = -4;
    ck_fails(calm_hessian_make(ctx, "job", IN, &s.stats, s.gram, 0.01, &hessian), CALM_ENUMERIC,
             "job: Gram matrix [2, 2] is -4, a sum of squares");
    ck_assert(!hessian.h && s.gram[2 * IN + 2] == -4);
    /* No damping makes this matrix positive definite: there is no factor, and the call succeeds. */
    s.gram[2 * IN + 2] = 1;
    s.gram[2 * IN + 3] = s.gram[3 * IN + 2] = 1e12;
    ck_ok(calm_hessian_make(ctx, "job", IN, &s.stats, s.gram, 0.01, &hessian));
    ck_ok(calm_hessian_factor(ctx, "job", IN, 0.01, &hessian));
    ck_assert(!hessian.inverse);
}
END_OF_TEST

/* The peak is at most the estimate and a chunk each for the result, scratch and the worker, and not far below. */
TEST(memory)
{
    calm_algorithm *algorithm;
    for (size_t i = 0; (algorithm = chain_at(i)); i++)
        for (way how = NO_FACTOR; how <= COMMON; how++) {
            sample s;
            calm_qjob q;
            make_for(algorithm, &s);
            calm_hessian hessian = share_in(&s, how);
            calm_job_shape shape = calm_job_shape_of(&s.job.scheme, OUT, IN);
            shape.n_samples = s.rows;
            shape.biased = shape.shared = true;
            shape.damp = 0.01;
            shape.factor = how == COMMON ? 0.01 : 0;
            const size_t said = calm_algorithm_run_bytes(algorithm, &shape) +
                                calm_algorithm_run_scratch_bytes(algorithm, &shape);
            ctx->n_threads = 1;
            test_memory_begin();
            ck_ok(calm_algorithm_run_shared(ctx, algorithm, &s.job, &hessian, &q));
            const test_memory found = test_memory_end();
            ck_assert_msg(found.most <= said + 3 * CALM_ARENA_CHUNK, "%s: took %zu, said %zu",
                          calm_algorithm_name(algorithm), found.most, said);
            /* The estimate of a factor that is read includes making it. */
            ck_assert_msg(how == COMMON || found.most + CALM_BYTES(float, IN) >= said - found.out,
                          "%s: took %zu, said %zu", calm_algorithm_name(algorithm), found.most, said);
        }
    sample s;
    calm_hessian hessian;
    make_sample(&s, OUT, IN, 100, "w4a16_g16");
    double *gram;
    ck_ok(CALM_NEW(ctx, ctx->out, gram, IN * IN));
    memcpy(gram, s.gram, IN * IN * sizeof *gram);
    ck_memory(calm_hessian_make(ctx, "job", IN, &s.stats, gram, 0.01, &hessian), calm_hessian_bytes(IN), 0);
    /* The statistics of the last measurement were freed, so the Hessian is made anew. */
    hessian = share(&s, 0.01);
    ck_memory(calm_hessian_factor(ctx, "job", IN, 0.01, &hessian), calm_inverse_bytes(IN),
              calm_inverse_order_bytes(IN) + calm_inverse_factor_scratch_bytes(IN));
}
END_OF_TEST

int main(void)
{
    return run_tests("hessian", (const TTest *[]){same_bytes_as_on_its_own, without_input_it_is_the_identity,
                                                  bad_matrices_stay_as_they_are, memory, NULL});
}
