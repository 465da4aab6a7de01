/* The test harness (harness.h): one context, one folder for temporary files, fixtures.
 *
 * Check runs each test in a child process unless CK_FORK=no; a child that fails an assertion leaves without its
 * teardown.  So the temporary files of all tests are under one folder that the parent removes at the end, and
 * the count of tests without fixtures lives in shared memory. */
#include "tests/support/harness.h"

#include <dirent.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ptq/base/memory.h"
#include "ptq/tensor/linalg.h"

#define EXIT_SKIPPED 77    /* tests/CMakeLists.txt shows it as skipped */

static calm_arena out_arena, scratch_arena, test_arena;
static calm_arena measured_out, measured_scratch;
static size_t measured_before;
static calm_memory account;
static calm_ctx test_ctx;
calm_ctx *const ctx = &test_ctx;

static char temporary_root[4096];
static size_t *n_without_fixtures;    /* shared between the processes of the suite */
static bool lacks_fixtures;           /* the running test needs fixtures that are missing */

const char *calm_status_name(calm_status status)
{
    static const char *const names[] = {
#define CALM_STATUS_STRING(name, words) #name,
        CALM_STATUS_LIST(CALM_STATUS_STRING)
#undef CALM_STATUS_STRING
    };
    return (unsigned)status < CALM_N_STATUS ? names[status] : "unknown status";
}

void test_mark(const char *file, int line)
{
    static _Atomic unsigned char marked[8192];    /* after a collision the message names the previous place */
    _Atomic unsigned char *place = &marked[((size_t)line * 31 + (uintptr_t)file) % sizeof marked];
    if (!atomic_exchange_explicit(place, 1, memory_order_relaxed))
        (_mark_point)(file, line);
}

/* Prints what is wrong with the machine and ends the process: no test can run. */
static void give_up(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void set_up(void)
{
    calm_ctx_init(&test_ctx, &out_arena, &scratch_arena);
    test_ctx.n_threads = 2;
    test_ctx.memory = out_arena.memory = scratch_arena.memory = test_arena.memory = &account;
    measured_out.memory = measured_scratch.memory = &account;
    lacks_fixtures = false;
}

static void tear_down(void)
{
    calm_arena_clear(&out_arena);
    calm_arena_clear(&scratch_arena);
    calm_arena_clear(&test_arena);
    calm_arena_clear(&measured_out);
    calm_arena_clear(&measured_scratch);
    out_arena.fail_in = scratch_arena.fail_in = 0;
    if (lacks_fixtures)
        ++*n_without_fixtures;
}

static void make_temporary_root(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(temporary_root, sizeof temporary_root, "%s/calm-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(temporary_root))
        give_up(temporary_root);
}

int run_tests(const char *name, const TTest *const *tests)
{
    setvbuf(stdout, NULL, _IOLBF, 0);    /* a child that leaves early must not lose its SKIP line */
    calm_linalg_setup();
    calm_arena_init(&out_arena);
    calm_arena_init(&scratch_arena);
    calm_arena_init(&test_arena);
    calm_arena_init(&measured_out);
    calm_arena_init(&measured_scratch);
    make_temporary_root();
    n_without_fixtures = mmap(NULL, sizeof *n_without_fixtures, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_without_fixtures == MAP_FAILED)
        give_up("mmap");

    Suite *suite = suite_create(name);
    size_t n_tests = 0;
    for (; tests[n_tests]; n_tests++) {
        TCase *tcase = tcase_create(tests[n_tests]->name);    /* CK_RUN_CASE=name runs only that test */
        /* CK_EXCLUDE_TAGS skips tests by the first word of their names. */
        const char *test = tests[n_tests]->name;
        const bool memory = strncmp(test, "memory", 6) == 0, levels = strncmp(test, "levels", 6) == 0;
        tcase_set_tags(tcase, memory ? "memory" : levels ? "levels" : "values");
        tcase_add_checked_fixture(tcase, set_up, tear_down);
        tcase_set_timeout(tcase, 0);                          /* ctest has the timeout */
        tcase_add_test(tcase, tests[n_tests]);
        suite_add_tcase(suite, tcase);
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    remove_folder(temporary_root);
    bool all_skipped = n_tests > 0 && *n_without_fixtures == n_tests;
    munmap(n_without_fixtures, sizeof *n_without_fixtures);
    if (n_failed)
        return EXIT_FAILURE;
    return all_skipped ? EXIT_SKIPPED : EXIT_SUCCESS;
}

static void *must(void *pointer)
{
    if (!pointer)
        give_up("memory for a test");
    return pointer;
}

calm_words test_words(const char *list)
{
    calm_words words = {0};
    if (list)
        ck_ok(calm_words_split(ctx, list, &words));
    return words;
}

calm_pairs test_pairs(const char *list)
{
    static const calm_option pairs = {.name = "pairs", .type = CALM_OPTION_PAIRS};
    calm_pairs out = {0};
    if (list)
        ck_ok(calm_option_set_one(ctx, &pairs, &out, "test", list, true));
    return out;
}

char *test_format(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = must(calm_arena_alloc(&test_arena, (size_t)length + 1, 1));
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

double test_worse(double worst, double error)
{
    return error > worst || isnan(error) ? error : worst;
}

size_t test_resident_peak(void)
{
    char line[256];
    size_t kib = 0;
    FILE *status = must(fopen("/proc/self/status", "re"));
    while (fgets(line, sizeof line, status) && sscanf(line, "VmHWM: %zu", &kib) != 1)
        continue;
    fclose(status);
    return kib * 1024;
}

void test_memory_begin(void)
{
    calm_arena_clear(&measured_out);
    calm_arena_clear(&measured_scratch);
    ctx->out = &measured_out;
    ctx->scratch = &measured_scratch;
    measured_before = calm_memory_used(ctx->memory);
    calm_memory_restart(ctx->memory);
}

test_memory test_memory_end(void)
{
    ctx->out = &out_arena;
    ctx->scratch = &scratch_arena;
    return (test_memory){measured_out.used_bytes, measured_scratch.most_bytes,
                         calm_memory_peak(ctx->memory) - measured_before};
}

bool test_refused(const char *what, calm_status status)
{
    ck_assert_msg(status == CALM_OK || status == CALM_ENOMEM, "%s: %s: %s", what, calm_status_name(status),
                  ctx->message);
    calm_ctx_clear_failure(ctx);
    return status != CALM_OK;
}

void test_memory_limit(size_t bytes)
{
    calm_memory_set_limit(ctx->memory, bytes ? calm_memory_used(ctx->memory) + bytes : 0);
}

const char *test_directory(void)
{
    char *path = test_format("%s/XXXXXX", temporary_root);
    if (!mkdtemp(path))
        give_up(path);
    return path;
}

const char *test_data(const char *name)
{
    return test_format("%s/tests/data/%s", CALM_SOURCE_DIR, name);
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

const char *fixtures_root(void)
{
    const char *named = getenv("CALM_FIXTURES");
    const char *root = named && *named ? named : test_format("%s/../shared/fixtures", CALM_SOURCE_DIR);
    if (is_folder(root))
        return root;
    if (!lacks_fixtures)
        printf("SKIP: no reference fixtures (../shared/fixtures or CALM_FIXTURES)\n");
    lacks_fixtures = true;
    return NULL;
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), n_suffix = strlen(suffix);
    return n >= n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

char **fixture_entries(const char *sub, const char *suffix)
{
    const char *root = fixtures_root();
    const char *folder = root ? test_format("%s/%s", root, sub) : "";
    struct dirent **found = NULL;
    int n_found = root ? scandir(folder, &found, NULL, alphasort) : 0;
    size_t n = 0;
    char **names = must(calm_arena_zalloc(&test_arena, (n_found > 0 ? (size_t)n_found : 0) + 1, sizeof *names));
    for (int i = 0; i < n_found; i++) {
        const char *name = found[i]->d_name;
        bool wanted = is_folder(test_format("%s/%s", folder, name)) ? !suffix : suffix && ends_with(name, suffix);
        if (wanted && name[0] != '.')
            names[n++] = test_format("%s", name);
        free(found[i]);
    }
    free(found);
    ck_assert_msg(!root || n > 0, "%s: no %s", folder, suffix ? test_format("*%s", suffix) : "folder");
    return names;
}
