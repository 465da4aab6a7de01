/* Each operation of the program on the disk fails in turn: as on a full disk, where all later ones fail too, or as
 * on a device that fails once.  The program then says which file it was and why, leaves nothing half-written under
 * the output's name and a sound store, and the same command ends with the same bytes when the disk works again. */
#include <stdatomic.h>
#include <stdio.h>

#include "ptq/base/file.h"
#include "tests/program/program.h"

#ifdef CALM_SANITIZED
#define STEP 61
#else
#define STEP 3    /* one by a full disk, one by the device, one not; 1, all by both, after a change of what writes */
#endif

/* One of this many failed runs is started again: test_program_kills resumes at more points. */
#define RESUME_EVERY 5

#define BLOCKS 1
#define POOL "rtn,gptq"
#define N_CANDIDATES 8    /* 4 jobs x 2 algorithms */

/* Counts over all operations, shared by the workers. */
typedef struct tally {
    atomic_long failed, harmless, wrong;
} tally;

/* What all operations have in common, but for the directory of `p` and the number of the operation. */
typedef struct refusal {
    program p;
    const char *digest, *files;
    disturbance wanted;
    const char *words;    /* one of them must be in the message, separated by | */
    tally *count;
} refusal;

/* Reports a fault and continues with the other operations, so that one run of the test reports all faults. */
static void must(const refusal *r, bool holds, const char *where, const char *what, const char *detail)
{
    if (holds)
        return;
    atomic_fetch_add(&r->count->wrong, 1);
    printf("%s: %s: %s\n", where, what, detail);
}

static bool has_one_of(const char *text, const char *words)
{
    for (const char *at = words; *at;) {
        const size_t n = strcspn(at, "|");
        if (strstr(text, test_format("%.*s", (int)n, at)))
            return true;
        at += n + (at[n] == '|');
    }
    return false;
}

/* Checks that the program said what it could not do. */
static void check_message(const refusal *r, const program_end *end, const char *where)
{
    must(r, end->signal == 0, where, "a crash", end->said);
    must(r, end->status == 1, where, test_format("exit status %d", end->status), end->said);
    must(r, strchr(end->said, '/') && has_one_of(end->said, r->words), where, "unclear", end->said);
}

/* Checks that the row of the run says the same, where the disk works again. */
static void check_row(const refusal *r, const program_end *end, const char *where)
{
    if (r->wanted.sticky || !calm_path_exists(r->p.store))
        return;
    const char *row = program_text(&r->p, "SELECT status || ' ' || coalesce(reason, '') FROM run ORDER BY id DESC");
    const size_t n = strlen("failed ");
    must(r, !row[0] || (strncmp(row, "failed ", n) == 0 && strstr(end->said, row + n)), where, row, end->said);
}

static void check_resume(const refusal *r, int64_t have, const char *where)
{
    const program_end end = program_run(&r->p, NULL, calm_path_exists(r->p.output));
    must(r, end.status == 0, where, "not resumed", end.said);
    if (end.status != 0)
        return;
    must(r, program_cached(&r->p) == have, where, "candidates used",
         test_format("%lld of %lld", (long long)program_cached(&r->p), (long long)have));
    must(r, strcmp(play_digest(r->p.output), r->digest) == 0, where, "resumed to other bytes",
         play_digest(r->p.output));
    must(r, strcmp(program_files(&r->p), r->files) == 0, where, "left behind", program_files(&r->p));
}

static void refuse(void *user, long point, int worker)
{
    refusal own = *(const refusal *)user, *r = &own;
    r->wanted.at = 1 + point * STEP + (r->wanted.sticky ? 0 : STEP / 2);
    const char *where = test_format("%s at %s", r->wanted.what, program_operation(&r->p, r->wanted.at));
    r->p = program_new(&r->p.of, test_format("refused%d", worker));
    const program_end end = program_run(&r->p, &r->wanted, false);
    const int64_t have = program_check(&r->p, r->digest, where);
    if (end.status == 0) {
        must(r, play_digest(r->p.output) && have == N_CANDIDATES, where, "failed unseen", end.said);
        atomic_fetch_add(&r->count->harmless, 1);
        return;
    }
    atomic_fetch_add(&r->count->failed, 1);
    check_message(r, &end, where);
    check_row(r, &end, where);
    if (point % RESUME_EVERY == 0)
        check_resume(r, have, where);
}

static void refuse_all(const char *what, bool sticky, const char *words)
{
    const play of = program_play(BLOCKS, POOL);
    tally *count = program_shared(sizeof *count);
    refusal all = {.p = program_new(&of, "run"), .wanted = {.what = what, .sticky = sticky}, .words = words,
                   .count = count};
    const long n = program_count(&all.p);
    all.digest = play_digest(all.p.output);
    all.files = program_files(&all.p);
    program_spread(n / STEP, refuse, &all);
    printf("%s: %ld operations, %ld runs failed, %ld did not mind\n", what, n, count->failed, count->harmless);
    ck_assert_int_eq(count->wrong, 0);
    ck_assert_int_gt(count->failed, 5 * count->harmless);
}

TEST(disk_full)
{
    refuse_all("ENOSPC", true, "No space left on device|disk is full");
}
END_OF_TEST

TEST(device_that_fails_once)
{
    refuse_all("EIO", false, "Input/output error|disk I/O error");
}
END_OF_TEST

int main(void)
{
    return run_tests("program_refusals", (const TTest *[]){disk_full, device_that_fails_once, NULL});
}
