/* Encodes and decodes exponents, tensor by tensor. */
#include "cli/bench_code.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/print.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/io/safetensors.h"
#include "ptq/quant/exponent_code.h"
#include "ptq/state/environment.h"
#include "ptq/text/table.h"

/* Words of one dtype in pieces, each with its code. */
typedef struct subject {
    calm_dtype dtype;
    size_t width;                /* bytes of a word */
    const uint8_t **words;       /* [n]             */
    size_t *counts, n;           /* [n] words       */
    uint8_t **codes;             /* [n]             */
    size_t *coded;               /* [n] bytes       */
    uint8_t *back;               /* the longest     */
} subject;

static size_t all_bytes(const subject *s)
{
    size_t sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += s->counts[i] * s->width;
    return sum;
}

/* ---- what is timed ---- */

static calm_status encode_all(calm_ctx *ctx, void *user)
{
    const subject *s = user;
    (void)ctx;
    for (size_t i = 0; i < s->n; i++)
        s->coded[i] = calm_exponent_encode(s->words[i], s->counts[i], s->width, false, s->codes[i]);
    return CALM_OK;
}

static calm_status decode_all(calm_ctx *ctx, void *user)
{
    const subject *s = user;
    for (size_t i = 0; i < s->n; i++)
        CALM_TRY(calm_exponent_decode(ctx, "code", s->codes[i], s->coded[i], s->counts[i], s->width, s->back));
    return CALM_OK;
}

/* Encodes and decodes every piece once, and compares. */
static calm_status check(calm_ctx *ctx, subject *s)
{
    CALM_TRY(encode_all(ctx, s));
    for (size_t i = 0; i < s->n; i++) {
        CALM_TRY(calm_exponent_decode(ctx, "code", s->codes[i], s->coded[i], s->counts[i], s->width, s->back));
        if (memcmp(s->back, s->words[i], s->counts[i] * s->width) != 0)
            return calm_fail(ctx, CALM_ENUMERIC, "calm bench code: piece %zu came back with other bits", i);
    }
    return CALM_OK;
}

/* ---- its words ---- */

static calm_status new_subject(calm_ctx *ctx, calm_dtype dtype, size_t n, subject *out)
{
    *out = (subject){.dtype = dtype, .width = calm_dtype_bytes(dtype)};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->words, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->counts, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->codes, n));
    return CALM_NEW(ctx, ctx->scratch, out->coded, n);
}

static calm_status add_piece(calm_ctx *ctx, subject *s, const void *words, size_t n)
{
    s->words[s->n] = words;
    s->counts[s->n] = n;
    return CALM_NEW_RAW(ctx, ctx->scratch, s->codes[s->n++], calm_exponent_code_most(n, s->width));
}

static calm_status add_gaussian(calm_ctx *ctx, subject *s, size_t n)
{
    uint8_t *words;
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, words, n * s->width));
    for (size_t i = 0; i < n; i++) {
        const float value = (float)(0.02 * calm_rng_normal(7, 1, i));
        CALM_TRY(calm_from_f32(ctx, s->dtype, &value, 1, words + i * s->width));
    }
    return add_piece(ctx, s, words, n);
}

static calm_status add_tensors(calm_ctx *ctx, subject *s, const calm_safetensors *set)
{
    for (size_t i = 0; i < calm_safetensors_count(set); i++) {
        const calm_tensor *tensor = calm_safetensors_at(set, i);
        if (tensor->dtype == s->dtype && !tensor->source)
            CALM_TRY(add_piece(ctx, s, tensor->data, tensor->n_elements));
    }
    return CALM_OK;
}

/* ---- the figures ---- */

static calm_status time_subject(calm_ctx *ctx, const calm_bench_exponents *bench, subject *s, calm_table *table)
{
    const double bytes = (double)all_bytes(s);
    calm_bench_item items[] = {{.name = "encode", .flops = bytes, .run = encode_all, .user = s},
                               {.name = "decode", .flops = bytes, .run = decode_all, .user = s}};
    size_t longest = 0, coded = 0;
    for (size_t i = 0; i < s->n; i++)
        longest = calm_size_max(longest, s->counts[i]);
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, s->back, longest * s->width));
    CALM_TRY(check(ctx, s));
    CALM_TRY(calm_bench_measure(ctx, items, 2, bench->repeats));
    for (size_t i = 0; i < s->n; i++)
        coded += s->coded[i];
    CALM_CELLS(table, CALM_TEXT(calm_dtype_name(s->dtype)), CALM_INT(s->n), CALM_FIXED(bytes * 1e-6, 3),
               CALM_FIXED((double)coded / bytes, 4), CALM_FIXED(calm_bench_rate(&items[0]) * 1e-9, 2),
               CALM_FIXED(calm_bench_rate(&items[1]) * 1e-9, 2),
               CALM_FIXED(fmax(items[0].timing.spread, items[1].timing.spread), 3));
    return CALM_OK;
}

static calm_status time_all(calm_ctx *ctx, const calm_bench_exponents *bench, const calm_safetensors *set,
                            calm_table *table)
{
    static const calm_dtype dtypes[] = {CALM_BF16, CALM_F32};
    size_t n = 0;
    calm_table_columns(table, "dtype|#tensors|#mb|#ratio|#encode_gb|#decode_gb|#spread");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        subject s;
        CALM_SCOPED_SCRATCH(ctx);
        CALM_TRY(new_subject(ctx, dtypes[i], set ? calm_safetensors_count(set) : 1, &s));
        CALM_TRY(set ? add_tensors(ctx, &s, set) : add_gaussian(ctx, &s, bench->n));
        n += s.n;
        if (all_bytes(&s))
            CALM_TRY(time_subject(ctx, bench, &s, table));
    }
    return n ? CALM_OK
             : calm_fail(ctx, CALM_EARG, "calm bench code: %s has no tensors of BF16 or F32", bench->input);
}

calm_status calm_bench_code_run(calm_ctx *ctx, const calm_bench_exponents *bench)
{
    CALM_SCOPED_TABLE(table);
    calm_safetensors *set = NULL;
    calm_json *environment;
    if (bench->input)
        CALM_TRY(calm_safetensors_open(ctx, bench->input, &set));
    const calm_status status = time_all(ctx, bench, set, &table);
    if (set)
        calm_safetensors_close(set);
    CALM_TRY(status);
    if (bench->json) {
        CALM_TRY(calm_environment_json(ctx, &environment));
        return calm_print_json(ctx, CALM_OBJECT(CALM_KV("subject", "code"),
                                                CALM_KV("words", calm_rows_json(ctx, &table)),
                                                CALM_KV("environment", environment)));
    }
    printf("exponents of %s coded without loss, one thread: MB of words, ratio, GB/s of words each way\n",
           bench->input ? bench->input : "a Gaussian");
    CALM_TRY(calm_print_table(ctx, &table, stdout));
    return calm_bench_print_machine(ctx);
}
