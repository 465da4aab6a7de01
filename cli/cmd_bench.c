/* calm bench: compares the hot loops with the rates of this machine and its OpenBLAS, as ratios within one run;
 * quantize, kernels, code, scaling and cluster are in bench_NAME.c. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench_backward.h"
#include "cli/bench_cluster.h"
#include "cli/bench_code.h"
#include "cli/bench_kernels.h"
#include "cli/bench_quantize.h"
#include "cli/bench_scaling.h"
#include "cli/bench_timing.h"
#include "cli/command.h"
#include "cli/kernels.h"
#include "cli/print.h"
#include "ptq/arch/arch.h"
#include "ptq/arch/kind.h"
#include "ptq/base/rng.h"
#include "ptq/base/scope.h"
#include "ptq/base/threads.h"
#include "ptq/calib/gram.h"
#include "ptq/layers/block_pass.h"
#include "ptq/recipe/resolve.h"
#include "ptq/recipe/shipped.h"
#include "ptq/state/environment.h"
#include "ptq/tensor/bf16_product.h"
#include "ptq/tensor/linalg.h"

typedef struct options {
    calm_common common;
    calm_recipe_spec spec;
    const char *recipe_file;
    calm_bench_cluster cluster;
    const char *kind, *input;
    long long tokens, hidden, inner, heads, kv_heads, head_dim, repeats;
    bool json;
} options;

static const calm_option table[] = {
    CALM_OPT("tokens", tokens, INT, "tokens per window", .fallback = "2048", .min = 1, .max = 1 << 16, .metavar = "N",
             .basic = true),
    CALM_OPT("hidden", hidden, INT, "hidden size (defaults: Qwen3-0.6B); inputs of quantize", .fallback = "1024",
             .min = 2, .max = 1 << 15, .metavar = "N", .basic = true),
    CALM_OPT("inner", inner, INT, "width of the MLP; outputs of quantize", .fallback = "3072", .min = 1, .max = 1 << 16,
             .metavar = "N", .basic = true),
    CALM_OPT("heads", heads, INT, "query heads", .fallback = "16", .min = 1, .max = 1024, .metavar = "N"),
    CALM_OPT("kv-heads", kv_heads, INT, "key/value heads", .fallback = "8", .min = 1, .max = 1024, .metavar = "N"),
    CALM_OPT("head-dim", head_dim, INT, "width of a head", .fallback = "128", .min = 2, .max = 1024, .metavar = "N"),
    CALM_OPT("kind", kind, STRING, "the mixing sublayer of the block: attention, delta (with --kv-heads heads for "
             "keys and --heads for values), conv", .fallback = "attention", .metavar = "NAME"),
    CALM_OPT("repeats", repeats, INT, "largest number of measured runs; after 10 s three runs are enough",
             .fallback = "10", .min = CALM_BENCH_RUNS, .max = 1000, .metavar = "N", .basic = true),
    CALM_OPT("input", input, STRING, "code: a safetensors file, or a folder of such files (default: --hidden x "
             "--inner Gaussian numbers)", .metavar = "FILE"),
    CALM_OPT("ranks", cluster.ranks, NUMBERS, "cluster: numbers of ranks (default: 1, 2, 4, ... 256)",
             .min = 1, .max = CALM_BENCH_RANKS_MOST, .metavar = "LIST", .basic = true),
    CALM_OPT("bandwidth", cluster.bandwidth, DOUBLE, "cluster: Gbit/s between machines, each way", .min = 0,
             .max = 1e6, .metavar = "N"),
    CALM_OPT("latency", cluster.latency, DOUBLE, "cluster: microseconds between machines", .fallback = "50",
             .min = 0, .max = 1e9, .metavar = "N"),
    CALM_OPT("ranks-per-node", cluster.per_node, INT, "cluster: ranks per machine, which share its cores and its "
             "connection", .fallback = "1", .min = 1, .max = 4096, .metavar = "N"),
    CALM_OPT("cores-per-node", cluster.cores, INT, "cluster: cores per machine; 0 = enough for the threads of its "
             "ranks", .fallback = "0", .min = 0, .max = 65536, .metavar = "N"),
    CALM_OPT("rate", cluster.rate, DOUBLE, "cluster: GFLOP/s of a rank's float products on all its threads; 0 = the "
             "rate of one thread here, for each thread; other rates change in proportion", .fallback = "0", .min = 0,
             .max = 1e9, .metavar = "N"),
    CALM_OPT("seconds", cluster.seconds, DOUBLE, "cluster: measured time of the run on one rank, instead of the "
             "forecast's; the shares of its steps stay; 0 = unknown", .fallback = "0",
             .min = 0, .max = 1e9, .metavar = "N"),
    CALM_OPT("recipe", recipe_file, STRING, "cluster: recipe with values for all options not given here: a file, or "
             "the name of a shipped recipe", .metavar = "FILE"),
    CALM_OPT("json", json, BOOL, "print the figures as JSON", .basic = true),
    CALM_OPT_COMMON,
    {0},
};

/* A block of random weights, and one window of input per worker. */
typedef struct bench {
    calm_config config;
    calm_block block;
    calm_rope rope;
    size_t tokens, n;       /* tokens per window, number of workers */
    float *x, *scratch;     /* [n, tokens, hidden], [n, tokens, inner] */
    const float *a;         /* [inner, hidden] for sgemm */
    double *gram;           /* [hidden, hidden] */
} bench;

/* Draws values between middle - width / 2 and middle + width / 2. */
static calm_status random_values(calm_ctx *ctx, size_t n, double middle, double width, uint64_t stream, float **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, n));
    for (size_t i = 0; i < n; i++)
        (*out)[i] = (float)(middle + width * (calm_rng_uniform(7, stream, i) - 0.5));
    return CALM_OK;
}

/* Returns a family whose blocks have this kind of mixer, for its tensor names. */
static const calm_arch *arch_of(const calm_kind *mixer)
{
    static const char *const classes[] = {"Qwen3ForCausalLM", "Qwen3_5ForCausalLM", "Lfm2ForCausalLM"};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const calm_arch *arch = calm_arch_find(classes[i], NULL);
        for (calm_role role = 0; role < CALM_N_ROLES; role++)
            if (arch->names->role[role] && calm_role_job(role) == mixer->jobs[0].job)
                return arch;
    }
    return NULL;
}

/* Sets the config's kinds to the kind that --kind names. */
static calm_status choose_mixer(calm_ctx *ctx, const options *o, calm_config *config)
{
    size_t n;
    const calm_kind *const *kinds = calm_kinds(&n);
    config->kind[CALM_SUBLAYER_MLP] = calm_kind_dense(config, CALM_SUBLAYER_MLP);
    for (size_t i = 0; i < n && !config->arch; i++)
        if (kinds[i]->slot == CALM_SUBLAYER_ATTENTION && strcmp(kinds[i]->name, o->kind) == 0) {
            config->kind[CALM_SUBLAYER_ATTENTION] = kinds[i];
            config->arch = arch_of(kinds[i]);
        }
    config->varied = true;
    if (!config->arch)
        return calm_fail(ctx, CALM_EARG, "calm bench: --kind %s: expected attention, delta or conv", o->kind);
    config->delta = (calm_delta_shape){config->n_kv, config->n_heads, config->head_dim, config->head_dim};
    config->conv_width = 4;
    return CALM_OK;
}

/* Makes norms and other tensors of the mixer that are no linears. */
static calm_status new_plains(calm_ctx *ctx, bench *b)
{
    const calm_kind *mixer = b->config.kind[CALM_SUBLAYER_ATTENTION];
    for (size_t i = 0; i < mixer->n_plains; i++) {
        size_t shape[CALM_PLAIN_DIMS], all = 1;
        int n_dims;
        float *values;
        const calm_plain plain = mixer->plains[i].plain;
        if (!calm_plain_shape(&b->config, mixer, plain, shape, &n_dims))
            continue;
        for (int d = 0; d < n_dims; d++)
            all *= shape[d];
        CALM_TRY(random_values(ctx, all, n_dims == 1 ? 1 : 0, 0.5, 100 + plain, &values));
        b->block.plain[plain] = (calm_norm){CALM_NORM_RMS, 1e-6f, all, values, NULL};
    }
    return CALM_OK;
}

/* The first linear of a sublayer. */
static calm_role first_role(const calm_config *config, calm_sublayer slot)
{
    calm_role role = 0;
    while (calm_role_job(role) != calm_slot_first_job(config, slot))
        role++;
    return role;
}

static calm_status set_up(calm_ctx *ctx, const options *o, bench *b)
{
    const size_t hidden = (size_t)o->hidden, d = (size_t)o->head_dim;
    float *norm, *weights;
    *b = (bench){.tokens = (size_t)o->tokens, .n = (size_t)ctx->n_threads};
    b->config = (calm_config){.qk_norm = CALM_QK_NORM_HEAD,
                              .hidden = hidden,
                              .inner = (size_t)o->inner,
                              .n_blocks = 1,
                              .n_heads = (size_t)o->heads,
                              .n_kv = (size_t)o->kv_heads,
                              .head_dim = d,
                              .norm_eps = 1e-6f,
                              .attention_scale = (float)(1 / sqrt((double)d)),
                              .rope = {{.theta = 1e6, .rotary = d, .factor = 1, .m = 1}}};
    if (o->heads % o->kv_heads || o->head_dim % 2)
        return calm_fail(ctx, CALM_EARG, "calm bench: --heads must be a multiple of --kv-heads, --head-dim even");
    CALM_TRY(choose_mixer(ctx, o, &b->config));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->config.window, 1));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->config.local_rope, 1));
    b->block = (calm_block){.config = &b->config};
    for (calm_role role = 0; role < CALM_N_ROLES; role++) {
        calm_weight *weight = &b->block.weight[role];
        if (!calm_has_role(&b->config, role))
            continue;
        *weight = (calm_weight){.name = b->config.arch->names->role[role]};
        calm_role_shape(&b->config, role, CALM_NO_EXPERT, &weight->out, &weight->in);
        CALM_TRY(random_values(ctx, weight->out * weight->in, 0, 0.1, role, &weights));
        weight->w = weights;
    }
    CALM_TRY(random_values(ctx, hidden, 1, 0, 0, &norm));
    for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
        b->block.norm[s][CALM_NORM_IN] = (calm_norm){CALM_NORM_RMS, 1e-6f, hidden, norm, NULL};
        b->block.norm[s][CALM_NORM_OUT].width = b->block.norm[s][CALM_NORM_RESIDUAL].width = hidden;
    }
    CALM_TRY(new_plains(ctx, b));
    CALM_TRY(random_values(ctx, b->n * b->tokens * b->config.hidden, 0, 2.0, 99, &b->x));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->gram, hidden * hidden));
    CALM_TRY(CALM_NEW(ctx, ctx->out, b->scratch, b->n * b->tokens * b->config.inner));
    b->a = b->block.weight[first_role(&b->config, CALM_SUBLAYER_MLP)].w;
    return calm_rope_init(ctx, &b->config, b->tokens, &b->rope);
}

/* ---- what is timed: one task per worker ---- */

static calm_status run_forward(calm_ctx *ctx, size_t index, void *user)
{
    const bench *b = user;
    const calm_span span = {.window = index, .n_tokens = b->tokens};
    return calm_block_run(ctx, &b->block, &b->rope, b->x + index * b->tokens * b->config.hidden, &span, NULL);
}

static void run_sgemm(size_t index, void *user)
{
    const bench *b = user;
    calm_sgemm_nt(b->tokens, b->config.inner, b->config.hidden, 1.0f, b->x + index * b->tokens * b->config.hidden,
                  b->config.hidden, b->a, b->config.hidden, 0.0f, b->scratch + index * b->tokens * b->config.inner,
                  b->config.inner);
}

static double forward_flops(const bench *b)
{
    return (double)b->n * calm_block_window_operations(&b->block, b->tokens);
}

/* Only the upper triangle is computed. */
static double gram_flops(const bench *b)
{
    return (double)(b->n * b->tokens) * (double)b->config.hidden * (double)(b->config.hidden + 1);
}

static double sgemm_flops(const bench *b)
{
    return 2.0 * (double)b->tokens * (double)b->config.inner * (double)b->config.hidden * (double)b->n;
}

/* ---- items ---- */

static calm_status forward_all(calm_ctx *ctx, void *user)
{
    bench *b = user;
    return calm_parallel_for(ctx, b->n, run_forward, b);
}

static calm_status sgemm_all(calm_ctx *ctx, void *user)
{
    bench *b = user;
    calm_parallel_each(ctx, b->n, run_sgemm, b);
    return CALM_OK;
}

static calm_status gram_all(calm_ctx *ctx, void *user)
{
    const bench *b = user;
    const size_t rows = b->n * b->tokens, begin[2] = {0, rows};
    const calm_gram_job job = {b->gram, b->x, rows, b->config.hidden, begin, 1, NULL};
    return calm_gram_add(ctx, &job, 1);
}

/* Runs one window through the block and adds it to a Gram matrix. */
static calm_status one_window(calm_ctx *ctx, void *user)
{
    CALM_TRY(forward_all(ctx, user));
    return gram_all(ctx, user);
}

static calm_status scaling(calm_ctx *ctx, const options *o, bench *b)
{
    char *what;
    b->n = 1;
    const calm_bench_item work = {
        .name = "scaling", .flops = forward_flops(b) + gram_flops(b), .run = one_window, .user = b};
    CALM_TRY(
        calm_strf(ctx, ctx->out, &what, "one window of %zu tokens through a block, and its Gram matrix", b->tokens));
    return calm_bench_scaling_run(ctx, what, &work, (size_t)o->repeats, o->json);
}

enum { SUBJECT, SGEMM, PEAK, N_ITEMS };

static calm_status report(calm_ctx *ctx, const options *o, const calm_bench_item items[N_ITEMS])
{
    const calm_bench_item *subject = &items[SUBJECT], *sgemm = &items[SGEMM], *peak = &items[PEAK];
    const double rate = calm_bench_rate(subject), of_sgemm = calm_bench_rate(sgemm), of_peak = calm_bench_rate(peak);
    calm_json *environment;
    if (!o->json) {
        printf("%s of %lld tokens, %d threads: median of %zu runs\n", subject->name, o->tokens, ctx->n_threads,
               subject->timing.n);
        calm_bench_print(subject, sgemm, peak);
        calm_bench_print(sgemm, NULL, peak);
        calm_bench_print(peak, NULL, NULL);
        return calm_bench_print_machine(ctx);
    }
    CALM_TRY(calm_environment_json(ctx, &environment));
    return calm_print_json(ctx, CALM_OBJECT(
        CALM_KV("subject", subject->name), CALM_KV("gflops", rate * 1e-9), CALM_KV("sgemm_gflops", of_sgemm * 1e-9),
        CALM_KV("peak_gflops", of_peak * 1e-9), CALM_KV("ratio", rate / of_sgemm),
        CALM_KV("share_of_peak", rate / of_peak), CALM_KV("sgemm_share_of_peak", of_sgemm / of_peak),
        CALM_KV("spread", calm_bench_spreads(items, N_ITEMS)), CALM_KV("runs", subject->timing.n),
        CALM_KV("threads", (int64_t)ctx->n_threads), CALM_KV("tokens", o->tokens),
        CALM_KV("environment", environment)));
}

static calm_status cluster(calm_ctx *ctx, const options *o)
{
    calm_recipe_spec spec = o->spec;
    calm_bench_cluster asked = o->cluster;
    if (o->recipe_file)
        CALM_TRY(calm_recipe_file_apply(ctx, o->recipe_file, &spec));
    CALM_TRY(calm_kernels_pin(ctx, spec.kernels));
    asked.spec = &spec;
    asked.json = o->json;
    return calm_bench_cluster_run(ctx, &asked);
}

static calm_status run(calm_ctx *ctx, const void *opts)
{
    const options *o = opts;
    const char *subject = o->common.args.n ? o->common.args.of[0] : "forward";
    const bool forward = strcmp(subject, "forward") == 0;
    bench b;
    if (strcmp(subject, "cluster") == 0)
        return cluster(ctx, o);
    if (o->spec.model || o->recipe_file || o->cluster.bandwidth > 0)
        return calm_fail(ctx, CALM_EARG, "calm bench %s: only calm bench cluster takes a model, a recipe and a "
                                         "bandwidth", subject);
    CALM_TRY(calm_kernels_pin(ctx, NULL));
    if (strcmp(subject, "quantize") == 0) {
        const calm_bench_quantize quantize = {(size_t)o->inner, (size_t)o->hidden, (size_t)o->repeats, o->json};
        return calm_bench_quantize_run(ctx, &quantize);
    }
    if (strcmp(subject, "kernels") == 0) {
        const calm_bench_kernels kernels = {(size_t)o->tokens, (size_t)o->hidden, (size_t)o->inner,
                                            (size_t)o->repeats, o->json};
        return calm_bench_kernels_run(ctx, &kernels);
    }
    if (strcmp(subject, "code") == 0) {
        const calm_bench_exponents code = {o->input, (size_t)(o->hidden * o->inner), (size_t)o->repeats, o->json};
        return calm_bench_code_run(ctx, &code);
    }
    const bool backward = strcmp(subject, "backward") == 0, scales = strcmp(subject, "scaling") == 0;
    if (!forward && !backward && !scales && strcmp(subject, "gram") != 0)
        return calm_fail(ctx, CALM_EARG, "calm bench %s: expected forward, backward, gram, quantize, kernels, "
                                         "code, scaling or cluster",
                         subject);
    const calm_operands operands = (calm_operands)calm_spec_with_dtype(&o->spec).calib_dtype;
    if (backward && operands == CALM_OPERANDS_BF16)
        return calm_fail(ctx, CALM_EARG, "calm bench backward: gradients need f32 or bf16x2; --calib-dtype bf16 is "
                                         "for forward, gram and scaling");
    CALM_TRY(set_up(ctx, o, &b));
    /* With gradients also the peak is that of a step's operands. */
    CALM_SCOPED_OPERANDS(ctx, backward ? calm_bf16_of_steps(operands) : operands);
    if (scales)
        return scaling(ctx, o, &b);
    calm_bench_item items[N_ITEMS] = {
        [SUBJECT] = {.name = subject, .flops = forward ? forward_flops(&b) : gram_flops(&b),
                     .run = forward ? forward_all : gram_all, .user = &b},
        [SGEMM] = {.name = "sgemm", .flops = sgemm_flops(&b), .run = sgemm_all, .user = &b},
        [PEAK] = calm_bench_peak(ctx, false),
    };
    if (backward)
        CALM_TRY(calm_bench_backward(ctx, &b.block, &b.rope, b.x, b.tokens, &items[SUBJECT]));
    CALM_TRY(calm_bench_measure(ctx, items, N_ITEMS, (size_t)o->repeats));
    return report(ctx, o, items);
}

const calm_command calm_cmd_bench = {
    .name = "bench",
    .summary = "how much of the machine's peak the hot loops reach",
    .arguments = "[forward|backward|gram|quantize|kernels|code|scaling|cluster]",
    .description =
        "forward times the forward pass of one transformer block, gram the Gram matrix of its input, with one window "
        "per worker; both also time OpenBLAS's sgemm and the machine's peak, which is a loop of multiply-adds in "
        "registers with the CPU's widest vectors.  With --calib-dtype bf16 the products of forward, gram and scaling "
        "are in bfloat16.  backward times forward and backward pass of that block over one window, on all threads.  "
        "quantize times GPTQ on one linear on one thread, compares it with the time that the rates of Cholesky and "
        "dgemm allow, and times the other algorithms.  kernels times linears of --hidden and --inner in integer "
        "arithmetic (W8A8, W4A8) on up to --tokens rows, next to OpenBLAS's sgemm, oneDNN (if libdnnl is found), and "
        "the peak of the integer instructions (CALM_SIMD chooses them); it does not count the time to quantize the "
        "rows.  code times the lossless code for exponents of bfloat16 and float32 words, which ranks use for hidden "
        "states.  scaling times one window through the block and its Gram matrix on 1, 2, 4, ... and all threads, "
        "and fits the serial share by Amdahl's law.  The measurements take turns in one process after a run to warm "
        "up; the median counts.  If the middle half of the runs spreads over more than 10 % of the median, there is "
        "no figure (null with --json): the machine has other work to do.  cluster forecasts the time of calm "
        "quantize for a model on 1, 2, 4, ... ranks, the memory of each rank and the bytes between them: it "
        "simulates the forecast of calm quantize block by block (docs/cluster.md) and reads only names and shapes of "
        "the weights.  Only cluster takes the options of candidates and calibration, except --tokens and "
        "--calib-dtype.",
    .examples = "  calm bench forward\n  calm bench backward --tokens 512\n"
                "  calm bench gram --hidden 1024 --json\n  calm bench quantize\n  calm bench kernels --tokens 512\n"
                "  calm bench code --input Qwen3-0.6B/model.safetensors\n"
                "  calm bench scaling\n"
                "  calm bench cluster --model Qwen3-8B --bits 4 --threads 32 --rate 1500 --bandwidth 10\n",
    .max_args = 1,
    .spec = CALM_SPEC_SHARED,
    .spec_at = offsetof(options, spec),
    CALM_COMMAND_PARTS,
};
