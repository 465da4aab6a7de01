/* The quantization fixtures: GPTQ and SmoothQuant problems, float formats, and packed words.
 *
 * Every file of numerics/ and packing/ is read and recognised by its content.  GPTQ codes must all be equal: the
 * fixtures are at least 2e-6 of a grid step away from every rounding tie, and double arithmetic at these sizes errs
 * by less than 1e-12.  SmoothQuant scales are stored in float32, 2^-24 relative, so 1e-6 is the tolerance. */
#include <stdio.h>

#include "algorithms/transform_smooth_impl.h"
#include "ptq/io/json.h"
#include "ptq/io/safetensors.h"
#include "ptq/quant/pack.h"
#include "tests/support/harness.h"

static calm_json *read_json(const char *folder, const char *name)
{
    calm_json *root;
    ck_ok(calm_json_read(ctx, test_format("%s/%s/%s", fixtures_root(), folder, name), (size_t)1 << 30, &root));
    return root;
}

static calm_safetensors *open_numerics(const char *name)
{
    calm_safetensors *set;
    ck_ok(calm_safetensors_open(ctx, test_format("%s/numerics/%s", fixtures_root(), name), &set));
    return set;
}

static const char *without_suffix(const char *name)
{
    return test_format("%.*s", (int)(strlen(name) - strlen(".json")), name);
}

static const calm_tensor *must_find(const calm_safetensors *set, const char *name)
{
    const calm_tensor *tensor = calm_safetensors_find(set, name);
    ck_assert_msg(tensor != NULL, "no tensor %s", name);
    return tensor;
}

/* Returns a float tensor as float32, in the test's arena. */
static float *floats(const calm_safetensors *set, const char *name, size_t n)
{
    const calm_tensor *tensor = must_find(set, name);
    float *values;
    ck_assert_uint_eq(tensor->n_elements, n);
    ck_ok(CALM_NEW(ctx, ctx->out, values, n));
    ck_ok(calm_to_f32(ctx, tensor->dtype, tensor->data, n, values));
    return values;
}

/* ---- GPTQ ---- */

typedef struct gptq_problem {
    const char *name;
    const calm_safetensors *set;
    calm_linear linear;
    calm_stats stats;
    double damp;
    size_t *n_dequantized;    /* number of cases that have dequantized weights, too */
} gptq_problem;

static const char *chain_of(const char *mode, double damp)
{
    if (strcmp(mode, "rtn") == 0)
        return "absmax+nearest";
    if (strcmp(mode, "seq") == 0)
        return test_format("absmax+gptq(order=none,groups=sequential,damp=%.17g)", damp);
    if (strcmp(mode, "static") == 0)
        return test_format("absmax+gptq(order=none,damp=%.17g)", damp);
    ck_assert_msg(strcmp(mode, "actorder") == 0, "unknown mode %s", mode);
    return test_format("absmax+gptq(damp=%.17g)", damp);
}

/* Returns tr((W - Q) H (W - Q)^T). */
static double objective(const gptq_problem *problem, const float *q)
{
    size_t in = problem->linear.in;
    double sum = 0;
    for (size_t r = 0; r < problem->linear.out; r++) {
        const float *w = problem->linear.w + r * in, *wq = q + r * in;
        for (size_t i = 0; i < in; i++)
            for (size_t j = 0; j < in; j++)
                sum += ((double)w[i] - wq[i]) * problem->stats.gram[i * in + j] * ((double)w[j] - wq[j]);
    }
    return sum;
}

static void check_gptq_case(const gptq_problem *problem, const char *key, const calm_json *expected)
{
    int64_t group = calm_json_int(calm_json_get(expected, "group_size"), 0);
    bool symmetric = calm_json_bool(calm_json_get(expected, "symmetric"), false);
    calm_job job = {.name = key, .linears = &problem->linear, .n_linears = 1, .stats = &problem->stats};
    calm_algorithm *algorithm;
    calm_qjob qjob;
    const char *name = test_format("w%da16%s%s_f16s", (int)calm_json_int(calm_json_get(expected, "bits"), 0),
                                   group > 0 ? test_format("_g%d", (int)group) : "", symmetric ? "" : "_asym");
    ck_ok(calm_scheme_parse(ctx, name, &job.scheme));
    ck_ok(calm_algorithm_parse(ctx, chain_of(strrchr(key, '.') + 1, problem->damp), &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, &job, &qjob));

    size_t n = qjob.out * qjob.in, n_scales = qjob.out * qjob.n_groups, wrong = 0;
    const calm_tensor *codes = must_find(problem->set, test_format("%s.codes", key));
    ck_assert_uint_eq(codes->n_elements, n);
    for (size_t i = 0; i < n; i++)
        wrong += codes->data[i] != qjob.codes[i];
    ck_assert_msg(wrong == 0, "%s %s: %zu of %zu codes differ", problem->name, key, wrong, n);
    const float *scales = floats(problem->set, test_format("%s.scales", key), n_scales);
    ck_assert_mem_eq(scales, qjob.scales, n_scales * sizeof *scales);
    const calm_tensor *zeros = must_find(problem->set, test_format("%s.zeros", key));
    for (size_t i = 0; i < n_scales; i++)
        ck_assert_uint_eq(zeros->data[i], qjob.zeros ? qjob.zeros[i] : calm_symmetric_zero(&qjob.scheme));
    float *w;
    ck_ok(CALM_NEW(ctx, ctx->out, w, n));
    calm_qjob_dequantize(&qjob, w);
    if (calm_safetensors_find(problem->set, test_format("%s.dequant", key))) {
        ck_assert_mem_eq(w, floats(problem->set, test_format("%s.dequant", key), n), n * sizeof *w);
        ++*problem->n_dequantized;
    }
    double found = objective(problem, w), wanted = calm_json_number(calm_json_get(expected, "objective"), -1);
    ck_near(found, wanted, 1e-9 * wanted);
}

static size_t check_gptq_problem(const char *stem, double damp, const char *name, const calm_json *description,
                                 size_t *n_dequantized)
{
    const calm_safetensors *set = open_numerics(test_format("%s_%s.safetensors", stem, name));
    const calm_tensor *w = must_find(set, "W");
    size_t out = w->shape[0], in = w->shape[1], n_cases = 0;
    const float *h = floats(set, "H", in * in);
    double *gram;
    ck_ok(CALM_NEW(ctx, ctx->out, gram, in * in));
    for (size_t i = 0; i < in * in; i++)
        gram[i] = h[i];
    gptq_problem problem = {.name = name, .set = set, .damp = damp, .n_dequantized = n_dequantized,
                            .linear = {.name = name, .out = out, .in = in, .w = floats(set, "W", out * in)},
                            .stats = {.gram = gram}};
    problem.stats.rows = (size_t)calm_json_int(calm_json_get(description, "samples"), 1);
    const char *key;
    const calm_json *expected;
    for (void *iter = NULL; calm_json_next(calm_json_get(description, "cases"), &iter, &key, &expected); n_cases++)
        check_gptq_case(&problem, key, expected);
    ck_assert_msg(n_cases > 0, "%s: no case", name);
    calm_safetensors_close((calm_safetensors *)set);
    return n_cases;
}

TEST(gptq_codes_are_equal)
{
    size_t n_cases = 0, n_dequantized = 0;
    if (!fixtures_root())
        return;
    for (char **name = fixture_entries("numerics", ".json"); *name; name++) {
        calm_json *root = read_json("numerics", *name);
        const calm_json *problems = calm_json_get(root, "problems"), *description;
        double damp = calm_json_number(calm_json_get(root, "percdamp"), -1);
        const char *problem;
        for (void *iter = NULL; damp > 0 && calm_json_next(problems, &iter, &problem, &description);)
            n_cases += check_gptq_problem(without_suffix(*name), damp, problem, description, &n_dequantized);
        calm_json_free(root);
    }
    printf("gptq: %zu cases, the weights of %zu\n", n_cases, n_dequantized);
    ck_assert_uint_gt(n_cases, 0);
    ck_assert_uint_gt(n_dequantized, 0);
}
END_OF_TEST

/* ---- SmoothQuant ---- */

/* Tells whether channel j has inputs and weights that are not all 0. */
static bool is_live(const calm_job *job, size_t j)
{
    double most = 0;
    for (size_t l = 0; l < job->n_linears; l++)
        for (size_t i = 0; i < job->linears[l].out; i++)
            most = fmax(most, fabs((double)job->linears[l].w[i * job->linears[l].in + j]));
    return job->stats->absmax[j] > 0 && most > 0;
}

/* Runs `smooth` on the job of all matrices W0, W1, ... of the set: its scale is s over the geometric mean of live
 * channels. */
static void check_smooth_chain(const calm_safetensors *set, size_t in, double alpha, const float *absmax,
                               const float *s)
{
    calm_linear linears[16];
    calm_stats stats = {.rows = 1, .absmax = absmax};
    calm_job job = {.name = "smooth", .linears = linears, .stats = &stats, .can_absorb = true};
    calm_algorithm *algorithm;
    calm_qjob qjob;
    for (; job.n_linears < 16; job.n_linears++) {
        const char *name = test_format("W%zu", job.n_linears);
        const calm_tensor *w = calm_safetensors_find(set, name);
        if (!w)
            break;
        linears[job.n_linears] = (calm_linear){name, w->shape[0], in, floats(set, name, w->n_elements), false};
    }
    ck_assert_uint_gt(job.n_linears, 0);
    ck_ok(calm_scheme_parse(ctx, "w8a16", &job.scheme));
    ck_ok(calm_algorithm_parse(ctx, test_format("smooth(alpha=%.17g)+absmax+nearest", alpha), &algorithm));
    ck_ok(calm_algorithm_run(ctx, algorithm, &job, &qjob));
    double logs = 0, n_live = 0;
    for (size_t j = 0; j < in; j++)
        if (is_live(&job, j)) {
            logs += log((double)s[j]);
            n_live++;
        }
    for (size_t j = 0; j < in; j++)
        ck_near(qjob.in_scale[j], is_live(&job, j) ? s[j] / exp(logs / n_live) : 1, 2e-6 * (double)qjob.in_scale[j]);
}

static void check_smooth_set(const calm_safetensors *set, const calm_json *alphas)
{
    size_t in = must_find(set, "absmax_x")->n_elements;
    const float *absmax = floats(set, "absmax_x", in), *w_max = floats(set, "max_w", in);
    double *s;
    ck_ok(CALM_NEW(ctx, ctx->out, s, in));
    ck_assert_uint_gt(calm_json_size(alphas), 0);
    for (size_t a = 0; a < calm_json_size(alphas); a++) {
        double alpha = calm_json_number(calm_json_at(alphas, a), -1);
        const float *expected = floats(set, test_format("alpha_%g.s", alpha), in);
        calm_smooth_scale(alpha, in, absmax, w_max, s);
        for (size_t j = 0; j < in; j++)
            ck_near(s[j], expected[j], 1e-6 * expected[j]);
        check_smooth_chain(set, in, alpha, absmax, expected);
    }
}

TEST(smoothquant_scales)
{
    size_t n_sets = 0;
    if (!fixtures_root())
        return;
    for (char **name = fixture_entries("numerics", ".json"); *name; name++) {
        calm_json *root = read_json("numerics", *name);
        const calm_json *alphas = calm_json_get(root, "alphas");
        if (alphas) {
            calm_safetensors *set = open_numerics(test_format("%s.safetensors", without_suffix(*name)));
            check_smooth_set(set, alphas);
            calm_safetensors_close(set);
            n_sets++;
        }
        calm_json_free(root);
    }
    ck_assert_uint_gt(n_sets, 0);
}
END_OF_TEST

/* ---- float formats ---- */

static void check_formats(const calm_tensor *f32, const calm_tensor *bf16, const calm_tensor *f16)
{
    const calm_scheme bf16_scales = {.bits = 4, .scale_dtype = CALM_BF16};
    size_t n_in_both = 0;
    ck_assert_uint_eq(bf16->n_elements, f32->n_elements);
    ck_assert_uint_eq(f16->n_elements, f32->n_elements);
    for (size_t i = 0; i < f32->n_elements; i++) {
        float value;
        uint16_t as_bf16, as_f16;
        memcpy(&value, f32->data + 4 * i, 4);
        memcpy(&as_bf16, bf16->data + 2 * i, 2);
        memcpy(&as_f16, f16->data + 2 * i, 2);
        ck_assert_msg(calm_f32_to_bf16(value) == as_bf16, "bf16 of %a", value);
        ck_assert_msg(calm_f32_to_f16(value) == as_f16, "f16 of %a", value);
        if (fabsf(value) >= 0x1p-17f && fabsf(calm_bf16_to_f32(as_bf16)) <= 65280) {
            ck_assert(calm_scale_round(&bf16_scales, 0, value) == calm_bf16_to_f32(as_bf16));
            n_in_both++;
        }
    }
    ck_assert_uint_gt(n_in_both, 0);
}

TEST(float_formats)
{
    size_t n_sets = 0;
    if (!fixtures_root())
        return;
    for (char **name = fixture_entries("numerics", ".safetensors"); *name; name++) {
        calm_safetensors *set = open_numerics(*name);
        if (calm_safetensors_find(set, "f32") && calm_safetensors_find(set, "bf16")) {
            check_formats(must_find(set, "f32"), must_find(set, "bf16"), must_find(set, "f16"));
            n_sets++;
        }
        calm_safetensors_close(set);
    }
    ck_assert_uint_gt(n_sets, 0);
}
END_OF_TEST

/* ---- packed words ---- */

/* Reads a matrix of small integers. */
static uint8_t *codes_of(const calm_json *rows, size_t *n_rows, size_t *n_cols)
{
    uint8_t *codes;
    *n_rows = calm_json_size(rows);
    *n_cols = calm_json_size(calm_json_at(rows, 0));
    ck_ok(CALM_NEW(ctx, ctx->out, codes, *n_rows * *n_cols));
    for (size_t r = 0; r < *n_rows; r++)
        for (size_t c = 0; c < *n_cols; c++)
            codes[r * *n_cols + c] = (uint8_t)calm_json_int(calm_json_at(calm_json_at(rows, r), c), -1);
    return codes;
}

static uint8_t *transposed(const uint8_t *codes, size_t rows, size_t cols, unsigned less, int bits)
{
    uint8_t *turned;
    ck_ok(CALM_NEW(ctx, ctx->out, turned, rows * cols));
    for (size_t i = 0; i < rows * cols; i++)
        turned[i % cols * rows + i / cols] = (uint8_t)((codes[i] - less) & ((1u << bits) - 1));
    return turned;
}

static void check_words(const calm_json *rows, const uint32_t *words, size_t n_rows, size_t n_cols)
{
    ck_assert_uint_eq(calm_json_size(rows), n_rows);
    for (size_t r = 0; r < n_rows; r++) {
        const calm_json *row = calm_json_at(rows, r);
        ck_assert_uint_eq(calm_json_size(row), n_cols);
        for (size_t c = 0; c < n_cols; c++)
            ck_assert_uint_eq(words[r * n_cols + c], strtoul(calm_json_string(calm_json_at(row, c), ""), NULL, 16));
    }
}

/* The arrays that a case may have, and the words that calm packs for each. */
enum { ROWS_CT, ROWS_MLX, ZEROS_CT, COLUMNS, ZEROS_V1, ZEROS_V2, N_ARRAYS };
static const char *const array_names[N_ARRAYS] = {"weight_packed", "weight", "weight_zero_point", "qweight",
                                                  "qzeros_v1", "qzeros_v2"};

static void pack(int array, const calm_json *expected, uint32_t **words, size_t *n_rows, size_t *n_cols)
{
    size_t rows, cols, out, groups;
    const int bits = (int)calm_json_int(calm_json_get(expected, "bits"), 0);
    const uint8_t *codes = codes_of(calm_json_get(expected, "codes"), &rows, &cols);
    const uint8_t *zeros = codes_of(calm_json_get(expected, "zeros"), &out, &groups);
    ck_ok(CALM_NEW(ctx, ctx->out, *words, rows * cols + 1));
    if (array == ROWS_CT || array == ROWS_MLX) {
        calm_pack_rows(codes, rows, cols, bits, *words);
        *n_rows = rows, *n_cols = calm_pack_words(cols, bits);
    } else if (array == ZEROS_CT) {
        calm_pack_columns(zeros, out, groups, bits, *words);
        *n_rows = calm_pack_words(out, bits), *n_cols = groups;
    } else if (array == COLUMNS) {
        calm_pack_columns(transposed(codes, rows, cols, 0, bits), cols, rows, bits, *words);
        *n_rows = calm_pack_words(cols, bits), *n_cols = rows;
    } else {
        calm_pack_rows(transposed(zeros, out, groups, array == ZEROS_V1, bits), groups, out, bits, *words);
        *n_rows = groups, *n_cols = calm_pack_words(out, bits);
    }
}

/* Checks every packed array that the case has. */
static void check_packing_case(const calm_json *expected, size_t checked[N_ARRAYS])
{
    for (int array = 0; array < N_ARRAYS; array++) {
        const calm_json *rows = calm_json_get(expected, array_names[array]);
        uint32_t *words;
        size_t n_rows, n_cols;
        if (!rows)
            continue;
        pack(array, expected, &words, &n_rows, &n_cols);
        check_words(rows, words, n_rows, n_cols);
        checked[array]++;
    }
}

TEST(packed_words)
{
    size_t checked[N_ARRAYS] = {0};
    if (!fixtures_root())
        return;
    for (char **name = fixture_entries("packing", ".json"); *name; name++) {
        calm_json *root = read_json("packing", *name);
        const char *list;
        const calm_json *cases;
        for (void *iter = NULL; calm_json_next(root, &iter, &list, &cases);)
            for (size_t i = 0; calm_json_typeof(cases) == CALM_JSON_ARRAY && i < calm_json_size(cases); i++)
                check_packing_case(calm_json_at(cases, i), checked);
        calm_json_free(root);
    }
    for (int array = 0; array < N_ARRAYS; array++)
        ck_assert_msg(checked[array] > 0, "no case has %s", array_names[array]);
}
END_OF_TEST

int main(void)
{
    return run_tests("quant_fixtures", (const TTest *[]){gptq_codes_are_equal, smoothquant_scales, float_formats,
                                                         packed_words, NULL});
}
