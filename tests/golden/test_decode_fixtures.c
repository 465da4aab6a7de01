/* Decoding with a KV cache, for every fixture of a decoder: the logits after each token equal those of one forward pass
 * over the whole text, with float32 weights and with weights in their stored dtype, and have the same bytes for any
 * number of threads and any instruction set.
 *
 * Tolerance: that of test_model_fixtures.c, since two float32 passes with different orders of sums are compared.
 * Orders differ in the tiles of attention's products and in the chunks of delta nets and Mamba-2, for which
 * test_delta.c and test_mamba.c derive bounds that hold for any chunks (cut_windows).  Convolutions do not differ. */
#include "ptq/model/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/arch/arch.h"
#include "ptq/arch/wrapper.h"
#include "ptq/base/file.h"
#include "ptq/model/forward.h"
#include "ptq/tensor/linalg.h"
#include "tests/support/harness.h"
#include "tests/support/int_sets.h"
#include "tests/support/model_fixture.h"

#define TOLERANCE 2e-4

/* Returns the logits [T, V] of a window in one forward pass. */
static float *whole(const calm_model *model, const calm_windows *windows, size_t vocab)
{
    calm_rope rope;
    calm_head head;
    calm_batch batch;
    float *logits;
    ck_ok(calm_rope_init(ctx, calm_model_config(model), windows->longest, &rope));
    ck_ok(calm_model_load_head(ctx, model, &head));
    ck_ok(calm_batch_forward(ctx, model, &rope, &head, windows, 0, 1, NULL, NULL, ctx->out, &batch));
    ck_ok(CALM_NEW(ctx, ctx->out, logits, windows->longest * vocab));
    for (size_t first = 0, n; first < vocab; first += n) {
        n = calm_size_min(vocab - first, calm_head_tile(&head));
        ck_ok(calm_head_tile_logits(ctx, &head, batch.hidden.data, windows->longest, first, n, logits + first, vocab));
    }
    calm_batch_close(&batch);
    return logits;
}

/* Decodes: the first n_first tokens in one call, then one token per call.  Writes the logits after token n_first - 1
 * and all later ones; earlier rows of `logits` are not written. */
static void grow(const calm_model *model, const calm_windows *windows, size_t vocab, size_t n_first, float *logits)
{
    CALM_SCOPED_DECODER(decoder);
    const size_t n = windows->longest;
    ck_ok(calm_decoder_open(ctx, model, n, &decoder));
    ck_ok(calm_decoder_run(ctx, decoder, windows->ids, n_first, logits + (n_first - 1) * vocab));
    for (size_t t = n_first; t < n; t++) {
        /* A refused id leaves the text as it was, also where its tokens would rotate by other angles. */
        const uint32_t none = (uint32_t)vocab;
        ck_assert_int_eq(calm_decoder_run(ctx, decoder, &none, 1, logits + t * vocab), CALM_EARG);
        calm_ctx_clear_failure(ctx);
        ck_ok(calm_decoder_run(ctx, decoder, windows->ids + t, 1, logits + t * vocab));
    }
    ck_assert(calm_decoder_token_bytes(decoder) > 0);
    /* The cache is full. */
    ck_assert_int_eq(calm_decoder_run(ctx, decoder, windows->ids, 1, logits), CALM_EARG);
    calm_ctx_clear_failure(ctx);
}

/* Compares logits from token n_first on.  Texts whose rotary embeddings differ from the whole window's are left out:
 * longrope has other factors beyond its original length. */
static void compare(const char *name, const calm_config *config, size_t n_first, const float *found,
                    const float *expected, size_t n)
{
    double worst = 0, largest = 1;
    for (size_t i = (n_first - 1) * config->vocab; i < n * config->vocab; i++)
        if (!calm_rope_differs(config, i / config->vocab + 1, n)) {
            worst = test_worse(worst, fabs((double)found[i] - (double)expected[i]));
            largest = fmax(largest, fabs((double)expected[i]));
        }
    ck_assert_msg(worst <= TOLERANCE * largest, "%s behind %zu tokens: largest difference %g, tolerance %g", name,
                  n_first, worst, TOLERANCE * largest);
}

/* Decodes the first window, from one token, from half and from all of its tokens. */
static void check_model(const char *name, const calm_model *model, const calm_windows *windows)
{
    const size_t vocab = calm_model_config(model)->vocab, n = windows->longest, begins[] = {1, (n + 1) / 2, n};
    const float *expected = whole(model, windows, vocab);
    float *logits, *again;
    ck_ok(CALM_NEW(ctx, ctx->out, logits, n * vocab));
    ck_ok(CALM_NEW(ctx, ctx->out, again, n * vocab));
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        for (int stored = 0; stored < 2; stored++) {
            ctx->decode = stored;
            ctx->n_threads = 1;
            grow(model, windows, vocab, begins[i], logits);
            compare(test_format("%s%s", name, stored ? ", as stored" : ""), calm_model_config(model), begins[i], logits,
                    expected, n);
            memcpy(again, logits, n * vocab * sizeof *again);
            ctx->n_threads = 3;
            grow(model, windows, vocab, begins[i], again);
            ck_assert_msg(memcmp(again, logits, n * vocab * sizeof *again) == 0, "%s: other bytes with 3 threads",
                          name);
        }
    ctx->decode = false;
    ctx->n_threads = 1;
}

/* Checks that calm_past_bytes() is what calm_past_init() allocates. */
static void check_bytes(const char *name, const calm_config *config)
{
    calm_past past;
    for (size_t room = 1; room < 100; room += 33) {
        CALM_SCOPED_ARENA(arena);
        CALM_SCOPED_OUT(ctx, &arena);
        ck_ok(calm_past_init(ctx, config, room, &past));
        ck_assert_msg(arena.used_bytes == calm_past_bytes(config, room), "%s: %zu bytes of %zu tokens, expected %zu",
                      name, arena.used_bytes, room, calm_past_bytes(config, room));
    }
}

/* Checks a fixture if it is a decoder that calm reads; returns whether it was. */
static bool check_fixture(const char *name, const char *dir)
{
    CALM_SCOPED_MODEL(model);
    model_fixture f;
    size_t begin[2] = {0, 0};
    if (calm_model_open(ctx, dir, &model) != CALM_OK) {
        ck_assert_int_eq(ctx->status, CALM_EUNSUPPORTED);
        calm_ctx_clear_failure(ctx);
        return false;
    }
    if (calm_model_config(model)->arch->encoder) {
        calm_decoder *decoder;
        ck_assert_int_eq(calm_decoder_open(ctx, model, 8, &decoder), CALM_EUNSUPPORTED);
        ck_assert(strstr(ctx->message, "encoder") && !decoder);
        calm_ctx_clear_failure(ctx);
        return false;
    }
    model_fixture_open(name, dir, &f);
    begin[1] = f.windows.begin[1];
    const calm_windows one = {.ids = f.windows.ids, .begin = begin, .n = 1, .longest = begin[1]};
    check_bytes(name, calm_model_config(model));
    check_model(name, model, &one);
    model_fixture_close(&f);
    return true;
}

static size_t check_group(const char *group)
{
    const char *root = fixtures_root();
    size_t n = 0;
    if (!root || !calm_is_directory(test_format("%s/%s", root, group)))
        return 0;
    calm_linalg_setup();
    char **names = fixture_entries(group, NULL);
    for (size_t i = 0; names[i]; i++)
        n += check_fixture(names[i], test_format("%s/%s/%s", root, group, names[i]));
    ck_assert_msg(n > 0, "%s: no decoder", group);
    printf("%s: %zu decoders\n", group, n);
    return n;
}

TEST(models)
{
    check_group("models");
}
END_OF_TEST

TEST(families)
{
    check_group("families");
}
END_OF_TEST

int main(void)
{
    return run_tests("decode_fixtures", (const TTest *[]){models, families, NULL});
}
