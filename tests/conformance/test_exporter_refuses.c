/* calm_exporter_refuses(), which needs no model, refuses exactly the schemes that calm_exporter_check() refuses for
 * a model of which every job has the scheme. */
#include "ptq/export/export.h"

#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

/* All widths of this model are divisible by the groups, so that a refusal is about the scheme. */
TEST(refused_before_a_model)
{
    static const char *const schemes[] = {
        "w2a16_g64", "w3a16_g128", "w4a16", "w4a16_g128", "w4a16_g16", "w4a16_g128_asym", "w8a16", "w8a16_asym",
        "w4a16_g64_actorder", "w8a8", "w8a8_asymact", "w8a8_static", "w4a4_g128", "w4afp8_g128", "w8a8_asym", "fp8",
        "fp8a16", "fp8_static", "mxfp4", "mxfp4a16", "nvfp4", "nvfp4a16", "q4_k", "q5_0", "q6_k", "iq4_nl"};
    size_t n, n_refused = 0;
    const calm_exporter *const *exporters = calm_exporters(&n);
    tiny_model spec = tiny_default;
    tiny_plan p;
    spec.hidden = spec.inner = 256;
    spec.head_dim = 128;
    tiny_plan_open(&p, tiny_model_write(&spec));
    const calm_export_options options = {.asymmetric = true};
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        for (size_t e = 0; e < n; e++) {
            calm_scheme scheme;
            if (!exporters[e]->form && !exporters[e]->parts)
                continue;    /* an exporter that writes no weights */
            if (calm_scheme_parse(ctx, schemes[s], &scheme) != CALM_OK) {
                calm_ctx_clear_failure(ctx);
                break;
            }
            for (size_t i = 0; i < p.plan.n_jobs; i++) {
                p.plan.jobs[i].quantized = true;
                p.plan.jobs[i].scheme = scheme;
            }
            const bool late = calm_exporter_check(ctx, exporters[e], &input) != CALM_OK;
            const char *said = test_format("%s", ctx->message);
            calm_ctx_clear_failure(ctx);
            const char *early = calm_exporter_refuses(exporters[e], &scheme);
            ck_assert_msg(late == (early != NULL), "%s %s: %s", exporters[e]->name, schemes[s],
                          late ? said : early);
            n_refused += late;
        }
    ck_assert_uint_gt(n_refused, 20);
    calm_model_close(p.model);
}
END_OF_TEST

int main(void)
{
    return run_tests("exporter_refuses", (const TTest *[]){refused_before_a_model, NULL});
}
