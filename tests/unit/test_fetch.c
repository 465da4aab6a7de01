/* Downloading a file from the hub: resumed, restarted, refused, verified. */
#include "ptq/hub/fetch.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "ptq/base/file.h"
#include "tests/support/faults.h"
#include "tests/support/harness.h"
#include "tests/support/hub_server.h"

#define N 1000

static char bytes[N];

/* A hub with the file under test, and a session. */
typedef struct play {
    hub_server hub;
    hub_file *served;
    calm_hub_settings settings;
    calm_hub_name name;
    calm_hub_session session;
    calm_hub_file file;
    size_t ticked, n_ticks;
} play;

static void tick(void *user, size_t done, size_t total)
{
    play *p = user;
    ck_assert_uint_le(done, total);
    ck_assert_uint_ge(done, p->ticked);
    p->ticked = done;
    p->n_ticks++;
}

static play *begin(bool lfs)
{
    static play p;
    memset(&p, 0, sizeof p);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (char)(i * i >> 2);
    p.hub.repo = "test/tiny";
    p.served = hub_add(&p.hub, "file", bytes, N, lfs);
    return &p;
}

static void open_it(play *p)
{
    char *repo_dir;
    hub_start(&p->hub);
    p->settings = hub_settings(&p->hub, test_directory());
    ck_ok(calm_hub_name_parse(ctx, "test/tiny", &p->name));
    ck_ok(calm_hub_repo_dir(ctx, &p->settings, &p->name, &repo_dir));
    p->session = (calm_hub_session){.settings = &p->settings,
                                    .name = &p->name,
                                    .repo_dir = repo_dir,
                                    .commit = HUB_COMMIT,
                                    .tick = tick,
                                    .tick_user = p,
                                    .total_bytes = N};
    ck_ok(calm_http_open(ctx, &p->settings, &p->session.http));
    p->file = (calm_hub_file){.name = "file", .bytes = (int64_t)p->served->n_bytes + p->served->extra};
    strcpy(p->file.etag, p->served->lfs ? p->served->sha256 : p->served->sha1);
}

static void end(play *p)
{
    calm_http_close(p->session.http);
    hub_stop(&p->hub);
}

static calm_status fetch(play *p)
{
    return calm_hub_fetch(ctx, &p->session, &p->file);
}

static const char *blob_path(const play *p, const char *suffix)
{
    return test_format("%s/blobs/%s%s", p->session.repo_dir, p->file.etag, suffix);
}

static void put_partial(const play *p, const char *what, size_t n)
{
    ck_ok(calm_make_parent(ctx, blob_path(p, ".incomplete")));
    ck_ok(calm_write_file(ctx, blob_path(p, ".incomplete"), what, n));
}

static void check_blob(const play *p)
{
    char *text;
    size_t n_bytes;
    ck_ok(calm_read_file(ctx, blob_path(p, ""), 1 << 20, &text, &n_bytes));
    ck_assert_uint_eq(n_bytes, p->served->n_bytes);
    ck_assert_mem_eq(text, p->served->bytes, n_bytes);
    ck_assert(!calm_path_exists(blob_path(p, ".incomplete")));
    ck_assert(p->file.fetched);
}

static void check_nothing_kept(const play *p)
{
    ck_assert(!calm_path_exists(blob_path(p, "")));
    ck_assert(!calm_path_exists(blob_path(p, ".incomplete")));
    ck_assert(!p->file.fetched);
}

static const char *range(const play *p, size_t request)
{
    ck_assert_uint_lt(request, p->hub.n_requests);
    return p->hub.requests[request].range;
}

TEST(a_file_comes_whole)
{
    for (int lfs = 0; lfs < 2; lfs++) {
        play *p = begin(lfs);
        open_it(p);
        ck_ok(fetch(p));
        check_blob(p);
        ck_assert_uint_eq(p->hub.n_requests, lfs ? 2 : 1);
        ck_assert_uint_eq(p->ticked, N);
        p->file.fetched = false;
        ck_ok(fetch(p));    /* nothing to do */
        ck_assert(!p->file.fetched);
        ck_assert_uint_eq(p->hub.n_requests, lfs ? 2 : 1);
        end(p);
    }
}
END_OF_TEST

TEST(cut_connections_are_gone_on_from)
{
    play *p = begin(true);
    p->served->cut_at = 300;
    p->served->n_cuts = 3;    /* more than attempts: those that bring bytes do not count */
    open_it(p);
    p->settings.attempts = 2;
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 8);    /* always via the hub, whose redirect is signed anew */
    ck_assert_str_eq(range(p, 1), "");
    ck_assert_str_eq(range(p, 3), "bytes=300-");
    ck_assert_str_eq(range(p, 5), "bytes=600-");
    ck_assert_str_eq(range(p, 7), "bytes=900-");
    ck_assert_uint_eq(p->ticked, N);
    end(p);
}
END_OF_TEST

TEST(attempts_that_bring_nothing_are_few)
{
    play *p = begin(false);
    p->served->n_cuts = 1000;    /* after no byte */
    open_it(p);
    ck_fails(fetch(p), CALM_EIO, "the connection broke off");
    ck_assert_uint_eq(p->hub.n_requests, 3);
    end(p);
}
END_OF_TEST

TEST(a_restart_that_never_gets_further_ends)
{
    play *p = begin(false);
    p->served->cut_at = 300;
    p->served->n_cuts = 1000;
    p->served->no_ranges = true;    /* 300 bytes each time, always the same ones */
    open_it(p);
    ck_fails(fetch(p), CALM_EIO, "test/tiny: file: the connection broke off");
    ck_assert_uint_eq(p->hub.n_requests, 3);    /* the first brought bytes, the others no new ones */
    end(p);
}
END_OF_TEST

TEST(the_next_call_goes_on)
{
    play *p = begin(true);
    open_it(p);
    put_partial(p, bytes, 400);
    ck_assert_int_eq(calm_hub_partial_bytes(ctx, &p->session, &p->file), 400);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_str_eq(range(p, 1), "bytes=400-");
    ck_assert_uint_eq(p->ticked, 600);
    end(p);
}
END_OF_TEST

TEST(an_interrupted_transfer_can_be_gone_on_with)
{
    atomic_bool stop = true;
    play *p = begin(true);
    open_it(p);
    ctx->stop = &stop;
    ck_assert_int_eq(fetch(p), CALM_EINTERRUPTED);
    ck_assert_str_eq(ctx->message, "interrupted");    /* a pull has no store that a sentence could speak of */
    calm_ctx_clear_failure(ctx);
    ck_assert(!calm_path_exists(blob_path(p, "")));
    ck_assert(!p->file.fetched);
    ck_ok(fetch(p));
    check_blob(p);
    ctx->stop = NULL;
    end(p);
}
END_OF_TEST

TEST(an_interruption_ends_the_attempts)
{
    atomic_bool stop = true;
    play *p = begin(false);
    p->served->n_cuts = 1000;    /* after no byte */
    open_it(p);
    ctx->stop = &stop;
    ck_fails(fetch(p), CALM_EINTERRUPTED, "interrupted");
    ck_assert_uint_eq(p->hub.n_requests, 1);
    ctx->stop = NULL;
    end(p);
}
END_OF_TEST

static void stop_at_pause(void *user, calm_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "trying again"))
        atomic_store((atomic_bool *)user, true);
}

TEST(an_interruption_ends_a_pause)
{
    atomic_bool stop = false;
    play *p = begin(false);
    p->served->n_cuts = 1000;
    open_it(p);
    p->settings.backoff_ms = 3000;
    ctx->stop = &stop;
    ctx->log = stop_at_pause;
    ctx->log_user = &stop;
    const time_t started = time(NULL);
    ck_fails(fetch(p), CALM_EINTERRUPTED, "interrupted");
    ck_assert_int_lt(time(NULL) - started, 2);
    ck_assert_uint_eq(p->hub.n_requests, 1);
    ctx->log = NULL;
    ctx->stop = NULL;
    end(p);
}
END_OF_TEST

static atomic_bool alarmed;

static void on_alarm(int number)
{
    (void)number;
    atomic_store(&alarmed, true);
}

TEST(a_long_wait_that_the_server_asks_for_is_kept)
{
    play *p = begin(false);
    p->served->status = 503;
    p->served->n_status = 1000;
    p->served->error = "Busy\r\nRetry-After: 3600";
    open_it(p);
    p->settings.backoff_ms = 1;
    ctx->stop = &alarmed;
    signal(SIGALRM, on_alarm);
    alarm(1);
    ck_fails(fetch(p), CALM_EINTERRUPTED, "interrupted");
    ck_assert_uint_eq(p->hub.n_requests, 1);
    ctx->stop = NULL;
    end(p);
}
END_OF_TEST

TEST(what_is_there_whole_is_only_verified)
{
    play *p = begin(true);
    open_it(p);
    put_partial(p, bytes, N);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 0);
    end(p);
}
END_OF_TEST

TEST(a_bad_beginning_is_fetched_anew)
{
    char other[N];
    play *p = begin(true);
    open_it(p);
    memset(other, 'x', N);
    put_partial(p, other, 400);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 4);
    ck_assert_str_eq(range(p, 1), "bytes=400-");
    ck_assert_str_eq(range(p, 3), "");
    end(p);
    p = begin(true);    /* longer than the file can be */
    p->served->n_bytes = 500;
    open_it(p);
    put_partial(p, bytes, 501);
    ck_assert_int_eq(calm_hub_partial_bytes(ctx, &p->session, &p->file), 0);
    ck_ok(fetch(p));
    check_blob(p);
    end(p);
}
END_OF_TEST

TEST(a_server_without_ranges_starts_over)
{
    play *p = begin(false);
    p->served->no_ranges = true;
    p->served->cut_at = 700;
    p->served->n_cuts = 1;
    open_it(p);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 2);
    ck_assert_str_eq(range(p, 1), "bytes=700-");
    ck_assert_uint_eq(p->ticked, N);
    end(p);
}
END_OF_TEST

TEST(a_wrong_range_is_refused)
{
    play *p = begin(false);
    p->served->wrong_range = true;
    open_it(p);
    put_partial(p, bytes, 400);
    ck_fails(fetch(p), CALM_EIO, "asked for the bytes from 400 on, got those from 399");
    end(p);
}
END_OF_TEST

TEST(a_range_that_the_server_has_not)
{
    play *p = begin(false);
    open_it(p);
    put_partial(p, bytes, N);
    p->file.bytes = -1;    /* so that the end is known only by 416 */
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 2);
    ck_assert_str_eq(range(p, 1), "");
    end(p);
}
END_OF_TEST

TEST(wrong_checksums_keep_nothing)
{
    for (int lfs = 0; lfs < 2; lfs++) {
        play *p = begin(lfs);
        p->served->flipped = true;
        open_it(p);
        ck_fails(fetch(p), CALM_EMISMATCH, lfs ? "expected SHA-256" : "expected git's SHA-1");
        check_nothing_kept(p);
        ck_assert_uint_eq(p->hub.n_requests, lfs ? 2 : 1);
        end(p);
    }
}
END_OF_TEST

TEST(wrong_sizes_keep_nothing)
{
    for (int unannounced = 0; unannounced < 2; unannounced++)
        for (long extra = -5; extra <= 5; extra += 10) {
            play *p = begin(true);
            p->served->extra = extra;
            p->served->unannounced = unannounced;
            open_it(p);
            ck_fails(fetch(p), CALM_EMISMATCH,
                     test_format("expected %ld bytes, as the hub lists, found %d", N + extra, N));
            check_nothing_kept(p);
            end(p);
        }
}
END_OF_TEST

TEST(a_body_without_end_is_stopped)
{
    static char large[4 << 20];
    play *p = begin(true);
    p->served->bytes = large;
    p->served->n_bytes = sizeof large;
    p->served->extra = 10 - (long)sizeof large;    /* the listing says ten bytes */
    p->served->unannounced = true;
    open_it(p);
    ck_assert_int_eq(fetch(p), CALM_EMISMATCH);
    ck_assert_ptr_nonnull(strstr(ctx->message, "expected 10 bytes, as the hub lists, found "));
    ck_assert_ptr_null(strstr(ctx->message, test_format("found %zu", sizeof large)));    /* not after all of it */
    calm_ctx_clear_failure(ctx);
    check_nothing_kept(p);
    end(p);
}
END_OF_TEST

TEST(answers_that_pass)
{
    play *p = begin(false);
    p->served->status = 503;
    p->served->n_status = 2;
    open_it(p);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 3);
    end(p);
    p = begin(false);
    p->served->status = 503;
    p->served->n_status = 3;
    open_it(p);
    ck_fails(fetch(p), CALM_EIO, "answered 503");
    end(p);
    p = begin(false);
    p->served->status = 403;    /* permanent */
    p->served->n_status = 1;
    p->served->error = "GatedRepo";
    open_it(p);
    ck_fails(fetch(p), CALM_EIO, "test/tiny is gated");
    ck_assert_uint_eq(p->hub.n_requests, 1);
    end(p);
}
END_OF_TEST

TEST(a_stalled_transfer_can_be_gone_on_with)
{
    play *p = begin(false);
    p->served->cut_at = 10;    /* few: curl looks at the mean rate of some seconds */
    p->served->stalls = true;
    open_it(p);
    p->settings.attempts = 1;
    ck_fails(fetch(p), CALM_EIO, "nothing came for 1 s");
    ck_assert_int_eq(calm_hub_partial_bytes(ctx, &p->session, &p->file), 10);
    p->served->stalls = false;
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_str_eq(range(p, 1), "bytes=10-");
    end(p);
}
END_OF_TEST

TEST(a_full_disk)
{
    play *p = begin(false);
    open_it(p);
    p->session.tick = NULL;    /* whose assertions write too */
    put_partial(p, bytes, 100);
    ck_ok(calm_make_directories(ctx, test_format("%s/.locks/%s", p->settings.cache, p->name.folder)));
    /* The folders exist, so the first writes are mkdir calls that find them; each call fails in turn. */
    long at = 1;
    bool in_body = false;
    for (calm_status status = CALM_EIO; status != CALM_OK; at++) {
        ck_assert_int_lt(at, 100);
        fault_plan((fault){.at = at, .error = ENOSPC, .stays = true});
        status = fetch(p);
        fault_plan((fault){.at = 0});
        ck_assert(status == CALM_OK || status == CALM_ENOSPC);
        in_body |= strstr(ctx->message, "test/tiny: file: the disk is full") != NULL;
        ck_assert(status == CALM_OK || calm_hub_partial_bytes(ctx, &p->session, &p->file) >= 100);    /* kept */
        calm_ctx_clear_failure(ctx);
    }
    ck_assert(in_body);
    ck_assert_int_gt(at, 3);    /* the write of the body, fsync, rename */
    check_blob(p);
    end(p);
}
END_OF_TEST

TEST(an_empty_file)
{
    play *p = begin(false);
    p->served->n_bytes = 0;
    open_it(p);
    ck_ok(fetch(p));
    check_blob(p);
    ck_assert_uint_eq(p->hub.n_requests, 0);    /* its name is its digest */
    end(p);
}
END_OF_TEST

TEST(metadata_of_a_mirror_that_lists_names_alone)
{
    for (int lfs = 0; lfs < 2; lfs++) {
        play *p = begin(lfs);
        open_it(p);
        calm_hub_file file = {.name = "file", .bytes = -1};
        ck_ok(calm_hub_get_metadata(ctx, &p->session, &file));
        ck_assert_int_eq(file.bytes, N);
        ck_assert_str_eq(file.etag, p->file.etag);
        file.name = "none";
        ck_fails(calm_hub_get_metadata(ctx, &p->session, &file), CALM_ENOTFOUND, "test/tiny: none");
        end(p);
    }
}
END_OF_TEST

TEST(answers_into_memory_have_a_limit)
{
    play *p = begin(false);
    calm_text text;
    open_it(p);
    calm_text_init(&text);
    const char *url = test_format("%s/test/tiny/resolve/" HUB_COMMIT "/file", p->hub.endpoint);
    ck_ok(calm_hub_get_text(ctx, &p->session, url, "it", N, &text));
    ck_assert_uint_eq(text.length, N);
    ck_fails(calm_hub_get_text(ctx, &p->session, url, "it", N - 1, &text), CALM_EFORMAT,
             "it: the hub's answer is larger");
    p->served->unannounced = true;
    ck_fails(calm_hub_get_text(ctx, &p->session, url, "it", N - 1, &text), CALM_EFORMAT,
             "it: the hub's answer is larger");
    p->served->cut_at = 10;
    p->served->n_cuts = 1;
    p->served->unannounced = false;
    ck_ok(calm_hub_get_text(ctx, &p->session, url, "it", N, &text));    /* the second attempt, from the start */
    ck_assert_uint_eq(text.length, N);
    ck_assert_mem_eq(text.data, bytes, N);
    calm_text_clear(&text);
    end(p);
}
END_OF_TEST

int main(void)
{
    return run_tests("fetch",
                     (const TTest *[]){a_file_comes_whole, cut_connections_are_gone_on_from,
                                       attempts_that_bring_nothing_are_few, a_restart_that_never_gets_further_ends,
                                       the_next_call_goes_on, an_interrupted_transfer_can_be_gone_on_with,
                                       an_interruption_ends_the_attempts, an_interruption_ends_a_pause,
                                       a_long_wait_that_the_server_asks_for_is_kept,
                                       what_is_there_whole_is_only_verified, a_bad_beginning_is_fetched_anew,
                                       a_server_without_ranges_starts_over,
                                       a_wrong_range_is_refused, a_range_that_the_server_has_not,
                                       wrong_checksums_keep_nothing, wrong_sizes_keep_nothing,
                                       a_body_without_end_is_stopped, answers_that_pass,
                                       a_stalled_transfer_can_be_gone_on_with, a_full_disk, an_empty_file,
                                       metadata_of_a_mirror_that_lists_names_alone, answers_into_memory_have_a_limit,
                                       NULL});
}
