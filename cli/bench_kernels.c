/* Times integer products next to sgemm and to the peak rate of the CPU's integer instructions. */
#include "cli/bench_kernels.h"

#include <math.h>
#include <stdio.h>

#include "cli/onednn.h"
#include "cli/peak.h"
#include "cli/print.h"
#include "cli/read_rate.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/state/environment.h"
#include "ptq/tensor/int_product.h"
#include "ptq/tensor/product.h"
#include "ptq/text/table.h"

typedef struct scheme {
    const char *name;
    int bits;
    size_t group;
} scheme;

static const scheme kinds[] = {{"w8a8", 8, 0}, {"w4a8_g128", 4, 128}, {"w4a8", 4, 0}};
enum { N_KINDS = sizeof kinds / sizeof *kinds, SGEMM = N_KINDS, PEAK, ONEDNN, N_ITEMS };

/* A run repeats its product up to this many multiplications, so that it is much longer than the clock's resolution. */
#ifdef CALM_SANITIZED    /* a product takes a hundred times as long */
#define LEAST ((size_t)1 << 18)
#else
#define LEAST ((size_t)1 << 24)
#endif

/* One shape: y [m, n] = x [m, k] W^T. */
typedef struct shape {
    size_t m, k, n, turns;
    calm_int_set set;
    calm_onednn_sgemm *onednn;    /* NULL: it is not installed */
    const float *x, *w;
    float *y;
} shape;

typedef struct subject {
    const shape *of;
    calm_int_weight weight;
    calm_int_rows rows;
} subject;

/* ---- what is timed ---- */

static calm_status run_ints(calm_ctx *ctx, void *user)
{
    const subject *s = user;
    for (size_t i = 0; i < s->of->turns; i++)
        calm_int_product(ctx, s->of->set, &s->weight, &s->rows, NULL, s->of->y);
    return CALM_OK;
}

static calm_status run_sgemm(calm_ctx *ctx, void *user)
{
    const shape *s = user;
    for (size_t i = 0; i < s->turns; i++)
        CALM_TRY(calm_product_rows(ctx, CALM_PRODUCT_NT, s->m, s->n, s->k, s->x, s->k, s->w, s->k, 0, s->y, s->n));
    return CALM_OK;
}

/* Columns for one thread: inside a task oneDNN starts no other thread. */
typedef struct onednn_part {
    const shape *of;
    size_t columns;
} onednn_part;

static calm_status onednn_task(calm_ctx *ctx, size_t index, void *user)
{
    const onednn_part *part = user;
    const shape *s = part->of;
    const size_t first = index * part->columns, n = calm_size_min(part->columns, s->n - first);
    return s->onednn('N', 'T', (int64_t)s->m, (int64_t)n, (int64_t)s->k, 1, s->x, (int64_t)s->k, s->w + first * s->k,
                     (int64_t)s->k, 0, s->y + first, (int64_t)s->n) == 0
               ? CALM_OK
               : calm_fail(ctx, CALM_EUNSUPPORTED, "oneDNN's sgemm of %zu x %zu x %zu fails", s->m, s->k, n);
}

static calm_status run_onednn(calm_ctx *ctx, void *user)
{
    const shape *s = user;
    onednn_part part = {s, (s->n + (size_t)ctx->n_threads - 1) / (size_t)ctx->n_threads};
    for (size_t i = 0; i < s->turns; i++)
        CALM_TRY(calm_parallel_for(ctx, (s->n + part.columns - 1) / part.columns, onednn_task, &part));
    return CALM_OK;
}

static void peak_task(size_t index, void *user)
{
    const calm_peak *peak = user;
    (void)index;
    peak->run();
}

static calm_status run_peak(calm_ctx *ctx, void *user)
{
    calm_parallel_each(ctx, (size_t)ctx->n_threads, peak_task, user);
    return CALM_OK;
}

/* ---- its operands ---- */

/* Allocates memory aligned to 64 bytes. */
static calm_status new_aligned(calm_ctx *ctx, size_t bytes, void **out)
{
    char *memory;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, memory, bytes + 64));
    *out = memory + (64 - (uintptr_t)memory % 64) % 64;
    return CALM_OK;
}

static calm_status new_floats(calm_ctx *ctx, size_t n, const float **out)
{
    float *x;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, x, n));
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(calm_rng_uniform(7, 1, i) - 0.5);
    *out = x;
    return CALM_OK;
}

static calm_status new_subject(calm_ctx *ctx, const shape *of, const scheme *in, subject *out)
{
    const size_t groups = in->group ? (of->k + in->group - 1) / in->group : 1;
    uint8_t *codes;
    float *scales;
    void *memory;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, codes, of->n * of->k));
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, scales, of->n * groups));
    for (size_t i = 0; i < of->n * of->k; i++)
        codes[i] = (uint8_t)(calm_rng_uniform(7, 2, i) * (double)(1 << in->bits));
    for (size_t i = 0; i < of->n * groups; i++)
        scales[i] = 0x1p-8f;
    const calm_int_source source = {of->n, of->k, in->bits, in->group, codes, scales, NULL,
                                    1 << (in->bits - 1)};
    *out = (subject){.of = of};
    CALM_TRY(new_aligned(ctx, calm_int_weight_bytes(&source), &memory));
    calm_int_pack(&source, memory, &out->weight);
    CALM_TRY(new_aligned(ctx, calm_int_rows_bytes(&out->weight, of->m), &memory));
    calm_int_rows_init(&out->weight, of->m, memory, &out->rows);
    for (size_t t = 0; t < of->m; t++) {
        for (size_t i = 0; i < of->k; i++)
            out->rows.codes[t * out->rows.stride + i] = (int8_t)(of->x[t * of->k + i] * 254);
        out->rows.scales[t] = 0x1p-8f;
        calm_int_rows_finish(&out->weight, &out->rows, t);
    }
    return CALM_OK;
}

/* ---- the figures ---- */

/* `best`: rate of the faster float product. */
static void add_row(const shape *s, const calm_bench_item *item, const calm_bench_item *items, double best, int bits,
                    calm_table *table)
{
    const double rate = calm_bench_rate(item), share = rate / calm_bench_rate(&items[PEAK]);
    const double bytes = (double)(s->k * s->n * s->turns) * bits / 8;
    CALM_CELLS(table, CALM_INT(s->m), CALM_INT(s->k), CALM_INT(s->n), CALM_TEXT(item->name), CALM_FIXED(rate * 1e-9, 1),
               CALM_FIXED(bits == 32 ? NAN : share, 2), CALM_FIXED(rate / calm_bench_rate(&items[SGEMM]), 2),
               CALM_FIXED(rate / best, 2), CALM_FIXED(bytes / calm_bench_seconds(item) * 1e-9, 1),
               CALM_FIXED(item->timing.spread, 3));
}

static calm_status time_shape(calm_ctx *ctx, const calm_bench_kernels *bench, shape *s, calm_table *table)
{
    subject subjects[N_KINDS];
    calm_bench_item items[N_ITEMS];
    CALM_SCOPED_SCRATCH(ctx);
    const calm_peak *peak = calm_peak_of_ints(s->set);
    s->turns = calm_size_max(LEAST / (s->m * s->k * s->n), 1);
    const double operations = 2.0 * (double)s->turns * (double)s->m * (double)s->k * (double)s->n;
    CALM_TRY(new_floats(ctx, s->m * s->k, &s->x));
    CALM_TRY(new_floats(ctx, s->n * s->k, &s->w));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->y, s->m * s->n));
    for (size_t i = 0; i < N_KINDS; i++) {
        CALM_TRY(new_subject(ctx, s, &kinds[i], &subjects[i]));
        items[i] = (calm_bench_item){
            .name = kinds[i].name, .flops = operations, .run = run_ints, .user = &subjects[i]};
    }
    items[SGEMM] = (calm_bench_item){.name = "sgemm", .flops = operations, .run = run_sgemm, .user = s};
    items[PEAK] = (calm_bench_item){.name = "peak", .flops = peak->flops * (double)ctx->n_threads, .run = run_peak,
                                    .user = (void *)(uintptr_t)peak};
    items[ONEDNN] = (calm_bench_item){.name = "oneDNN sgemm", .flops = operations, .run = run_onednn, .user = s};
    const size_t n_items = s->onednn ? N_ITEMS : ONEDNN;
    CALM_TRY(calm_bench_measure(ctx, items, n_items, bench->repeats));
    const double sgemm = calm_bench_rate(&items[SGEMM]), other = s->onednn ? calm_bench_rate(&items[ONEDNN]) : sgemm;
    /* If one of them has no figure, the maximum has none. */
    const double best = isnan(sgemm) || isnan(other) ? NAN : fmax(sgemm, other);
    for (size_t i = 0; i < n_items; i++)
        if (i != PEAK)
            add_row(s, &items[i], items, best, i < N_KINDS ? kinds[i].bits : 32, table);
    return CALM_OK;
}

/* ---- all shapes ---- */

static calm_status time_shapes(calm_ctx *ctx, const calm_bench_kernels *bench, calm_int_set set, calm_table *table)
{
    calm_onednn_sgemm *onednn = calm_onednn_find();
    calm_parallel_offer(1);    /* with a team of one thread oneDNN would start its own threads */
    calm_table_columns(table, "#m|#k|#n|kind|#gops|#share_of_peak|#ratio|#ratio_best|#weight_gb|#spread");
    for (int wide = 0; wide < 2; wide++)
        for (size_t m = 1; m <= calm_size_min(bench->tokens, 4096); m *= 8) {
            shape s = {.m = m, .k = wide ? bench->inner : bench->hidden, .n = wide ? bench->hidden : bench->inner,
                       .set = set, .onednn = onednn};
            CALM_TRY(time_shape(ctx, bench, &s, table));
        }
    return CALM_OK;
}

calm_status calm_bench_kernels_run(calm_ctx *ctx, const calm_bench_kernels *bench)
{
    CALM_SCOPED_TABLE(table);
    calm_int_set set;
    calm_json *environment;
    double bytes_per_second;
    CALM_TRY(calm_int_choose(ctx, &set));
    CALM_TRY(time_shapes(ctx, bench, set, &table));
    if (bench->json) {
        CALM_TRY(calm_environment_json(ctx, &environment));
        CALM_TRY(calm_read_rate(ctx, &bytes_per_second));
        return calm_print_json(ctx, CALM_OBJECT(
            CALM_KV("subject", "kernels"), CALM_KV("simd", calm_int_set_names[set]),
            CALM_KV("peak", calm_peak_of_ints(set)->unit), CALM_KV("threads", (int64_t)ctx->n_threads),
            CALM_KV("read_bytes_per_second", bytes_per_second), CALM_KV("shapes", calm_rows_json(ctx, &table)),
            CALM_KV("environment", environment)));
    }
    printf("y [m, n] = x [m, k] W^T of whole numbers by %s, %d threads: Gop/s, their share of the peak (%s), ratio to "
           "sgemm and to the best product of floats, GB/s of the weight\n", calm_int_set_names[set], ctx->n_threads,
           calm_peak_of_ints(set)->unit);
    CALM_TRY(calm_print_table(ctx, &table, stdout));
    return calm_bench_print_machine(ctx);
}
