/* calm check on published FP8 checkpoints: good files; one of a pair of tensors, wrong shapes, wrong keys, and codes
 * and scales that are not numbers. */
#include "ptq/check/check.h"

#include "tests/support/foreign_checkpoint.h"
#include "tests/support/harness.h"

#define ENTRY(sides) "\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": " sides "}"

static foreign_part parts[2];    /* of every projection */

static size_t put(const char *module, size_t out, size_t in, foreign_part *list)
{
    size_t n = 0;
    if (!strstr(module, "_proj"))
        return 0;
    for (; n < 2 && parts[n].suffix; n++)
        list[n] = parts[n];
    list[0].shape[0] = out;
    list[0].shape[1] = in;
    list[1].shape[0] = list[1].shape[1] = 1;
    return n;
}

/* Returns the first finding that is no note as "TE001 where: what"; "" if there is none. */
static const char *first_finding(const char *entry, const foreign_part *codes, const foreign_part *scales)
{
    const tiny_model spec = tiny_default;
    calm_check_report report;
    parts[0] = *codes;
    parts[1] = scales ? *scales : (foreign_part){0};
    ck_ok(calm_check(ctx, foreign_write(&spec, entry, put), CALM_CHECK_ANY, &report));
    for (size_t i = 0; i < report.n; i++)
        if (report.findings[i].rule->severity != CALM_SEVERITY_NOTE)
            return test_format("%s %s: %s", report.findings[i].rule->id, report.findings[i].where,
                               report.findings[i].what);
    ck_assert_uint_eq(report.n_quantized, 14);
    ck_assert(strncmp(report.format, "fp8", 3) == 0);
    return "";
}

static void check_begins(const char *said, const char *expected, const char *within)
{
    ck_assert_msg(strncmp(said, expected, strlen(expected)) == 0 && strstr(said, within), "%s", said);
}

TEST(findings)
{
    const char *entry = ENTRY("[128, 128]");
    const foreign_part codes = {"weight", "F8_E4M3", 1, 2, {0}, NULL, 0};
    const foreign_part nan = {"weight", "F8_E4M3", 1, 2, {0}, NULL, 0x7f};
    const foreign_part scale = {"weight_scale_inv", "F32", 4, 2, {0}, NULL, 0};
    const foreign_part vector = {"weight_scale_inv", "F32", 4, 1, {0}, NULL, 0};
    const foreign_part exponent = {"weight_scale_inv", "F8_E8M0", 1, 2, {0}, NULL, 0xff};
    ck_assert_str_eq(first_finding(entry, &codes, &scale), "");
    check_begins(first_finding(entry, &codes, NULL), "TE001 ", "has no scales: expected tensor model.layers.0");
    check_begins(first_finding(ENTRY("null"), &codes, &(foreign_part){"weight_scale_inv", "I8", 1, 2, {0}, NULL, 0}),
                 "TE003 ", "dtype I8, expected F32");
    ck_assert_str_eq(first_finding(ENTRY("null"), &codes, &vector), "");
    check_begins(first_finding(ENTRY("[128]"), &codes, &scale), "MD003 config.json", "expected two whole numbers");
    check_begins(first_finding(entry, &nan, &scale), "VA010 model.layers.0.mlp.down_proj.weight", "element 0 is nan");
    check_begins(first_finding(entry, &codes, &exponent), "VA010 model.layers.0.mlp.down_proj.weight",
                 "down_proj.weight_scale_inv: the scale at 0 is nan");
}
END_OF_TEST

int main(void)
{
    return run_tests("check_published", (const TTest *[]){findings, NULL});
}
