/* The first example of docs/library.md: a checkpoint in, a smaller one out. */
#include <calm.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    calm_ctx *ctx;
    calm_recipe_spec *spec;
    calm_outcome came;
    if (argc < 3 || calm_start(&ctx))
        return 1;
    if (calm_spec_new(ctx, &spec) || calm_spec_set(ctx, spec, "model", argv[1]) ||
        calm_spec_set(ctx, spec, "output", argv[2]) || calm_spec_set(ctx, spec, "store", "calm.db") ||
        calm_spec_set(ctx, spec, "blocks", "0") || calm_spec_set(ctx, spec, "calibration.samples", "4") ||
        calm_spec_set(ctx, spec, "evaluation.samples", "2") || calm_quantize(ctx, spec, NULL, &came))
        fprintf(stderr, "%s\n", calm_error_text(ctx));
    else
        printf("%s: %.3f bits per weight, perplexity %.3f -> %.3f\n", came.output, came.bits_per_weight,
               came.ppl_float, came.ppl);
    const int failed = calm_error_text(ctx)[0] != 0;
    calm_stop(&ctx);
    return failed;
}
