/* Prints the sentence embeddings of a text, a JSON list per line:  embed_sentences MODEL TEXT */
#include <calm.h>
#include <stdio.h>

static void print(const double *x, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < width; j++)
            printf("%s%.9g", j ? ", " : "[", x[i * width + j]);
        puts("]");
    }
}

int main(int argc, char **argv)
{
    calm_ctx *ctx;
    const double *x;
    size_t n, width;
    if (argc != 3) {
        fputs("usage: embed_sentences MODEL TEXT\n", stderr);
        return 2;
    }
    if (calm_start(&ctx))
        return 1;
    const calm_measure_request request = {.model = argv[1], .text = argv[2]};
    const calm_status status = calm_embed(ctx, &request, &x, &n, &width);
    if (status == CALM_OK)
        print(x, n, width);
    else
        fprintf(stderr, "%s\n", calm_error_text(ctx));
    calm_stop(&ctx);
    return status != CALM_OK;
}
