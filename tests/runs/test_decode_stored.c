/* Decoding with weights as a written checkpoint stores them, embedding and head included: the logits are those of
 * float32 weights, and a token reads fewer bytes.
 *
 * Tolerance: that of test_decode_fixtures.c; codes times scales are the values of the float matrix, so only orders
 * of sums differ. */
#include "ptq/model/decode.h"

#include <math.h>

#include "tests/support/play.h"

#define TOLERANCE 2e-4
#define TOKENS 12

static play written(const char *format, const char *scheme, const char *head, bool tied)
{
    const calm_words names = test_words(format);
    tiny_model model = tiny_default;
    model.inner = 64;
    model.tied = tied;
    play run = play_new(&model, scheme, "rtn");
    ck_ok(calm_formats_parse(ctx, &names, &run.recipe.formats));
    ck_ok(calm_formats_parse_outer(ctx, NULL, head, &run.recipe.formats.options));
    run.recipe.force = true;
    play_must_run(&run);
    return run;
}

/* Returns the logits [V] after each of TOKENS tokens; *bytes = the bytes read for a token. */
static float *decode(const calm_model *model, bool stored, double *bytes)
{
    const size_t vocab = calm_model_config(model)->vocab;
    CALM_SCOPED_DECODER(decoder);
    float *logits;
    ck_ok(CALM_NEW(ctx, ctx->out, logits, TOKENS * vocab));
    ctx->decode = stored;
    ck_ok(calm_decoder_open(ctx, model, TOKENS, &decoder));
    for (uint32_t t = 0; t < TOKENS; t++) {
        const uint32_t id = 7 * t + 1;
        ck_ok(calm_decoder_run(ctx, decoder, &id, 1, logits + t * vocab));
    }
    *bytes = calm_decoder_token_bytes(decoder);
    ctx->decode = false;
    return logits;
}

/* `most`: the largest allowed ratio of stored bytes to those of float32. */
static void check(const play *run, const char *file, double most)
{
    CALM_SCOPED_MODEL(model);
    double bytes, float_bytes, worst = 0, largest = 1;
    ck_ok(calm_model_open(ctx, test_format("%s%s", run->recipe.output, file), &model));
    const size_t n = TOKENS * calm_model_config(model)->vocab;
    const float *found = decode(model, true, &bytes), *expected = decode(model, false, &float_bytes);
    for (size_t i = 0; i < n; i++) {
        worst = test_worse(worst, fabs((double)found[i] - (double)expected[i]));
        largest = fmax(largest, fabs((double)expected[i]));
    }
    ck_near(worst, 0, TOLERANCE * largest);
    ck_assert_msg(bytes <= most * float_bytes, "a token reads %.0f bytes, in float32 %.0f", bytes, float_bytes);
}

/* 8-bit codes with one scale for 32 columns or more take at most 9/32 of a float, the 4-bit codes of other matrices
 * less; the last panel of 16 rows may be padded. */
TEST(gguf)
{
    const play tied = written("gguf", "w4a16_g32", "w8a16_g32", true);
    check(&tied, "/model.gguf", 0.3);
    const play untied = written("gguf", "w8a16_g32", "w8a16_g32", false);
    check(&untied, "/model.gguf", 0.3);
}
END_OF_TEST

TEST(compressed_tensors)
{
    const play run = written("compressed-tensors", "w4a16_g32", "w8a16_g32", false);
    check(&run, "", 0.3);
}
END_OF_TEST

/* Types with minima are decoded as floats. */
TEST(minima)
{
    const play run = written("gguf", "w4a16_asym_g32", "float", true);
    check(&run, "/model.gguf", 1);
}
END_OF_TEST

int main(void)
{
    return run_tests("decode_stored", (const TTest *[]){gguf, compressed_tensors, minima, NULL});
}
