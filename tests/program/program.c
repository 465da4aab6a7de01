/* Implementation of program.h: runs calm in its own process. */
#include "tests/program/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "ptq/base/threads.h"
#include "ptq/tensor/blas_family.h"
#include "ptq/tensor/linalg.h"
#include "store/blob.h"
#include "store/sql.h"

#define MAX_WORDS 64
#define N_BYTES 256
#define N_WORKERS 2
#define SHIM_REFUSED 99

/* ---- a model that starts fast ---- */

/* Writes to `out` the character that represents `byte` in a byte-level vocabulary, as UTF-8: the byte itself if it
 * is printable, else the next free one from U+0100 on. */
static void byte_character(int byte, int *next, char out[3])
{
    const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const int code = printed ? byte : (*next)++;
    out[0] = (char)(code < 0x80 ? code : 0xc0 | code >> 6);
    out[1] = (char)(code < 0x80 ? 0 : 0x80 | (code & 0x3f));
    out[2] = 0;
}

/* Writes a tokenizer with one token per byte: the bundled tokenizer takes longer to read than all else that a run
 * does here. */
static void write_tokenizer(const char *path)
{
    char character[3];
    const char *text = "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\","
                       " \"add_prefix_space\": false, \"use_regex\": true}, \"decoder\": {\"type\": \"ByteLevel\"},"
                       " \"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {";
    for (int byte = 0, next = 0x100; byte < N_BYTES; byte++) {
        byte_character(byte, &next, character);
        text = test_format("%s%s\"%s%s\": %d", text, byte ? ", " : "",
                           byte == '"' || byte == '\\' ? "\\" : "", character, byte);
    }
    text = test_format("%s}}}\n", text);
    ck_ok(calm_write_file(ctx, path, text, strlen(text)));
}

play program_play(size_t n_blocks, const char *algorithms)
{
    play of = play_new(NULL, "w4a16_g16", algorithms);
    tiny_model model = tiny_default;
    model.vocab = N_BYTES;
    model.n_blocks = n_blocks;
    of.recipe.model.dir = test_format("%s", tiny_model_write(&model));
    write_tokenizer(test_format("%s/tokenizer.json", of.recipe.model.dir));
    of.threads = 1;
#ifdef CALM_SANITIZED
    /* The shim is loaded before the sanitizer's library, and calls the system itself. */
    setenv("ASAN_OPTIONS", "detect_leaks=1:allocator_may_return_null=1:verify_asan_link_order=0", 1);
#endif
    return of;
}

program program_new(const play *of, const char *name)
{
    const char *dir = play_path(of, name);
    const program made = {.of = *of, .dir = dir, .store = test_format("%s/calm.db", dir),
                          .output = test_format("%s/out", dir)};
    program_clear(&made);
    return made;
}

void program_clear(const program *p)
{
    ck_ok(calm_remove_tree(ctx, p->dir));
    ck_ok(calm_make_directories(ctx, p->dir));
}

/* ---- the child ---- */

/* The environment of the child: this process's, and the variables that tell the shim what to do. */
static char **environment(const disturbance *wanted, const char *list)
{
    size_t n = 0;
    char **out;
    while (environ[n])
        n++;
    ck_ok(CALM_NEW(ctx, ctx->out, out, n + 9));
    memcpy(out, environ, n * sizeof *out);
    out[n++] = test_format("OPENBLAS_NUM_THREADS=1");    /* calm needs no more; starting them takes time */
    if (!getenv(CALM_BLAS_VARIABLE) && strcmp(calm_linalg_wanted(NULL), calm_linalg_kernels()) != 0)
        out[n++] = test_format("%s=%s", CALM_BLAS_VARIABLE, calm_linalg_wanted(NULL));    /* it does not start anew */
    if (wanted || list)
        out[n++] = test_format("LD_PRELOAD=%s", CALM_FAULT_SHIM);
    if (list)
        out[n++] = test_format("CALM_FAULT_LIST=%s", list);
    if (wanted) {
        out[n++] = test_format("CALM_FAULT_AT=%ld", wanted->at);
        out[n++] = test_format("CALM_FAULT_DO=%s", wanted->what);
        out[n++] = test_format("CALM_FAULT_STICKY=%d", wanted->sticky);
    }
    return out;
}

static pid_t start(const char *const *words, const char *out, int error, char **env)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    ck_assert_int_eq(posix_spawn_file_actions_init(&actions), 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, error, STDERR_FILENO);
    const int refused = posix_spawn(&child, CALM_PROGRAM, &actions, NULL, (char *const *)(uintptr_t)words, env);
    posix_spawn_file_actions_destroy(&actions);
    ck_assert_int_eq(refused, 0);
    return child;
}

/* Reads what comes through the pipe into `text`, cut off to fit. */
static void listen_to(int from, char *text, size_t room)
{
    char bytes[512];
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) != 0;) {
        ck_assert(n > 0 || errno == EINTR);
        const size_t take = n < 0 ? 0 : (size_t)n < room - 1 ? (size_t)n : room - 1;
        memcpy(text, bytes, take);
        text += take;
        room -= take;
    }
    *text = '\0';
}

/* Runs calm with these words.  Standard output goes to the file `out`; with `list` the shim lists the operations
 * there. */
static program_end run_words(const char *const *words, const char *out, const disturbance *wanted, const char *list)
{
    program_end end;
    int ends[2], status;
    calm_arena_mark mark = calm_arena_save(ctx->out);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = start(words, out, ends[1], environment(wanted, list));
    close(ends[1]);
    listen_to(ends[0], end.said, sizeof end.said);
    close(ends[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    calm_arena_rewind(ctx->out, mark);
    end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ck_assert_int_ne(end.status, 127);
    ck_assert_msg(end.status != SHIM_REFUSED, "%s", end.said);
    return end;
}

program_end program_call(const char *const *words, const disturbance *wanted)
{
    return run_words(words, "/dev/null", wanted, NULL);
}

/* ---- runs ---- */

static const char *report_path(const program *p)
{
    return test_format("%s.report", p->dir);
}

/* Writes to `words` the command line of the recipe of `of`. */
static void command_line(const program *p, bool force, const char *words[MAX_WORDS])
{
    const calm_recipe *r = &p->of.recipe;
    char scheme[CALM_SCHEME_NAME_MAX];
    const char *algorithms = calm_algorithm_name(r->pool[0].algorithm);
    size_t n = 0;
    calm_scheme_name(&r->schemes[0], scheme);
    for (size_t i = 1; i < r->n_pool; i++)
        algorithms = test_format("%s,%s", algorithms, calm_algorithm_name(r->pool[i].algorithm));
    const char *const all[] = {"calm",
                               "quantize",
                               "--quiet",
                               "--json",
                               "--model",
                               r->model.dir,
                               "--scheme",
                               test_format("%s", scheme),
                               "--algorithms",
                               algorithms,
                               "--calib",
                               r->calib_path,
                               "--eval-text",
                               r->eval_path,
                               "--samples",
                               test_format("%lld", r->calib_windows),
                               "--seqlen",
                               test_format("%lld", r->seqlen),
                               "--score-samples",
                               test_format("%lld", r->score_windows),
                               "--guard-samples",
                               test_format("%lld", r->guard_windows),
                               "--eval-samples",
                               test_format("%lld", r->eval_windows),
                               "--store",
                               p->store,
                               "--output",
                               p->output,
                               "--threads",
                               test_format("%d", p->of.threads)};
    for (; n < sizeof all / sizeof *all; n++)
        words[n] = all[n];
    if (force)
        words[n++] = "--force";
    words[n] = NULL;
}

program_end program_run(const program *p, const disturbance *wanted, bool force)
{
    const char *words[MAX_WORDS];
    command_line(p, force, words);
    return run_words(words, report_path(p), wanted, NULL);
}

static calm_status count_blob(calm_ctx *context, void *user, const char *digest, size_t n_bytes)
{
    (void)context, (void)digest, (void)n_bytes;
    ++*(size_t *)user;
    return CALM_OK;
}

size_t program_blobs(const program *p)
{
    size_t n = 0;
    ck_ok(calm_blob_walk(ctx, test_format("%s.blobs", p->store), count_blob, &n));
    return n;
}

static void sleep_a_moment(void)
{
    nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
}

/* Limits for a program that a signal stops: the CPU seconds per thread from the signal on, and the seconds in all,
 * since other programs may slow it down. */
#define STOP_WORK 1.0
#define STOP_SECONDS 20

static double of_timespec(struct timespec at)
{
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* CPU seconds of all threads of a child that has not been waited for. */
static double work_of(pid_t child)
{
    struct timespec at = {0};
    clockid_t clock;
    ck_assert_int_eq(clock_getcpuclockid(child, &clock), 0);
    ck_assert_int_eq(clock_gettime(clock, &at), 0);
    return of_timespec(at);
}

static double work_in(const struct rusage *usage)
{
    return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
           1e-6 * (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

program_end program_interrupt(const program *p, int signal, size_t n_blobs)
{
    const char *words[MAX_WORDS];
    program_end end = {0};
    int ends[2], status;
    pid_t ended = 0;
    struct rusage usage;
    command_line(p, false, words);
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = start(words, report_path(p), ends[1], environment(NULL, NULL));
    close(ends[1]);
    while (program_blobs(p) < n_blobs && (ended = waitpid(child, &status, WNOHANG)) == 0)
        sleep_a_moment();
    ck_assert_msg(ended == 0, "it ended before there were %zu blobs", n_blobs);
    const double worked = work_of(child);
    kill(child, signal);
    for (const double until = calm_seconds() + STOP_SECONDS; !ended && calm_seconds() < until;) {
        sleep_a_moment();
        ended = wait4(child, &status, WNOHANG, &usage);
    }
    if (!ended) {
        kill(child, SIGKILL);
        ck_abort_msg("%d seconds after signal %d it still ran", STOP_SECONDS, signal);
    }
    ck_assert_msg(work_in(&usage) - worked <= STOP_WORK * (double)p->of.threads,
                  "it worked for %g seconds after signal %d", work_in(&usage) - worked, signal);
    listen_to(ends[0], end.said, sizeof end.said);
    close(ends[0]);
    end.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return end;
}

int64_t program_cached(const program *p)
{
    static const char member[] = "\"candidates_from_store\":";
    char *text;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, report_path(p), 1 << 20, &text, &n_bytes));
    const char *at = strstr(text, member);
    ck_assert_msg(at != NULL, "no report: %s", text);
    return strtoll(at + strlen(member), NULL, 10);
}

/* ---- operations ---- */

static const char *list_path(const program *p)
{
    return test_format("%s.list", p->dir);
}

long program_count(program *p)
{
    const char *words[MAX_WORDS], *list = list_path(p);
    size_t n_bytes;
    long n = 0;
    program_clear(p);
    unlink(list);
    command_line(p, false, words);
    const program_end end = run_words(words, report_path(p), NULL, list);
    ck_assert_msg(end.status == 0, "%s", end.said);
    ck_ok(calm_read_file(ctx, list, 1 << 24, &p->operations, &n_bytes));
    for (size_t i = 0; i < n_bytes; i++)
        n += p->operations[i] == '\n';
    return n;
}

const char *program_operation(const program *p, long number)
{
    const char *at = p->operations;
    for (long i = 1; i < number && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return test_format("%ld", number);
    const char *name = test_format("%.*s", (int)strcspn(at, "\n"), at), *path = strstr(name, p->dir);
    return path ? test_format("%.*s...%s", (int)(path - name), name, path + strlen(p->dir)) : name;
}

/* ---- many runs ---- */

void *program_shared(size_t bytes)
{
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(made != MAP_FAILED);
    return made;
}

void program_spread(long n, void (*fn)(void *user, long point, int worker), void *user)
{
    pid_t child[N_WORKERS];
    int status[N_WORKERS];
    for (int w = 0; w < N_WORKERS; w++) {
        child[w] = fork();
        ck_assert_int_ge(child[w], 0);
        if (child[w])
            continue;
        for (long point = w; point < n; point += N_WORKERS)
            fn(user, point, w);
        fflush(stdout);
        _exit(0);
    }
    for (int w = 0; w < N_WORKERS; w++)
        ck_assert_int_eq(waitpid(child[w], &status[w], 0), child[w]);
    for (int w = 0; w < N_WORKERS; w++)
        ck_assert_msg(WIFEXITED(status[w]) && WEXITSTATUS(status[w]) == 0, "worker %d ended with %d", w, status[w]);
}

/* ---- what it left ---- */

/* Returns the first column of the first row, "" when there is none. */
static const char *first_text(calm_sql *sql, const char *select)
{
    calm_statement *rows;
    const char *cell = NULL;
    ck_ok(calm_sql_first(ctx, sql, select, CALM_NONE, &rows));
    if (calm_sql_next(ctx, sql, rows))
        ck_ok(calm_sql_text(ctx, rows, 0, &cell));
    calm_sql_end(rows);
    ck_ok(ctx->status);
    return cell ? cell : "";
}

const char *program_text(const program *p, const char *select)
{
    calm_sql *sql;
    ck_ok(calm_sql_open(ctx, p->store, CALM_SQL_READ, &sql));
    const char *text = first_text(sql, select);
    calm_sql_close(sql);
    return text;
}

int64_t program_number(const program *p, const char *select)
{
    return strtoll(program_text(p, select), NULL, 10);
}

/* Tells whether the store has the codes of another candidate of the job. */
static bool has_other(calm_sql *sql, const program *p, int64_t job, const char *digest)
{
    calm_statement *rows;
    bool found = false;
    ck_ok(calm_sql_first(ctx, sql, "SELECT blob FROM candidate WHERE job_id = ?1 AND blob <> ?2",
                         CALM_BIND(CALM_I(job), CALM_T(digest)), &rows));
    while (calm_sql_next(ctx, sql, rows)) {
        const char *other;
        ck_ok(calm_sql_text(ctx, rows, 0, &other));
        found |= calm_path_exists(test_format("%s.blobs/%.2s/%s", p->store, other, other + 2));
    }
    calm_sql_end(rows);
    return found;
}

/* Checks that every blob that a row names is there and sound.  Those of candidates that lost may be missing once the
 * results are written or the guard has passed their block; then the winner's codes are there. */
static void check_blobs(calm_sql *sql, const program *p, const char *where)
{
    const bool written = calm_path_exists(p->output);
    calm_statement *rows;
    ck_ok(calm_sql_first(ctx, sql, "SELECT blob, blob IN (SELECT k.blob FROM choice c JOIN candidate k ON k.id ="
                                   " c.candidate_id), job_id FROM candidate WHERE blob IS NOT NULL", CALM_NONE, &rows));
    while (calm_sql_next(ctx, sql, rows)) {
        const char *digest;
        calm_mapping map;
        ck_ok(calm_sql_text(ctx, rows, 0, &digest));
        const calm_status status = calm_blob_get(ctx, test_format("%s.blobs", p->store), digest, &map);
        if (status == CALM_ENOTFOUND && !calm_sql_int(rows, 1) &&
            (written || has_other(sql, p, calm_sql_int(rows, 2), digest))) {
            calm_ctx_clear_failure(ctx);
            continue;
        }
        ck_assert_msg(status == CALM_OK, "%s: %s", where, ctx->message);
        calm_unmap_file(&map);
    }
    calm_sql_end(rows);
}

static int64_t check_store(const program *p, const char *where)
{
    calm_store *store;
    calm_sql *sql;
    if (!calm_path_exists(p->store))
        return 0;
    const calm_status status = calm_store_open(ctx, p->store, NULL, &store);
    ck_assert_msg(status == CALM_OK, "%s: %s", where, ctx->message);
    calm_store_close(store);
    ck_ok(calm_sql_open(ctx, p->store, CALM_SQL_READ, &sql));
    const char *words = first_text(sql, "PRAGMA integrity_check");
    ck_assert_msg(strcmp(words, "ok") == 0, "%s: %s", where, words);
    words = first_text(sql, "PRAGMA foreign_key_check");
    ck_assert_msg(words[0] == '\0', "%s: a row of %s without its parent", where, words);
    check_blobs(sql, p, where);
    /* A candidate is stored together with all its scores and with its run. */
    words = first_text(sql, "SELECT count(*) FROM candidate WHERE (SELECT count(*) FROM score WHERE candidate_id = id)"
                            " < 8 OR id NOT IN (SELECT candidate_id FROM run_candidate)");
    ck_assert_msg(strcmp(words, "0") == 0, "%s: %s candidates without scores or run", where, words);
    const int64_t n = strtoll(first_text(sql, "SELECT count(*) FROM candidate"), NULL, 10);
    calm_sql_close(sql);
    return n;
}

const char *program_files(const program *p)
{
    struct dirent **found;
    const char *text = "";
    const int n = scandir(p->dir, &found, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (found[i]->d_name[0] != '.')
            text = test_format("%s%s%s", text, text[0] ? " " : "", found[i]->d_name);
        free(found[i]);
    }
    free(found);
    if (calm_path_exists(test_format("%s.blobs/tmp", p->store)) &&
        rmdir(test_format("%s.blobs/tmp", p->store)) != 0)
        text = test_format("%s calm.db.blobs/tmp/...", text);
    return text;
}

int64_t program_check(const program *p, const char *expected, const char *where)
{
    const char *found = play_digest(p->output);
    ck_assert_msg(!found || strcmp(found, expected) == 0, "%s: half an output:\n%s", where, found);
    return check_store(p, where);
}
