/* compare_tensors: prints the differences between the tensors of two safetensors files or directories. */
#include <math.h>
#include <stdio.h>

#include "ptq/io/safetensors.h"
#include "tests/tools/tool.h"

typedef struct arguments {
    const char *a, *b;
    double limit;
} arguments;

static const calm_option table[] = {
    {"a", "file or directory", offsetof(arguments, a), CALM_OPTION_STRING, .metavar = "PATH"},
    {"b", "the other one; every tensor of a must be there", offsetof(arguments, b), CALM_OPTION_STRING,
     .metavar = "PATH"},
    {"limit", "largest difference that is no failure", offsetof(arguments, limit), CALM_OPTION_DOUBLE, "1e300",
     .metavar = "X"},
    {0}};

static calm_status widened(calm_ctx *ctx, const calm_tensor *tensor, float **out)
{
    CALM_TRY(CALM_NEW_RAW(ctx, ctx->scratch, *out, tensor->n_elements));
    return calm_tensor_to_f32(ctx, tensor, *out);
}

static calm_status compare(calm_ctx *ctx, const calm_tensor *a, const calm_safetensors *others, double limit)
{
    const calm_tensor *b;
    float *x, *y;
    double most = 0, largest = 0;
    CALM_TRY(calm_safetensors_need_floats(ctx, others, a->name, a->n_dims, a->shape, &b));
    CALM_TRY(widened(ctx, a, &x));
    CALM_TRY(widened(ctx, b, &y));
    for (size_t i = 0; i < a->n_elements; i++) {
        const double difference = fabs((double)x[i] - (double)y[i]);
        most = difference > most || isnan(difference) ? difference : most;    /* fmax would lose a NaN */
        largest = fmax(largest, fabs((double)x[i]));
    }
    printf("%s: largest difference %.3g, largest value %.3g\n", a->name, most, largest);
    if (!(most <= limit))
        return calm_fail(ctx, CALM_EMISMATCH, "%s: values differ by %.3g, expected at most %.3g", a->name, most, limit);
    return CALM_OK;
}

static calm_status run(calm_ctx *ctx, void *user)
{
    const arguments *args = user;
    calm_safetensors *a = NULL, *b = NULL;
    if (!args->a || !args->b)
        return calm_fail(ctx, CALM_EARG, "--a and --b are needed; --help explains");
    calm_status status = calm_safetensors_open(ctx, args->a, &a);
    if (status == CALM_OK)
        status = calm_safetensors_open(ctx, args->b, &b);
    for (size_t i = 0; status == CALM_OK && i < calm_safetensors_count(a); i++) {
        calm_arena_mark mark = calm_arena_save(ctx->scratch);
        status = compare(ctx, calm_safetensors_at(a, i), b, args->limit);
        calm_arena_rewind(ctx->scratch, mark);
    }
    calm_safetensors_close(a);
    calm_safetensors_close(b);
    return status;
}

int main(int argc, char **argv)
{
    arguments args;
    return tool_main(&(tool){"compare_tensors", "--a PATH --b PATH",
                             "Prints each tensor's largest difference.", table, &args, run}, argc, argv);
}
