/* Prints the kernel families for tests/run --kernels-all, one per line: all that this CPU runs, except the one that
 * OpenBLAS chooses here, with which all tests run.  Standard error names the families that are left out.
 *
 * Some families have the same kernels under two names (Zen has Haswell's).  The program leaves out a family that
 * gives the same bits as another in all functions of linalg.h: the tests would compute the same numbers again.
 * OpenBLAS chooses its kernels when a program starts, so this program starts itself once per family, with the
 * argument --digest, for the digest of its results.
 *
 * With --wanted it prints the family that calm would choose here: OpenBLAS chooses its slowest for an unknown CPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "ptq/base/rng.h"
#include "ptq/base/sha256.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/inverse_root.h"
#include "ptq/tensor/linalg.h"

#define N_RANDOM 200          /* random sizes, in addition to large ones             */
#define LARGEST  1100         /* beyond the blocks of every family: 320 to 768 terms */
#define N_VALUES ((size_t)LARGEST * LARGEST)

/* Operands of the calls below. */
typedef struct operands {
    double *a, *b, *c, *work;
    float *fa, *fb, *fc;
} operands;

static void *room(size_t n_bytes)
{
    void *out = malloc(n_bytes);
    if (!out) {
        perror("kernel_families");
        exit(EXIT_FAILURE);
    }
    return out;
}

/* Returns a size from 1, small ones as often as large ones, so that kernels of 4, 8, 16, 24 columns meet remainders. */
static size_t size_of(size_t at, size_t which)
{
    static const size_t limits[] = {8, 33, 80, 260};
    const uint64_t bits = calm_rng_u64(1, which, at);
    return 1 + (size_t)(bits >> 8) % limits[bits % 4];
}

/* Calls every function of linalg.h that multiplies, solves or factors, with operands of these sizes. */
static calm_status call_all(calm_ctx *ctx, calm_sha256 *sha, const operands *at, size_t m, size_t n, size_t k)
{
    for (int form = CALM_PRODUCT_NT; form <= CALM_PRODUCT_TN; form++) {
        const size_t lda = form == CALM_PRODUCT_TN ? m : k, ldb = form == CALM_PRODUCT_NT ? k : n;
        for (int beta = 0; beta < 2; beta++) {    /* the second call adds to the result of the first */
            calm_sgemm(form, m, n, k, at->fa, lda, at->fb, ldb, (float)beta, at->fc, n);
            calm_dgemm(form, m, n, k, at->a, lda, at->b, ldb, beta, at->c, n);
            calm_sha256_update(sha, at->fc, m * n * sizeof(float));
            calm_sha256_update(sha, at->c, m * n * sizeof(double));
        }
    }
    memset(at->fc, 0, n * n * sizeof(float));
    memset(at->c, 0, n * n * sizeof(double));
    calm_ssyrk_t(n, k, 1, at->fa, n, 0, at->fc, n);
    calm_dsyrk_n(n, k, 1, at->a, k, 0, at->c, n);
    calm_sha256_update(sha, at->fc, n * n * sizeof(float));
    calm_sha256_update(sha, at->c, n * n * sizeof(double));
    calm_dsyrk_t(n, k, 1, at->a, n, 0, at->c, n);
    for (size_t i = 0; i < n; i++)
        at->c[i * n + i] += (double)n;
    calm_sha256_update(sha, at->c, n * n * sizeof(double));
    calm_dsymmetrize(n, at->c, n);
    double *const factor = at->work, *const other = at->work + N_VALUES, *const x = at->work + 2 * N_VALUES;
    memcpy(factor, at->c, n * n * sizeof(double));
    calm_status status = calm_dcholesky_upper(ctx, n, factor, n);
    if (status == CALM_OK)
        status = calm_dcholesky_reverse(ctx, n, 0, at->c, n, other);
    memcpy(x, at->b, m * n * sizeof(double));
    if (status == CALM_OK)
        status = calm_dcholesky_solve(ctx, n, factor, n, m, x, m);
    calm_sha256_update(sha, x, m * n * sizeof(double));
    calm_sha256_update(sha, factor, n * n * sizeof(double));
    calm_sha256_update(sha, at->c, n * n * sizeof(double));
    memcpy(x, at->b, m * n * sizeof(double));
    calm_dsolve_upper_right(m, n, factor, n, x, n);
    calm_dmultiply_upper_right(m, n, factor, n, x, n);
    calm_sha256_update(sha, x, m * n * sizeof(double));
    calm_dmultiply_upper(n, m, 1, factor, n, x, m);
    calm_sha256_update(sha, x, m * n * sizeof(double));
    if (status == CALM_OK)
        status = calm_dinvert_upper(ctx, n, 0, factor, n);
    calm_sha256_update(sha, factor, n * n * sizeof(double));
    calm_ssyrk_t(n, k, 1, at->fa, n, 0, at->fc, n);
    for (size_t i = 0; i < n; i++)
        at->fc[i * n + i] += (float)n;
    if (status == CALM_OK)
        status = calm_sroot(ctx, n, at->fc, n);
    calm_sha256_update(sha, at->fc, n * n * sizeof(float));
    return status;
}

/* Prints the digest of all results with the loaded kernels, including choices that calm makes by their name. */
static calm_status print_digest(calm_ctx *ctx)
{
    const operands at = {room(N_VALUES * sizeof(double)), room(N_VALUES * sizeof(double)),
                         room(N_VALUES * sizeof(double)), room(3 * N_VALUES * sizeof(double)),
                         room(N_VALUES * sizeof(float)), room(N_VALUES * sizeof(float)),
                         room(N_VALUES * sizeof(float))};
    static const size_t large[][3] = {{1, 900, 1100}, {3, 1001, 1000}, {700, 5, 1100}, {430, 610, 800},
                                      {1100, 130, 17}};
    calm_sha256 sha;
    char hex[CALM_SHA256_HEX];
    for (size_t i = 0; i < N_VALUES; i++) {
        at.fa[i] = (float)(at.a[i] = calm_rng_uniform(2, 1, i) - .5);
        at.fb[i] = (float)(at.b[i] = calm_rng_uniform(2, 2, i) - .5);
    }
    calm_sha256_init(&sha);
    calm_status status = CALM_OK;
    for (size_t i = 0; i < N_RANDOM && status == CALM_OK; i++)
        status = call_all(ctx, &sha, &at, size_of(i, 0), size_of(i, 1), size_of(i, 2));
    for (size_t i = 0; i < sizeof large / sizeof *large && status == CALM_OK; i++)
        status = call_all(ctx, &sha, &at, large[i][0], large[i][1], large[i][2]);
    const size_t by_name[] = {calm_blas_any_columns(calm_linalg_kernels()), calm_linalg_buffer_bytes(100)};
    calm_sha256_update(&sha, by_name, sizeof by_name);
    const calm_status finished = calm_sha256_finish(ctx, &sha, hex);
    status = status == CALM_OK ? finished : status;
    if (status == CALM_OK)
        printf("%s %s\n", calm_linalg_kernels(), hex);
    free(at.a), free(at.b), free(at.c), free(at.work), free(at.fa), free(at.fb), free(at.fc);
    return status;
}

/* Writes the digest of a family to `out`; "" if the program does not run with it, or runs with another. */
static void digest_of(const char *program, const char *family, char out[CALM_SHA256_HEX])
{
    char command[5000], name[64] = "";
    snprintf(command, sizeof command, CALM_BLAS_VARIABLE "=%s '%s' --digest", family, program);
    FILE *pipe = popen(command, "r");
    const bool read = pipe && fscanf(pipe, "%63s %64s", name, out) == 2;
    if (!pipe || pclose(pipe) != 0 || !read || strcasecmp(name, family) != 0)
        out[0] = 0;
}

int main(int n_args, char **args)
{
    static const char *const families[] = {"Prescott", "Nehalem", "Sandybridge", "Haswell", "Zen", "SkylakeX",
                                           "Cooperlake"};
    enum { N_FAMILIES = sizeof families / sizeof *families };
    char digests[N_FAMILIES][CALM_SHA256_HEX] = {{0}}, program[4096] = "";
    calm_linalg_setup();
    if (n_args == 2 && strcmp(args[1], "--wanted") == 0)
        return puts(calm_linalg_wanted(NULL)) == EOF;
    if (n_args == 2 && strcmp(args[1], "--digest") == 0) {
        calm_arena out, scratch;
        calm_ctx ctx;
        calm_arena_init(&out);
        calm_arena_init(&scratch);
        calm_ctx_init(&ctx, &out, &scratch);
        const calm_status status = print_digest(&ctx);
        calm_arena_clear(&out);
        calm_arena_clear(&scratch);
        return status != CALM_OK;
    }
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        perror("kernel_families");    /* then every family runs */
    size_t own = N_FAMILIES;
    for (size_t i = 0; i < N_FAMILIES; i++) {
        if (strcasecmp(families[i], calm_linalg_kernels()) == 0)
            own = i;
        if (i == own || calm_blas_runs(calm_cpu_features(), families[i]))
            digest_of(program, families[i], digests[i]);
    }
    for (size_t i = 0; i < N_FAMILIES; i++) {
        size_t same = 0;
        while (same < i && !(digests[i][0] && strcmp(digests[same], digests[i]) == 0))
            same++;
        if (own < N_FAMILIES && digests[i][0] && strcmp(digests[own], digests[i]) == 0)
            same = own;
        if (i == own)
            fprintf(stderr, "calm: %s is what all tests run with here\n", families[i]);
        else if (!calm_blas_runs(calm_cpu_features(), families[i]))
            fprintf(stderr, "SKIP: this CPU has no instructions for %s (another CPU)\n", families[i]);
        else if (same != i)
            fprintf(stderr, "SKIP: %s gives the same bits as %s in all of linalg.h (nothing else would run it)\n",
                    families[i], families[same]);
        else
            puts(families[i]);
    }
    return 0;
}
