/* Runs the pipeline in child processes.
 *
 * The test itself never starts threads: OpenMP's do not survive a fork, and a child that waits for them waits
 * forever. With CK_FORK=no (sanitizers) all tests of a file run in one process, so play_new() limits each to one
 * thread. */
#include "tests/support/play.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined CALM_SANITIZED && defined __has_feature
#define FINDS_LEAKS !__has_feature(thread_sanitizer)
#elif defined CALM_SANITIZED
#define FINDS_LEAKS 1
#else
#define FINDS_LEAKS 0
#endif
#if FINDS_LEAKS
#include <sanitizer/lsan_interface.h>
#endif

#include "ptq/base/file.h"
#include "ptq/base/memory.h"
#include "ptq/base/sha256.h"
#include "store/sql.h"

#define BUNDLED_VOCAB 4096
#define TEXT_BYTES 6000

static const char *bundled(const char *name)
{
    return test_format("%s/recipes/%s", CALM_SOURCE_DIR, name);
}

/* Writes the first lines of the bundled text. */
static void write_text(const char *path)
{
    char *text;
    size_t n;
    ck_ok(calm_read_file(ctx, bundled("text/wikitext2-valid.txt"), (size_t)1 << 24, &text, &n));
    ck_assert_uint_gt(n, TEXT_BYTES);
    for (n = TEXT_BYTES; text[n - 1] != '\n'; n--)
        continue;
    ck_ok(calm_write_file(ctx, path, text, n));
}

void play_pool(play *run, const char *schemes, const char *algorithms)
{
    const calm_words scheme_words = test_words(schemes), words = test_words(algorithms);
    if (schemes)
        ck_ok(calm_recipe_schemes(ctx, &scheme_words, &run->recipe));
    ck_ok(calm_recipe_algorithms(ctx, &words, &run->recipe));
}

play play_new(const tiny_model *spec, const char *scheme, const char *algorithms)
{
    ctx->n_threads = 1;
    play run = {.threads = 2};
    tiny_model model = spec ? *spec : tiny_default;
    model.vocab = BUNDLED_VOCAB;
    run.dir = test_directory();
    run.recipe = (calm_recipe){.model = {.name = "tiny"},
                               .calib_windows = 4,
                               .seqlen = 32,
                               .seed = 0,
                               .score_windows = 2,
                               .guard_windows = 3,
                               .eval_windows = 2,
                               .last_block = -1,
                               .probe_windows = 2,
                               .score_points = 1u << CALM_POINT_JOB,
                               .selection = {.shortlist = CALM_SHORTLIST_DEFAULT,
                                             .score = CALM_METRIC_CKA_TOKEN},
                               .calib_path = play_path(&run, "text.txt"),
                               .calib_name = "text.txt",
                               .eval_path = play_path(&run, "text.txt"),
                               .eval_name = "text.txt",
                               .output = play_path(&run, "out"),
                               .store = play_path(&run, "calm.db")};
    run.recipe.model.dir = test_format("%s", tiny_model_write(&model));
    ck_ok(calm_copy_file(ctx, bundled("models/qwen-demo/tokenizer.json"),
                         test_format("%s/tokenizer.json", run.recipe.model.dir)));
    write_text(run.recipe.calib_path);
    play_pool(&run, scheme, algorithms);
    return run;
}

const char *play_path(const play *run, const char *name)
{
    return test_format("%s/%s", run->dir, name);
}

/* ---- the child ---- */

static void listen(void *user, calm_log_level level, const char *line)
{
    outcome *said = user;
    const size_t used = strlen(said->log);
    (void)level;
    snprintf(said->log + used, sizeof said->log - used, "%s\n", line);
}

static void describe(const calm_run *run, outcome *said)
{
    const calm_result *result = calm_run_result(run);
    said->held = run->held;
    said->memory = run->memory;
    said->cached = result->n_cached;
    snprintf(said->result, sizeof said->result, "%s", result->name ? result->name : "");
    snprintf(said->verdict, sizeof said->verdict, "%s", result->verdict ? result->verdict : "");
}

/* Progress of a stage that measures several times, each time from 0 to its total. */
typedef struct progress {
    size_t before, done;    /* counts of finished measurements and of this one */
    size_t kill_at_step;    /* of play */
} progress;

static void count_windows(void *user, calm_stage stage, size_t done, size_t total)
{
    progress *windows = user;
    if (stage == CALM_STAGE_LEARN && windows->kill_at_step && done == windows->kill_at_step)
        raise(SIGKILL);
    if (stage != CALM_STAGE_CHOOSE || !total)
        return;
    windows->done = done;
    if (done == total) {
        windows->before += done;
        windows->done = 0;
    }
}

static void work(const play *run, fault wanted, outcome *said)
{
    progress windows = {.kill_at_step = run->kill_at_step};
    const calm_run_options options = {.command = "calm test", .events = {.fn = count_windows, .user = &windows}};
    calm_run *finished;
    ctx->log = listen;
    ctx->log_user = said;
    ctx->n_threads = run->threads;
    calm_memory_setup();
    calm_memory_restart(ctx->memory);
    fault_plan(wanted);
    said->status = calm_run_quantize(ctx, &run->recipe, &options, &finished);
    said->calls = fault_calls();
    said->guarded = windows.before + windows.done;
    fault_plan((fault){0});
    said->resident = test_resident_peak();
    memcpy(said->message, ctx->message, sizeof said->message);
    if (finished)
        describe(finished, said);
    calm_run_close(&finished);
}

/* Returns the number of threads of this process; 1 if /proc does not say. */
static size_t threads_now(void)
{
    size_t n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; tasks && (task = readdir(tasks));)
        n += task->d_name[0] != '.';
    if (tasks)
        closedir(tasks);
    return n ? n : 1;
}

/* Checks that the test has one thread, because a fork loses OpenMP's.  It counts after the fork, before which
 * OpenBLAS ends its threads. */
static void expect_one_thread(pid_t child)
{
    if (threads_now() > 1) {
        kill(child, SIGKILL);
        ck_abort_msg("a test before this one started threads: it needs ctx->n_threads = 1 too");
    }
}

pid_t play_start(const play *run, fault wanted, outcome **said)
{
    *said = mmap(NULL, sizeof **said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(*said != MAP_FAILED);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        work(run, wanted, *said);
#if FINDS_LEAKS
        _exit(__lsan_do_recoverable_leak_check() ? 1 : 0);
#endif
        _exit(0);
    }
    expect_one_thread(child);
    return child;
}

void play_stages(const play *run, calm_stages_fn *stages)
{
    int status;
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        const calm_run_options options = {.command = "calm test"};
        calm_run *p;
        const calm_status found = calm_run_stages(ctx, &run->recipe, &options, stages, NULL, &p);
        if (found != CALM_OK)
            fprintf(stderr, "%s\n", ctx->message);
        calm_run_close(&p);
        _exit(found != CALM_OK);
    }
    expect_one_thread(child);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

outcome play_wait(pid_t child, outcome *said)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    outcome copy = *said;
    munmap(said, sizeof *said);
    copy.killed = WIFSIGNALED(status);
    ck_assert_msg(copy.killed ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0, "a child ended with %d",
                  status);
    return copy;
}

outcome play_run(const play *run, fault wanted)
{
    outcome *said;
    const pid_t child = play_start(run, wanted, &said);
    return play_wait(child, said);
}

/* ---- what it left ---- */

const char *play_digest(const char *dir)
{
    struct dirent **found;
    const char *text = "";
    if (!calm_path_exists(dir))
        return NULL;
    const int n = scandir(dir, &found, NULL, alphasort);
    ck_assert_int_gt(n, 2);
    for (int i = 0; i < n; i++) {
        char digest[CALM_SHA256_HEX];
        if (found[i]->d_name[0] != '.') {
            ck_ok(calm_sha256_file(ctx, test_format("%s/%s", dir, found[i]->d_name), digest));
            text = test_format("%s%s %s\n", text, found[i]->d_name, digest);
        }
        free(found[i]);
    }
    free(found);
    return text;
}

void play_scale_tensor(const play *run, const char *tensor, int exponent)
{
    const char *path = test_format("%s/model.safetensors", run->recipe.model.dir);
    uint64_t header;
    size_t n, first, end;
    char *bytes;
    ck_ok(calm_read_file(ctx, path, (size_t)1 << 26, &bytes, &n));
    memcpy(&header, bytes, sizeof header);
    const char *at = strstr(bytes + 8, test_format("\"%s\"", tensor));
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(strstr(at, "data_offsets"), "data_offsets\":[%zu,%zu]", &first, &end), 2);
    for (size_t i = 8 + header + first; i < 8 + header + end; i += sizeof(uint16_t)) {
        uint16_t bits;
        memcpy(&bits, bytes + i, sizeof bits);
        /* Zero has no exponent. */
        bits = bits & 0x7fff ? (uint16_t)(bits + exponent * (1 << 7)) : bits;
        memcpy(bytes + i, &bits, sizeof bits);
    }
    ck_ok(calm_write_file(ctx, path, bytes, n));
}

const char *play_list(const play *run, const char *part)
{
    struct dirent **found;
    const char *text = "";
    const int n = scandir(run->dir, &found, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strstr(found[i]->d_name, part))
            text = test_format("%s%s%s", text, text[0] ? " " : "", found[i]->d_name);
        free(found[i]);
    }
    free(found);
    return text;
}

int64_t play_sql(const play *run, const char *statement)
{
    calm_sql *sql;
    int64_t value = 0;
    ck_ok(calm_sql_open(ctx, run->recipe.store, CALM_SQL_WRITE, &sql));
    if (strncmp(statement, "SELECT", 6) == 0)
        ck_ok(calm_sql_number(ctx, sql, statement, CALM_NONE, &value));
    else
        ck_ok(calm_sql_run(ctx, sql, statement, CALM_NONE));
    calm_sql_close(sql);
    return value;
}

const char *play_text(const play *run, const char *statement)
{
    calm_sql *sql;
    calm_statement *rows;
    calm_text text;
    calm_text_init(&text);
    ck_ok(calm_sql_open(ctx, run->recipe.store, CALM_SQL_READ, &sql));
    ck_ok(calm_sql_first(ctx, sql, statement, CALM_NONE, &rows));
    while (calm_sql_next(ctx, sql, rows)) {
        const char *cell;
        ck_ok(calm_sql_text(ctx, rows, 0, &cell));
        calm_text_printf(&text, "%s\n", cell ? cell : "NULL");
    }
    calm_sql_end(rows);
    ck_ok(ctx->status);
    calm_sql_close(sql);
    const char *copy = test_format("%s", text.data ? text.data : "");
    calm_text_clear(&text);
    return copy;
}

outcome play_must_run(const play *run)
{
    const outcome said = play_run(run, (fault){0});
    ck_assert_msg(said.status == CALM_OK, "%s: %s", run->recipe.model.dir, said.message);
    return said;
}

play play_elsewhere(const play *run, const char *name)
{
    play other = *run;
    other.recipe.output = play_path(run, name);
    other.recipe.store = play_path(run, test_format("%s.db", name));
    return other;
}
