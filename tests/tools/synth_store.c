#include "tests/tools/synth_store.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ptq/base/file.h"
#include "ptq/base/rng.h"
#include "ptq/base/sha256.h"
#include "store/store.h"

#define COUNT(array) ((long)(sizeof(array) / sizeof *(array)))
#define GUARD_WINDOWS 8
#define TEST_WINDOWS 16
#define WINDOW_TOKENS 511
#define PEAKS 10
#define BINS 256
#define RUNS_OF_CALIBRATION 4

static const struct algorithm {
    const char *name, *chain;
    double factor;    /* factor of the error */
} algorithms[] = {
    {"rtn", "absmax@1()+nearest@1()", 1.0},
    {"gptq", "absmax@1()+gptq@2(order=activation,damp=%g)", 0.52},
    {"gptq-hls", "hls@1(signed=true)+gptq@2(order=activation,damp=%g)", 0.47},
    {"mkq-full", "hls@1(signed=true)+gptq@2(order=activation,damp=%g)+mkq@1()", 0.45},
    {"awq", "awq@1()+mse@1()+nearest@1()", 0.71},
    {"mkq", "hls@1()+nearest@1()", 0.8},
    {"smoothquant", "smooth@1(alpha=0.5)+absmax@1()+nearest@1()", 1.1},
    {"smoothquant-gptq", "smooth@1(alpha=0.5)+hls@1(signed=true)+gptq@2(order=activation,damp=%g)", 0.6},
    {"mse", "mse@1()+nearest@1()", 0.9},
    {"cd", "absmax@1()+cd@1()", 0.55},
};

static const struct scheme {
    const char *name;
    double bits, step;    /* bits per weight, with scales and zeros; step of the codes */
} schemes[] = {{"w4a16_g128", 4.15625, 4}, {"w3a16_g128", 3.15625, 3}, {"w2a16_g64", 2.3125, 2}, {"w8a16", 8.01, 8}};

/* The first ten are the most frequent in quantize runs. */
static const struct metric {
    const char *unit, *name;
    double factor, power, spread;    /* of the relative squared error e: factor * e^power * exp(spread * normal) */
} metrics[] = {
    {"job", "cka_token", 0.6, 1, 0.1},        {"job", "rel_mse", 1, 1, 0},
    {"job", "cka", 0.5, 1, 0.15},             {"job", "log_rel_mse", 1, 1, 0.02},
    {"job", "probe_kl", 0.05, 1, 0.3},        {"sublayer", "cka_token", 0.8, 1, 0.1},
    {"block", "cka_token", 0.2, 1, 0.15},     {"block", "rel_mse", 0.3, 1, 0.05},
    {"job", "cosine", 0.5, 1, 0.03},          {"job", "rel_mae", 0.8, 0.5, 0.02},
    {"job", "cka_debiased", 0.51, 1, 0.15},   {"job", "cka_drop", 0.55, 1, 0.12},
    {"sublayer", "rel_mse", 0.9, 1, 0.03},    {"sublayer", "log_rel_mse", 0.9, 1, 0.03},
    {"sublayer", "cka", 0.7, 1, 0.12},        {"block", "cka", 0.2, 1, 0.12},
    {"block", "log_rel_mse", 0.3, 1, 0.03},   {"block", "delta_cka", 0.4, 1, 0.12},
    {"block", "delta_rel_mse", 0.5, 1, 0.05}, {"sublayer", "cosine", 0.4, 1, 0.03},
};

static const struct point {
    const char *name;
    double size;    /* size of the largest value */
} points[] = {{"qkv_in", 12},  {"o_in", 4},     {"attn_out", 8}, {"gate_up_in", 15},
              {"gate", 20},    {"down_in", 90}, {"mlp_out", 60}, {"block_out", 40}};

static const char *const tokens[] = {"the", " of", "\n", ".", " and", "<s>", " in", ","};

_Static_assert(sizeof metrics / sizeof *metrics == SYNTH_STORE_MAX_SCORES, "as many as may be asked for");
_Static_assert(4 * sizeof algorithms / sizeof *algorithms == SYNTH_STORE_MAX_CANDIDATES, "as many as may be asked for");

/* Random quantities, each from a separate stream. */
enum { SIZES = 1, ERRORS, SCORES, SECONDS, PEAKS_AT, WINDOWS, OWN_WINDOWS, ROUTED, FAILURES };

typedef struct maker {
    const synth_store *size;
    calm_store *store;
    long jobs_per_block, n_blocks;
    int64_t *jobs;    /* [size.jobs] of the run's model */
    long run, model, calibration, start, variant;
    long n_schemes, n_algorithms;
    int64_t model_id, calibration_id, run_id;
    double hybrid_kl;
} maker;

static double uniform(const maker *it, int what, uint64_t index)
{
    return calm_rng_uniform((uint64_t)it->size->seed, (uint64_t)what, index);
}

static double normal(const maker *it, int what, uint64_t index)
{
    return calm_rng_normal((uint64_t)it->size->seed, (uint64_t)what, index);
}

/* Makes an invented content hash. */
static calm_status digest(calm_ctx *ctx, const maker *it, const char *what, long a, long b, long c,
                          char out[CALM_SHA256_HEX])
{
    char text[120];
    const int n = snprintf(text, sizeof text, "%s %lld %ld %ld %ld", what, it->size->seed, a, b, c);
    return calm_sha256_bytes(ctx, text, (size_t)n, out);
}

/* ---- what is quantized, and from what ---- */

/* Writes the role of the job at a position of its block, and its full name. */
static void name_job(const maker *it, long block, long position, char role[40], char name[100])
{
    static const char *const dense[] = {"qkv", "o", "gate_up", "down"};
    const long kind = position < 2 ? position : 2 + position % 2;
    if (it->size->experts && position >= 2)
        snprintf(role, 40, "experts.%ld.%s", (position - 2) / 2, dense[kind]);
    else
        snprintf(role, 40, "%s", dense[kind]);
    snprintf(name, 100, "model.layers.%ld.%s.%s", block, kind < 2 ? "self_attn" : "mlp", role);
}

static calm_status put_job(calm_ctx *ctx, maker *it, int64_t block_id, long block, long position)
{
    static const char *const inputs[] = {"qkv_in", "o_in", "gate_up_in", "down_in"};
    static const int64_t out[] = {1536, 1024, 6144, 1024}, in[] = {1024, 1024, 1024, 3072};
    const long kind = position < 2 ? position : 2 + position % 2;
    const bool expert = it->size->experts && position >= 2;
    char role[40], name[100], hook[80], weights[CALM_SHA256_HEX];
    name_job(it, block, position, role, name);
    snprintf(hook, sizeof hook, "model.layers.%ld.%s", block, inputs[kind]);
    CALM_TRY(digest(ctx, it, "weights", it->model, block, position, weights));
    const calm_store_job job = {.block_id = block_id, .role = role, .position = position, .name = name,
                                .sublayer = kind < 2 ? "attention" : "mlp", .linears = name, .out = out[kind],
                                .in = in[kind], .weights_digest = weights, .input_hook = hook};
    const long number = block * it->jobs_per_block + position;
    CALM_TRY(calm_store_job_id(ctx, it->store, &job, &it->jobs[number]));
    if (!expert)
        return CALM_OK;
    const double share = uniform(it, ROUTED, (uint64_t)(it->calibration * 1000003 + number / 2 * 2));
    return calm_store_expert_put(ctx, it->store, it->jobs[number], it->calibration_id,
                                 (int64_t)(16384 * share * share));
}

static calm_status put_model(calm_ctx *ctx, maker *it)
{
    char key[CALM_SHA256_HEX], name[40];
    CALM_TRY(digest(ctx, it, "model", it->model, 0, 0, key));
    snprintf(name, sizeof name, "model-%ld", it->model);
    const calm_store_model model = {.digest = key, .name = name, .path = "/models/made-up",
                                    .architecture = it->size->experts ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM",
                                    .dtype = "bfloat16", .n_params = 15728640 * it->n_blocks, .n_blocks = it->n_blocks,
                                    .hidden_size = 1024, .vocab_size = 151936, .bytes = 31457280 * it->n_blocks};
    return calm_store_model_id(ctx, it->store, &model, &it->model_id);
}

static calm_status put_calibration(calm_ctx *ctx, maker *it)
{
    char key[CALM_SHA256_HEX];
    CALM_TRY(digest(ctx, it, "calibration", it->model, it->calibration, 0, key));
    const calm_store_calibration calibration = {.key = key,
                                                .text_name = "bundled wikitext2-valid.txt",
                                                .text_digest = key,
                                                .tokens_digest = key,
                                                .n_windows = 128,
                                                .window_tokens = 512,
                                                .n_tokens = 65536,
                                                .seed = it->calibration ? it->calibration : -1,
                                                .score_windows = 8};
    return calm_store_calibration_id(ctx, it->store, &calibration, &it->calibration_id);
}

static calm_status put_blocks(calm_ctx *ctx, maker *it)
{
    char name[40];
    for (long b = 0; b < it->n_blocks; b++) {
        int64_t id;
        snprintf(name, sizeof name, "model.layers.%ld", b);
        CALM_TRY(calm_store_block_id(ctx, it->store, &(calm_store_block){it->model_id, b, name, "decoder"}, &id));
        for (long j = 0; j < it->jobs_per_block && b * it->jobs_per_block + j < it->size->jobs; j++)
            CALM_TRY(put_job(ctx, it, id, b, j));
    }
    return CALM_OK;
}

/* ---- activations ---- */

static calm_status put_hook(calm_ctx *ctx, maker *it, const char *hook, const char *point, long block, double size)
{
    uint64_t histogram[BINS];
    calm_store_peak peaks[PEAKS];
    const uint64_t base = (uint64_t)((it->model * 1009 + it->calibration) * 10000019 + block * 101
                                     + (long)strlen(hook) * 7)
                          + (uint64_t)(size * 1000);
    /* a bell over 8 decades; its largest bins have a million values, as real ones do */
    for (long i = 0; i < BINS; i++)
        histogram[i] = 1 + (uint64_t)(1048576 * exp(-0.0008 * (double)((i - 160) * (i - 160))));
    for (long i = 0; i < PEAKS; i++) {
        const double at = uniform(it, PEAKS_AT, base + (uint64_t)i);
        peaks[i] = (calm_store_peak){(i % 2 ? -1 : 1) * size * exp(-0.1 * (double)i), (int64_t)(128 * at),
                                     (int64_t)(512 * fmod(at * 97, 1)), (int64_t)(1024 * fmod(at * 13, 1)),
                                     tokens[(long)(at * 1000) % COUNT(tokens)]};
    }
    const calm_store_activation row = {
        .model_id = it->model_id, .calibration_id = it->calibration_id, .hook = hook, .point = point, .block = block,
        .channels = 1024, .count = 67108864, .zeros = 12, .n_tokens = 65536, .n_massive = size > 100, .mean = 0.01,
        .std = 1.1, .mean_abs = 0.8, .rms = 1.1, .min = peaks[1].value, .max = peaks[0].value, .max_abs = size,
        .q25 = 0.25, .q50 = 0.6, .q75 = 1.1, .q90 = 1.8, .q99 = 3.1, .q999 = 5.2, .peak_median = size / 3,
        .ratio_median = size / 2, .ratio_max = size / 0.6, .ratio_mean = size / 1.9, .ratio_std = 0.4,
        .crest_median = size / 4, .crest_max = size / 1.1, .histogram = histogram, .n_bins = BINS,
        .peaks = peaks, .n_peaks = PEAKS};
    return calm_store_activation_put(ctx, it->store, &row);
}

static calm_status put_activations(calm_ctx *ctx, maker *it)
{
    char hook[80];
    bool there;
    CALM_TRY(calm_store_activation_exists(ctx, it->store, it->model_id, it->calibration_id, NULL, &there));
    if (there)
        return CALM_OK;
    CALM_TRY(put_hook(ctx, it, "model.embed", "embed", -1, 1.5));
    for (long b = 0; b < it->n_blocks; b++)
        for (long p = 0; p < COUNT(points); p++) {
            /* Massive activations begin with the output of block 1. */
            const double grown = b >= 1 && strcmp(points[p].name, "block_out") == 0 ? 25 : 1;
            const double size = points[p].size * grown * (1 + uniform(it, SIZES, (uint64_t)(b * 16 + p)));
            snprintf(hook, sizeof hook, "model.layers.%ld.%s", b, points[p].name);
            CALM_TRY(put_hook(ctx, it, hook, points[p].name, b, size));
        }
    return put_hook(ctx, it, "model.final_norm", "final_norm", -1, 30);
}

/* ---- candidates ---- */

/* Returns the number of a candidate in the whole store, which selects its random values. */
static uint64_t number_of(const maker *it, long job, long entry)
{
    return ((uint64_t)it->run * (uint64_t)it->size->jobs + (uint64_t)job) * SYNTH_STORE_MAX_CANDIDATES
           + (uint64_t)entry;
}

/* Returns the relative squared error of an algorithm at a scheme on a job; all have the job's factor in common. */
static double error_of(const maker *it, long job, long entry)
{
    const struct scheme *scheme = &schemes[(it->start + entry / it->n_algorithms) % COUNT(schemes)];
    const double harder = exp(0.6 * normal(it, SIZES, (uint64_t)(1000 + it->model * 1000003 + job)));
    const double luck = exp(0.25 * normal(it, ERRORS, number_of(it, job, entry)));
    return harder * luck * algorithms[entry % it->n_algorithms].factor * 3 * pow(4, -scheme->step);
}

static double score_of(const maker *it, long job, long entry, long metric)
{
    const struct metric *m = &metrics[metric];
    const uint64_t at = number_of(it, job, entry) * SYNTH_STORE_MAX_SCORES + (uint64_t)metric;
    const double value = m->factor * pow(error_of(it, job, entry), m->power) * exp(m->spread * normal(it, SCORES, at));
    return strstr(m->name, "log_rel_mse") ? log(value) : value;
}

/* Does a candidate fail?  One in 20 of those that need the Hessian does; round to nearest never fails, so every job
 * has a candidate. */
static bool fails(const maker *it, long job, long entry)
{
    return strchr(algorithms[entry % it->n_algorithms].chain, '%') &&
           uniform(it, FAILURES, number_of(it, job, entry)) < 0.05;
}

/* Writes the chain with its damping. */
static void write_chain(const char *form, double damp, char out[160])
{
    const size_t before = strcspn(form, "%");
    const char *rest = form[before] ? form + before + 2 : "";
    char number[20] = "";
    if (form[before])
        snprintf(number, sizeof number, "%g", damp);
    snprintf(out, 160, "%.80s", form);
    snprintf(out + before, 160 - before, "%s%.40s", number, rest);
}

static calm_status put_candidate(calm_ctx *ctx, maker *it, long job, long entry, int64_t *id)
{
    const struct algorithm *algorithm = &algorithms[entry % it->n_algorithms];
    const struct scheme *scheme = &schemes[(it->start + entry / it->n_algorithms) % COUNT(schemes)];
    const bool failed = fails(it, job, entry), damped = strchr(algorithm->chain, '%') != NULL;
    const double damp = 0.01 * (double)(it->variant + 1);
    calm_store_score scores[SYNTH_STORE_MAX_SCORES];
    char key[CALM_SHA256_HEX], blob[CALM_SHA256_HEX], chain[160];
    write_chain(algorithm->chain, damp, chain);
    for (long m = 0; m < it->size->scores; m++)
        scores[m] = (calm_store_score){metrics[m].unit, metrics[m].name, score_of(it, job, entry, m)};
    CALM_TRY(digest(ctx, it, "candidate", it->run, job, entry, key));
    CALM_TRY(digest(ctx, it, "blob", it->run, job, entry, blob));
    const calm_store_candidate candidate = {
        .key = key, .job_id = it->jobs[job], .calibration_id = it->calibration_id, .algorithm = algorithm->name,
        .chain = chain, .scheme = scheme->name, .failure = failed ? "gptq: the Hessian is not positive definite" : NULL,
        .blob = failed ? NULL : blob, .blob_bytes = failed ? 0 : (int64_t)(scheme->bits * 196608),
        .bits_per_weight = failed ? NAN : scheme->bits, .damp = damped ? damp : 0,
        .seconds = 0.05 + (damped ? 1.5 : 0.1) * uniform(it, SECONDS, number_of(it, job, entry)), .score_rows = 4096,
        .dropped_rows = 3, .scores = scores, .n_scores = failed ? 0 : (size_t)it->size->scores};
    CALM_TRY(calm_store_candidate_put(ctx, it->store, &candidate, id));
    return calm_store_run_candidate(ctx, it->store, it->run_id, *id);
}

/* Adds candidates and chooses the one with the least first score in the first scheme. */
static calm_status put_job_candidates(calm_ctx *ctx, maker *it, long job)
{
    int64_t ids[SYNTH_STORE_MAX_CANDIDATES];
    long best = 0;
    char role[40], unit[100], reason[100];
    for (long entry = 0; entry < it->size->candidates; entry++) {
        CALM_TRY(put_candidate(ctx, it, job, entry, &ids[entry]));
        if (entry < it->n_algorithms && !fails(it, job, entry) &&
            score_of(it, job, entry, 0) < score_of(it, job, best, 0))
            best = entry;
    }
    const bool advised = job % 4 == 3, smooths = strncmp(algorithms[best].name, "smooth", 6) == 0;
    name_job(it, job / it->jobs_per_block, job % it->jobs_per_block, role, unit);
    snprintf(reason, sizeof reason, "least cka_token of %lld", it->size->candidates);
    return calm_store_choice_put(ctx, it->store,
                                 &(calm_store_choice){it->run_id, it->jobs[job], ids[best], unit, reason,
                                                      advised ? "smooth" : "plain", smooths != advised});
}

/* ---- runs ---- */

/* Returns the KL per token of a window: a window that is hard for one plan is hard for the others too. */
static double window_kl(const maker *it, const char *subject, double kl, long window)
{
    const uint64_t at = (uint64_t)(it->run * TEST_WINDOWS + window);
    const uint64_t own = at * 4096 + strlen(subject) * 128 + (unsigned char)subject[0];
    return kl * (0.85 + 0.2 * uniform(it, WINDOWS, at) + 0.1 * uniform(it, OWN_WINDOWS, own));
}

/* Computes the mean difference from the hybrid over the windows, and its paired standard error. */
static void compare(const maker *it, const char *subject, double kl, long n, calm_store_verdict *out)
{
    double sum = 0, squares = 0;
    for (long i = 0; i < n; i++) {
        const double difference = window_kl(it, subject, kl, i) - window_kl(it, "hybrid", it->hybrid_kl, i);
        sum += difference;
        squares += difference * difference;
    }
    out->delta = sum / (double)n;
    out->delta_se = sqrt((squares / (double)n - out->delta * out->delta) / (double)(n - 1));
}

static calm_status put_evaluation(calm_ctx *ctx, maker *it, const char *role, const char *subject, double kl, long n)
{
    calm_store_window windows[TEST_WINDOWS];
    char key[CALM_SHA256_HEX], what[80];
    double total = 0;
    int64_t id;
    const bool plain = strcmp(subject, "float") == 0, guard = strcmp(role, "guard") == 0;
    for (long i = 0; i < n; i++) {
        const double at = window_kl(it, subject, kl, i);
        windows[i] = (calm_store_window){.tokens = WINDOW_TOKENS, .nll = WINDOW_TOKENS * (2.5 + at),
                                         .kl = plain ? NAN : WINDOW_TOKENS * at,
                                         .top1 = plain ? NAN : floor(WINDOW_TOKENS * (1 - 0.5 * sqrt(at)))};
        total += at;
    }
    snprintf(what, sizeof what, "%s %s", role, subject);
    CALM_TRY(digest(ctx, it, what, it->run, 0, 0, key));
    const double mean = total / (double)n, nll = 2.5 + mean;
    const calm_store_evaluation row = {.key = key, .model_id = it->model_id, .subject = subject,
                                       .text_name = guard ? "bundled wikitext2-valid.txt" : "bundled "
                                               "wikitext2-test.txt",
                                       .text_digest = key, .window_tokens = 512, .tokens = n * WINDOW_TOKENS,
                                       .nll = nll,
                                       .ppl = exp(nll), .kl = plain ? NAN : mean,
                                       .top1 = plain ? NAN : 1 - 0.5 * sqrt(kl), .windows = windows,
                                       .n_windows = (size_t)n};
    CALM_TRY(calm_store_evaluation_put(ctx, it->store, &row, &id));
    calm_store_verdict verdict = {.run_id = it->run_id, .evaluation_id = id, .role = role, .subject = subject,
                                  .delta = NAN, .delta_se = NAN};
    if (guard && strcmp(subject, "hybrid") != 0)
        compare(it, subject, kl, n, &verdict);
    return calm_store_verdict_put(ctx, it->store, &verdict);
}

/* Adds evaluations of the hybrid and of each uniform run. */
static calm_status put_evaluations(calm_ctx *ctx, maker *it)
{
    const double base = 2 * pow(4, -schemes[it->start].step) * (1 + uniform(it, ERRORS, (uint64_t)(~it->run)));
    it->hybrid_kl = 0.43 * base;
    CALM_TRY(put_evaluation(ctx, it, "test", "float", 0, TEST_WINDOWS));
    CALM_TRY(put_evaluation(ctx, it, "test", "hybrid", it->hybrid_kl, TEST_WINDOWS));
    CALM_TRY(put_evaluation(ctx, it, "guard", "hybrid", it->hybrid_kl, GUARD_WINDOWS));
    for (long a = 0; a < it->n_algorithms; a++)
        CALM_TRY(put_evaluation(ctx, it, "guard", algorithms[a].name, algorithms[a].factor * base, GUARD_WINDOWS));
    return CALM_OK;
}

static calm_status put_notes(calm_ctx *ctx, maker *it)
{
    char file[CALM_SHA256_HEX];
    CALM_TRY(digest(ctx, it, "artifact", it->run, 0, 0, file));
    CALM_TRY(calm_store_artifact_put(
        ctx, it->store, &(calm_store_artifact){it->run_id, "out/model.safetensors", "weights", 9000000, file}));
    CALM_TRY(calm_store_environment_put(ctx, it->store, it->run_id, "kernels", "Haswell"));
    return calm_store_gate_put(ctx, it->store,
                               &(calm_store_gate){it->run_id, 0, "kl <= 0.01", it->hybrid_kl, it->hybrid_kl <= 0.01});
}

static calm_status begin_run(calm_ctx *ctx, maker *it)
{
    char key[CALM_SHA256_HEX], command[80], recipe[80];
    CALM_TRY(digest(ctx, it, "run", it->run, 0, 0, key));
    snprintf(command, sizeof command, "calm quantize --model model-%ld --scheme %s", it->model,
             schemes[it->start].name);
    snprintf(recipe, sizeof recipe, "{\"model\":\"model-%ld\",\"scheme\":\"%s\"}", it->model, schemes[it->start].name);
    const calm_store_run run = {.key = key, .model_id = it->model_id, .calibration_id = it->calibration_id,
                                .command = command, .recipe = recipe, .unit = "job", .rule = "token",
                                .metric = "cka_token", .version = "0.1.0", .n_threads = 2};
    return calm_store_run_begin(ctx, it->store, &run, &it->run_id, NULL);
}

static calm_status put_run(calm_ctx *ctx, maker *it)
{
    const long turn = it->run / it->size->models;
    it->model = it->run % it->size->models;
    it->calibration = turn / RUNS_OF_CALIBRATION;
    it->start = turn % COUNT(schemes);
    it->variant = it->n_schemes > 1 ? turn % RUNS_OF_CALIBRATION : 0;
    CALM_TRY(put_model(ctx, it));
    CALM_TRY(put_calibration(ctx, it));
    CALM_TRY(put_blocks(ctx, it));
    CALM_TRY(put_activations(ctx, it));
    CALM_TRY(begin_run(ctx, it));
    for (long job = 0; job < it->size->jobs; job++)
        CALM_TRY(put_job_candidates(ctx, it, job));
    CALM_TRY(put_evaluations(ctx, it));
    CALM_TRY(put_notes(ctx, it));
    const double bits = schemes[it->start].bits;
    return calm_store_run_end(ctx, it->store, it->run_id,
                              &(calm_store_outcome){"finished", "hybrid", "the hybrid is better than every uniform run",
                                                    bits, 31457280 * it->n_blocks,
                                                    (int64_t)(1966080 * bits) * it->n_blocks});
}

static calm_status put_all(calm_ctx *ctx, maker *it)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, it->jobs, (size_t)it->size->jobs));
    for (it->run = 0; it->run < it->size->runs; it->run++) {
        CALM_SCOPED_TRANSACTION(ctx, it->store);
        CALM_TRY(put_run(ctx, it));
        CALM_TRY(calm_store_commit(ctx, it->store));
    }
    return CALM_OK;
}

calm_status synth_store_make(calm_ctx *ctx, const char *path, const synth_store *size)
{
    const calm_store_how how = {.mode = CALM_STORE_WRITE, .command = "make_store"};
    maker it = {.size = size};
    it.jobs_per_block = size->experts ? 2 + 2 * (long)size->experts : 4;
    it.n_blocks = ((long)size->jobs + it.jobs_per_block - 1) / it.jobs_per_block;
    it.n_schemes = ((long)size->candidates + COUNT(algorithms) - 1) / COUNT(algorithms);
    it.n_algorithms = ((long)size->candidates + it.n_schemes - 1) / it.n_schemes;
    if (calm_path_exists(path))
        return calm_fail(ctx, CALM_EARG, "%s: is there already", path);
    CALM_TRY(calm_store_open(ctx, path, &how, &it.store));
    put_all(ctx, &it);
    calm_store_close(it.store);
    return ctx->status;
}
