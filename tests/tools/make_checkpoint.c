/* make_checkpoint: writes a synthetic checkpoint with random weights in the shape of a known model. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/base/threads.h"
#include "tests/tools/synth.h"
#include "tests/tools/tool.h"

typedef struct arguments {
    const char *shape, *output, *shard_size, *tokenizer, *factor;
    long long blocks, hidden, experts, vocab, seed, threads;
    int dtype, spelling;
    bool hollow;
} arguments;

static const calm_option table[] = {
    {"shape", "one of --list", offsetof(arguments, shape), CALM_OPTION_STRING, .metavar = "NAME"},
    {"output", "directory that is to be made; it must not be there", offsetof(arguments, output), CALM_OPTION_STRING,
     .metavar = "DIR"},
    {"blocks", "this many blocks; 0: as the shape says", offsetof(arguments, blocks), CALM_OPTION_INT, "0", 0, 10000,
     .metavar = "N"},
    {"hidden", "another width, with inner and heads in proportion; 0: as the shape says", offsetof(arguments, hidden),
     CALM_OPTION_INT, "0", 0, 1e6, .metavar = "N"},
    {"experts", "this many experts of a mixture; 0: as the shape says", offsetof(arguments, experts), CALM_OPTION_INT,
     "0", 0, 1e5, .metavar = "N"},
    {"vocab", "this many tokens (the demo tokenizer has 4096); 0: as the shape says", offsetof(arguments, vocab),
     CALM_OPTION_INT, "0", 0, 1e7, .metavar = "N"},
    {"seed", "of the weights", offsetof(arguments, seed), CALM_OPTION_INT, "0", 0, 1e15, .metavar = "S"},
    {"shard-size", "most bytes of tensors in a file: 5GB, 200MB, 64KiB", offsetof(arguments, shard_size),
     CALM_OPTION_STRING, "5GB", .metavar = "SIZE"},
    {"dtype", "of the weights; published is f32 for encoders, else bf16", offsetof(arguments, dtype),
     CALM_OPTION_ENUM, "published", .values = "bf16|f16|f32|published"},
    {"spelling", "of config.json; v5 is what transformers 5 writes", offsetof(arguments, spelling),
     CALM_OPTION_ENUM, "classic", .values = "classic|v5"},
    {"tokenizer", "where tokenizer.json and tokenizer_config.json are copied from; default: the demo model's, "
     "byte-level BPE for encoders too (its ids fit every shape)", offsetof(arguments, tokenizer),
     CALM_OPTION_STRING, .metavar = "DIR"},
    {"factor", "multiply the tensors whose names end in SUFFIX, as in o_proj.weight=1e-9", offsetof(arguments, factor),
     CALM_OPTION_STRING, .metavar = "SUFFIX=F,..."},
    {"hollow", "files with names, shapes and sizes, and no values: for forecasts of models that no disk here holds",
     offsetof(arguments, hollow), CALM_OPTION_BOOL, .metavar = NULL},
    {"threads", "workers, 0: all cores; the bytes do not depend on it", offsetof(arguments, threads), CALM_OPTION_INT,
     "0", 0, 1024, .metavar = "N"},
    {0}};

static void print_configs(void)
{
    struct dirent **entries;
    const int n = synth_configs(&entries);
    for (int i = 0; i < n; i++) {
        printf("%-16.*s hollow, as transformers has it by default\n", (int)strcspn(entries[i]->d_name, "."),
               entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void print_shapes(void)
{
    for (const synth_shape *shape = synth_shapes; shape->name; shape++)
        printf("%-16s %2zu blocks, hidden %zu, inner %zu, %zu/%zu heads of %zu, vocabulary %zu%s\n", shape->name,
               shape->blocks, shape->hidden, shape->inner, shape->heads, shape->kv, shape->head_dim, shape->vocab,
               shape->tied ? ", tied" : "");
    print_configs();
}

/* Parses "5GB" into bytes. */
static calm_status parse_size(calm_ctx *ctx, const char *text, uint64_t *out)
{
    static const struct { const char *name; uint64_t scale; } units[] = {
        {"", 1}, {"KB", 1000}, {"MB", 1000000}, {"GB", 1000000000},
        {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    char *end;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end > text && *text != '-' && errno == 0 && value > 0 && strcmp(end, units[i].name) == 0
            && !__builtin_mul_overflow(value, units[i].scale, out))
            return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "--shard-size: %s is no size such as 5GB, 200MB or 64KiB", text);
}

static calm_status run(calm_ctx *ctx, void *user)
{
    static const calm_dtype dtypes[] = {CALM_BF16, CALM_F16, CALM_F32, CALM_N_DTYPES};
    const arguments *args = user;
    synth_options options = {0};
    const double start = calm_seconds();
    if (!args->shape || !args->output)
        return calm_fail(ctx, CALM_EARG, "--shape and --output are needed; --help explains");
    CALM_TRY(parse_size(ctx, args->shard_size, &options.shard_size));
    options.shape = args->shape;
    options.output = args->output;
    options.tokenizer = args->tokenizer;
    options.blocks = (size_t)args->blocks;
    options.hidden = (size_t)args->hidden;
    options.experts = (size_t)args->experts;
    options.vocab = (size_t)args->vocab;
    options.seed = (uint64_t)args->seed;
    options.dtype = dtypes[args->dtype];
    options.newer = args->spelling == 1;
    options.factor = args->factor;
    options.hollow = args->hollow;
    ctx->n_threads = args->threads ? (int)args->threads : calm_n_cores();
    CALM_TRY(synth_write(ctx, &options));
    printf("%s: %s in %.1f s\n", args->output, args->shape, calm_seconds() - start);
    return CALM_OK;
}

int main(int argc, char **argv)
{
    arguments args;
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return print_shapes(), EXIT_SUCCESS;
    return tool_main(&(tool){"make_checkpoint", "--shape NAME --output DIR",
                             "Writes random weights in the shape of a known model, for measuring sizes and speeds; "
                             "--list prints the shapes.",
                             table, &args, run}, argc, argv);
}
