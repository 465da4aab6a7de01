/* Schemes whose scales belong to blocks of rows and columns: the algorithms on them, and checkpoints written and
 * read back. */
#include "algorithms/part.h"
#include "ptq/export/export.h"
#include "ptq/model/model.h"
#include "ptq/plan/assemble.h"
#include "tests/conformance/sample_job.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

#define SCHEME "fp8_blocka16"

/* ---- algorithms ---- */

/* Checks that rows of a block have equal scales; the first linear has a third of all rows. */
static void check_blocks(const char *chain, const calm_qjob *q)
{
    const size_t rows = calm_scheme_rows(&q->scheme), ends[] = {0, q->out / 3, q->out};
    for (size_t l = 0; rows > 1 && l < 2; l++)
        for (size_t i = ends[l]; i < ends[l + 1]; i++) {
            const float *first = q->scales + (ends[l] + (i - ends[l]) / rows * rows) * q->n_groups;
            ck_assert_msg(memcmp(q->scales + i * q->n_groups, first, q->n_groups * sizeof *first) == 0,
                          "%s: row %zu has its own scales", chain, i);
        }
}

static void run(const char *chain, const calm_job *job, int n_threads, calm_qjob *out)
{
    calm_algorithm *algorithm;
    ctx->n_threads = n_threads;
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, job, out));
}

/* Several blocks of rows and of columns, with short blocks at the ends. */
TEST(blocks_of_rows_and_columns)
{
    const char *const chains[] = {"rtn", "hls(signed=true,weights=inverse)+gptq(order=none,groups=sequential)+mkq",
                                  "absmax+cd+ls", "mse+gptq+restarts(n=2)"};
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++) {
        sample s;
        calm_qjob one, four;
        make_sample(&s, 410, 150, 200, SCHEME);
        run(chains[c], &s.job, 1, &one);
        run(chains[c], &s.job, 4, &four);
        check_blocks(chains[c], &one);
        ck_assert_mem_eq(one.codes, four.codes, one.out * one.in);
        ck_assert_mem_eq(one.scales, four.scales, one.out * one.n_groups * sizeof *one.scales);
        /* The linears have 136 and 274 rows: blocks start anew in the second. */
        const size_t starts[] = {0, 128, 136, 264, 392};
        for (size_t i = 1; i < sizeof starts / sizeof *starts; i++)
            ck_assert_msg(one.scales[2 * starts[i]] != one.scales[2 * starts[i] - 2], "%s: row %zu", chains[c],
                          starts[i]);
        ck_assert(one.scales[0] != one.scales[1]);
    }
}
END_OF_TEST

/* The estimate of memory covers blocks; 3 linears may have one block more than rows / 128. */
TEST(memory)
{
    const char *const chains[] = {"mkq-full", "absmax+cd+ls", "rtn"};
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++) {
        sample s;
        calm_qjob q;
        calm_algorithm *algorithm;
        make_sample(&s, 300, 200, 300, SCHEME);
        ck_ok(calm_algorithm_parse(ctx, chains[c], &algorithm));
        calm_job_shape shape = calm_job_shape_of(&s.job.scheme, 300, 200);
        shape.n_threads = 3;
        shape.biased = true;
        const size_t left = calm_algorithm_run_bytes(algorithm, &shape);
        const size_t held = calm_algorithm_run_scratch_bytes(algorithm, &shape);
        test_memory_begin();
        run(chains[c], &s.job, 3, &q);
        const test_memory found = test_memory_end();
        ck_assert_msg(found.most <= left + held + 5 * CALM_ARENA_CHUNK, "%s: took %zu, said %zu", chains[c], found.most,
                      left + held);
    }
}
END_OF_TEST

/* ---- checkpoints ---- */

static calm_export_input input_of(const tiny_plan *p)
{
    return (calm_export_input){.model = p->model, .plan = &p->plan};
}

/* Checks that the written checkpoint has the plan's weights bit for bit. */
static void check_written(const tiny_plan *p, const calm_exporter *exporter)
{
    const calm_export_input input = input_of(p);
    const char *dir = test_directory();
    calm_model *written;
    ck_ok(exporter->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, exporter, &input, dir));
    ck_ok(calm_model_open(ctx, dir, &written));
    for (size_t i = 0; i < calm_model_config(p->model)->n_blocks; i++) {
        calm_plan_override override = {p->model, &p->plan};
        calm_block expected, found;
        ck_ok(calm_model_load_block(ctx, p->model, i, &expected));
        ck_ok(calm_plan_apply(&override, ctx, i, &expected));
        ck_ok(calm_model_load_block(ctx, written, i, &found));
        for (calm_role role = 0; role < CALM_N_ROLES; role++) {
            const calm_weight *f = &found.weight[role], *e = &expected.weight[role];
            ck_assert(f->act_bits == e->act_bits && f->act_rule == e->act_rule);
            if (e->w)
                ck_assert_mem_eq(f->w, e->w, e->out * e->in * sizeof *e->w);
        }
    }
    calm_model_close(written);
}

/* Opens a model with 4 heads and these sizes. */
static void open_sized(tiny_plan *p, size_t hidden, size_t inner)
{
    tiny_model spec = tiny_default;
    spec.hidden = hidden;
    spec.inner = inner;
    spec.head_dim = hidden / 4;
    tiny_plan_open(p, tiny_model_write(&spec));
}

/* Blocks of 128 x 128 may be short at the ends of a matrix; groups of activations must be whole. */
TEST(checkpoints)
{
    static const char *const weights[] = {SCHEME, "fp8a16"}, *const both[] = {"fp8_block", "float"};
    tiny_plan p;
    const calm_exporter *exporter;
    ck_ok(calm_exporter_find(ctx, "compressed-tensors", &exporter));
    open_sized(&p, 160, 288);
    tiny_plan_quantize_all(&p, weights, 2, TINY_UNSCALED);
    check_written(&p, exporter);
    tiny_plan_quantize_all(&p, both, 1, TINY_UNSCALED);
    calm_export_input input = input_of(&p);
    ck_fails(exporter->check(ctx, &input), CALM_EUNSUPPORTED,
             "160 input columns, which groups of 128, as fp8_block has, do not divide");
    calm_model_close(p.model);
    open_sized(&p, 128, 384);
    tiny_plan_quantize_all(&p, both, 1, TINY_UNSCALED);
    check_written(&p, exporter);
    input = input_of(&p);
    /* A stored candidate whose rows have different scales within a block is not written. */
    p.qjobs[0].scales[p.qjobs[0].n_groups] *= 2;
    ck_fails(calm_exporter_write(ctx, exporter, &input, test_directory()), CALM_EFORMAT,
             "row 1 of 128 has other scales than row 0 of its block of 128 rows");
    calm_model_close(p.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("row_blocks", (const TTest *[]){blocks_of_rows_and_columns, memory, checkpoints, NULL});
}
