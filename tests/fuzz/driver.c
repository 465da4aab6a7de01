/* A standalone driver for fuzz targets, so that plain gcc and ctest run them:  fuzz_x FOLDER N
 *
 * Runs every file of the corpus folder and N mutations of each.  The mutations are drawn from the counter-based
 * generator: the same program and corpus give the same inputs on every machine.  The work is done in a child;
 * when it dies or takes too long for one input, the parent says which input it was and keeps its bytes in
 * ./crash-<target>.  tests/fuzz/run is the search that looks where it gets to. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/rng_impl.h"

#define SEED 20240229u
#define INPUT_MAX ((size_t)1 << 16)    /* mutations do not grow beyond it; larger corpus files run unchanged */
#define CPU_SECONDS_MAX 5              /* for one input, also on a busy machine */
#define WAIT_SECONDS_MAX 60            /* for an input that makes the parser wait */

/* The child's current input, for the parent's report; in shared memory. */
typedef struct progress {
    char file[4096];
    long mutation;    /* -1: the unchanged file */
    size_t size;
    uint8_t bytes[INPUT_MAX];
} progress;

typedef struct corpus {
    char **names;
    uint8_t **bytes;
    size_t *sizes;
    size_t n;
} corpus;

static void give_up(const char *what)
{
    perror(what);
    exit(2);
}

/* ---- mutations ---- */

/* Draws of one mutation: file and mutation number select the stream, `next` counts its draws. */
typedef struct draws {
    uint64_t stream, next;
} draws;

static size_t draw(draws *from, size_t below)
{
    return below ? (size_t)(calm_rng_u64(SEED, from->stream, from->next++) % below) : 0;
}

/* Replaces `n_old` bytes at `at` by n_new bytes, unless the input would grow too large. */
static void replace(uint8_t *data, size_t *size, size_t at, size_t n_old, const uint8_t *with, size_t n_new)
{
    if (*size - n_old + n_new > INPUT_MAX)
        return;
    memmove(data + at + n_new, data + at + n_old, *size - at - n_old);
    memcpy(data + at, with, n_new);
    *size = *size - n_old + n_new;
}

/* Replaces a number in the text by one at the limit of some type. */
static void change_number(uint8_t *data, size_t *size, draws *from)
{
    static const char *const edges[] = {"0", "-1", "1e308", "1e-320", "2147483648", "4294967295", "4294967296",
                                        "9223372036854775807", "-9223372036854775808", "18446744073709551615", "0.5"};
    size_t begin = draw(from, *size + 1);
    while (begin < *size && (data[begin] < '0' || data[begin] > '9'))
        begin++;
    size_t end = begin;
    while (end < *size && data[end] >= '0' && data[end] <= '9')
        end++;
    const char *edge = edges[draw(from, sizeof edges / sizeof *edges)];
    if (begin < end)
        replace(data, size, begin, end - begin, (const uint8_t *)edge, strlen(edge));
}

static void change_bytes(uint8_t *data, size_t *size, draws *from)
{
    static const uint8_t edges[] = {0x00, 0xff, 0x7f, 0x80, 0x01, '"', '\\', '{', '}', '[', ']', ',', ':', ' ', '\n'};
    size_t at = draw(from, *size);
    if (!*size)
        return;
    if (draw(from, 2))
        data[at] ^= (uint8_t)(1u << draw(from, 8));
    else
        data[at] = edges[draw(from, sizeof edges)];
}

/* Removes a piece, or inserts a piece of this or another file of the corpus. */
static void move_piece(uint8_t *data, size_t *size, const corpus *from_files, draws *from)
{
    size_t at = draw(from, *size + 1);
    if (draw(from, 2)) {
        size_t length = draw(from, *size - at + 1);
        replace(data, size, at, length, data, 0);
        return;
    }
    size_t other = draw(from, from_files->n);
    size_t begin = draw(from, from_files->sizes[other] + 1);
    size_t length = draw(from, from_files->sizes[other] - begin + 1) % 256;
    replace(data, size, at, 0, from_files->bytes[other] + begin, length);
}

static size_t mutate(uint8_t *data, const corpus *files, size_t file, long mutation)
{
    draws from = {(uint64_t)file << 32 | (uint64_t)mutation, 0};
    size_t size = files->sizes[file];
    memcpy(data, files->bytes[file], size);
    for (size_t left = 1 + draw(&from, 4); left > 0; left--)
        switch (draw(&from, 8)) {
        case 0:
            size = draw(&from, size + 1);    /* truncate */
            break;
        case 1:
        case 2:
            change_number(data, &size, &from);
            break;
        case 3:
        case 4:
            move_piece(data, &size, files, &from);
            break;
        default:
            change_bytes(data, &size, &from);
        }
    return size;
}

/* ---- running ---- */

/* The target gets a block of exactly this size, so that AddressSanitizer sees reads beyond its end. */
static void run_one(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        give_up("memory");
    memcpy(exact, data, size);
    const struct itimerval limit = {{0, 0}, {CPU_SECONDS_MAX, 0}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_PROF, &limit, NULL);
    alarm(WAIT_SECONDS_MAX);
    calm_fuzz_one(exact, size);
    alarm(0);
    setitimer(ITIMER_PROF, &none, NULL);
    free(exact);
}

static void run_all(const corpus *files, long n_mutations, progress *now)
{
    for (size_t file = 0; file < files->n; file++) {
        snprintf(now->file, sizeof now->file, "%s", files->names[file]);
        now->mutation = -1;
        run_one(files->bytes[file], files->sizes[file]);
        for (long k = 0; k < n_mutations && files->sizes[file] <= INPUT_MAX; k++) {
            now->size = mutate(now->bytes, files, file, k);
            now->mutation = k;
            run_one(now->bytes, now->size);
        }
    }
    fuzz_context();    /* frees memory of the last input, for the leak check */
}

static corpus read_corpus(const char *folder)
{
    static calm_arena out, scratch;
    static calm_ctx ctx;
    calm_ctx_init(&ctx, &out, &scratch);
    struct dirent **found;
    int n = scandir(folder, &found, NULL, alphasort);
    if (n < 0)
        give_up(folder);
    corpus files = {calloc((size_t)n + 1, sizeof(char *)), calloc((size_t)n + 1, sizeof(uint8_t *)),
                    calloc((size_t)n + 1, sizeof(size_t)), 0};
    for (int i = 0; i < n; i++) {
        char *path, *bytes;
        if (found[i]->d_name[0] != '.') {
            if (calm_path_join(&ctx, &out, &path, folder, found[i]->d_name) != CALM_OK ||
                calm_read_file(&ctx, path, SIZE_MAX / 2, &bytes, &files.sizes[files.n]) != CALM_OK) {
                fprintf(stderr, "%s\n", ctx.message);
                exit(2);
            }
            files.names[files.n] = path;
            files.bytes[files.n++] = (uint8_t *)bytes;
        }
        free(found[i]);
    }
    free(found);
    return files;
}

static int report(const char *target, int status, const progress *now)
{
    char path[4096];
    const char *base = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
    snprintf(path, sizeof path, "crash-%s", base);
    fprintf(stderr, "%s: %s %d on %s, ", base, WIFSIGNALED(status) ? "signal" : "exit status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), now->file);
    if (now->mutation < 0) {
        fprintf(stderr, "as it is\n");
        return 1;
    }
    fprintf(stderr, "mutation %ld; its %zu bytes are in %s\n", now->mutation, now->size, path);
    FILE *stream = fopen(path, "wb");
    if (stream) {
        fwrite(now->bytes, 1, now->size, stream);
        fclose(stream);
    }
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s FOLDER MUTATIONS\n", argv[0]);
        return 2;
    }
    progress *now = mmap(NULL, sizeof *now, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (now == MAP_FAILED)
        give_up("fuzz");
    static corpus files;    /* static: still reachable during the leak check */
    files = read_corpus(argv[1]);
    if (files.n == 0) {
        fprintf(stderr, "%s: no files\n", argv[1]);
        return 2;
    }
    fuzz_make_folder();    /* before the fork, since the parent removes it */
    pid_t child = fork();
    if (child == 0) {
        run_all(&files, atol(argv[2]), now);
        return 0;
    }
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        give_up("fuzz");
    if (status != 0)
        return report(argv[0], status, now);
    printf("%zu files, %s mutations each\n", files.n, argv[2]);
    return 0;
}
