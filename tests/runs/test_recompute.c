/* Codes of rejected candidates: they are dropped at the end of a run, and computed again with the same bytes when
 * they are needed. */
#include <string.h>

#include "ptq/base/file.h"
#include "store/blob.h"
#include "tests/support/play.h"

#define POOL "rtn,gptq,mkq"
#define N_CANDIDATES 24    /* 2 blocks x 4 jobs x 3 algorithms */

/* Makes a run of one thread: two would mostly wait for each other in models of this size. */
static play new_play(const tiny_model *spec, const char *scheme, const char *algorithms)
{
    play run = play_new(spec, scheme, algorithms);
    run.threads = 1;
    return run;
}

/* ---- blobs of a store ---- */

/* The digests of all files, sorted, one per line; their number and bytes. */
typedef struct there {
    const char *lines;
    size_t n, bytes;
} there;

static calm_status add(calm_ctx *context, void *user, const char *digest, size_t n_bytes)
{
    there *out = user;
    (void)context;
    out->lines = test_format("%s%s\n", out->lines, digest);
    out->n++;
    out->bytes += n_bytes;
    return CALM_OK;
}

static there walk(const play *run)
{
    there out = {.lines = ""};
    ck_ok(calm_blob_walk(ctx, test_format("%s.blobs", run->recipe.store), add, &out));
    return out;
}

static size_t blobs(const play *run)
{
    return walk(run).n;
}

/* Returns the number of digests selected by `select` that have no file. */
static size_t absent(const play *run, const char *select)
{
    size_t n = 0;
    for (const char *at = play_text(run, select); *at; at += 65) {
        const char *digest = test_format("%.64s", at);
        n += !calm_is_file(test_format("%s.blobs/%.2s/%s", run->recipe.store, digest, digest + 2));
    }
    return n;
}

#define DIGESTS "SELECT DISTINCT blob FROM candidate WHERE blob IS NOT NULL"
#define CHOSEN "SELECT DISTINCT blob FROM candidate WHERE id IN (SELECT candidate_id FROM choice)"

/* Returns keys, results and scores of all candidates, which must not change when codes are dropped and computed
 * again. */
static const char *rows(const play *run)
{
    return play_text(run, "SELECT k.key || ' ' || coalesce(k.blob, k.failure) || ' ' || coalesce((SELECT"
                          " group_concat(unit || metric || value) FROM (SELECT * FROM score WHERE candidate_id = k.id"
                          " ORDER BY unit, metric)), '') FROM candidate k ORDER BY k.key");
}

static play with_output(const play *run, const char *name)
{
    play other = *run;
    other.recipe.output = play_path(run, name);
    return other;
}

/* Returns the same run with another store that keeps all candidates. */
static play keeping(const play *run)
{
    play other = play_elsewhere(run, "keeping");
    other.recipe.keep_candidates = true;
    return other;
}

/* Returns the digest of the written weights; the recipe differs by what it keeps. */
static const char *weights(const play *run)
{
    char digest[CALM_SHA256_HEX];
    ck_ok(calm_sha256_file(ctx, test_format("%s/model.safetensors", run->recipe.output), digest));
    return test_format("%s", digest);
}

/* Returns an algorithm that is not the run's result and that the fewest jobs chose. */
static const char *loser(const play *run)
{
    const char *name = play_text(run, "SELECT a.name FROM algorithm a JOIN run r LEFT JOIN candidate k ON"
                                      " k.algorithm_id = a.id LEFT JOIN choice c ON c.candidate_id = k.id"
                                      " WHERE a.name NOT LIKE '% for %' AND a.name <> r.result GROUP BY a.id"
                                      " ORDER BY count(c.job_id) LIMIT 1");
    return test_format("%.*s", (int)strcspn(name, "\n"), name);
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        n++;
    return n;
}

/* Returns a run with so many weights that rows of the guard take less than codes. */
static play of_four_blocks(void)
{
    tiny_model spec = tiny_default;
    spec.n_blocks = 4;
    spec.hidden = 64;
    spec.inner = 512;
    return new_play(&spec, "w3a16_g16", POOL);
}

/* ---- what is kept ---- */

TEST(losers_are_dropped)
{
    const play run = new_play(NULL, "w3a16_g16", POOL), kept = keeping(&run);
    const outcome said = play_must_run(&run);
    play_must_run(&kept);
    ck_assert_str_eq(weights(&run), weights(&kept));
    ck_assert(strcmp(rows(&run), rows(&kept)) == 0);
    const size_t all = (size_t)play_sql(&kept, "SELECT count(DISTINCT blob) FROM candidate");
    ck_assert_uint_eq(blobs(&kept), all);
    ck_assert_uint_lt(blobs(&run), all);
    ck_assert_uint_eq(absent(&run, CHOSEN), 0);
    /* Only the choices and the result are kept. */
    ck_assert_uint_eq(
        blobs(&run),
        (size_t)play_sql(&run, "SELECT count(DISTINCT k.blob) FROM candidate k JOIN algorithm a ON a.id ="
                               " k.algorithm_id JOIN run r WHERE a.name = r.result OR k.id IN (SELECT candidate_id"
                               " FROM choice)"));
    ck_assert_msg(count(said.log, "rejected candidates: ") == 1, "%s", said.log);
}
END_OF_TEST

/* The same command finds all that it needs. */
TEST(the_same_again_computes_nothing)
{
    const play run = new_play(NULL, "w3a16_g16", POOL), again = with_output(&run, "again");
    play_must_run(&run);
    const size_t n = blobs(&run);
    const outcome said = play_must_run(&again);
    ck_assert_uint_eq(said.cached, N_CANDIDATES);
    ck_assert_msg(!strstr(said.log, "again"), "%s", said.log);
    ck_assert_str_eq(play_digest(run.recipe.output), play_digest(again.recipe.output));
    ck_assert_uint_eq(blobs(&run), n);
}
END_OF_TEST

/* ---- what is computed again ---- */

static void check_loser(const play *run)
{
    const play kept = keeping(run);
    play other = with_output(run, "other"), expected = with_output(&kept, "expected");
    play_must_run(run);
    const char *before = rows(run);
    play_must_run(&kept);
    play_pool(&other, NULL, loser(run));
    play_pool(&expected, NULL, loser(run));
    play_must_run(&expected);
    ck_assert_str_ne(weights(&expected), weights(&kept));
    const outcome said = play_must_run(&other);
    ck_assert_msg(count(said.log, "computed again") == 1, "%s", said.log);
    ck_assert_str_eq(weights(&other), weights(&expected));
    ck_assert(strcmp(rows(run), before) == 0);
    ck_assert_uint_eq(absent(run, CHOSEN), 0);    /* of both runs */
    ck_assert_uint_lt(blobs(run), blobs(&kept));
}

TEST(a_loser_alone)
{
    const play run = new_play(NULL, "w2a16_g16", POOL);
    check_loser(&run);
}
END_OF_TEST

static tiny_model mixture_of(size_t n_blocks)
{
    tiny_model spec = tiny_of("qwen3_moe");
    spec.expert_inner = 64;
    spec.shared_inner = 128;
    spec.n_blocks = n_blocks;
    return spec;
}

/* Experts are processed in waves; some candidates are equal, because their experts have few tokens. */
TEST(a_loser_of_a_mixture)
{
    const tiny_model spec = mixture_of(2);
    const play run = new_play(&spec, "w2a16_g16", POOL);
    check_loser(&run);
}
END_OF_TEST

/* A guard with other windows measures every uniform run, so all codes are computed again and dropped again. */
static void check_guard(const play *run)
{
    play more = with_output(run, "more"), kept = keeping(run), expected = with_output(&kept, "expected");
    more.recipe.guard_windows = expected.recipe.guard_windows = 4;
    play_must_run(run);
    play_must_run(&kept);
    play_must_run(&expected);
    ck_assert_uint_gt(absent(run, DIGESTS), 0);
    const char *before = rows(run);
    play undisturbed = play_elsewhere(run, "undisturbed");
    play_must_run(&undisturbed);
    undisturbed.recipe.guard_windows = 4;
    undisturbed.recipe.output = play_path(run, "undisturbed2");
    const outcome said = play_must_run(&undisturbed);
    ck_assert_msg(count(said.log, "computed again") >= 1, "%s", said.log);
    /* Uniform runs are assembled block by block, so the codes of all blocks never exist at one time. */
    for (long i = 1; i < 6; i += 2) {
        ck_assert(play_run(&more, (fault){.at = said.calls * i / 8}).killed);
        ck_assert_uint_lt(walk(&more).bytes, walk(&expected).bytes);
    }
    play_must_run(&more);
    ck_assert(strcmp(rows(run), before) == 0);
    ck_assert_str_eq(weights(&more), weights(&expected));
    ck_assert_str_eq(play_text(run, "SELECT e.kl FROM run_evaluation r JOIN evaluation e ON e.id = r.evaluation_id"
                                    " WHERE role = 'guard' ORDER BY run_id, r.subject"),
                     play_text(&kept, "SELECT e.kl FROM run_evaluation r JOIN evaluation e ON e.id = r.evaluation_id"
                                      " WHERE role = 'guard' ORDER BY run_id, r.subject"));
    ck_assert_uint_gt(absent(run, DIGESTS), 0);
}

TEST(another_guard)
{
    const play run = of_four_blocks();
    check_guard(&run);
}
END_OF_TEST

/* The blocks before are run with their choices. */
TEST(another_guard_behind_a_quantized_prefix)
{
    play run = of_four_blocks();
    run.recipe.prefix = CALM_PREFIX_QUANTIZED;
    check_guard(&run);
}
END_OF_TEST

/* If the chosen codes are missing too, a quantized prefix computes them on the way. */
TEST(a_prefix_without_its_codes)
{
    play run = new_play(NULL, "w3a16_g16", POOL), again = with_output(&run, "again");
    run.recipe.prefix = again.recipe.prefix = CALM_PREFIX_QUANTIZED;
    play_must_run(&run);
    const char *before = rows(&run);
    ck_ok(calm_remove_tree(ctx, test_format("%s.blobs", run.recipe.store)));
    play_must_run(&again);
    ck_assert_str_eq(play_digest(again.recipe.output), play_digest(run.recipe.output));
    ck_assert(strcmp(rows(&run), before) == 0);
    ck_assert_uint_eq(absent(&run, CHOSEN), 0);
}
END_OF_TEST

/* Two algorithms with equal results share a blob: it is kept for both, and neither is copied from a missing one. */
TEST(twins)
{
    const tiny_model spec = tiny_of("qwen2");
    play run = new_play(&spec, "w4a4_g16", "rtn,gptq,absmax+nearest+bias"), more = with_output(&run, "more");
    more.recipe.guard_windows = 4;
    play_must_run(&run);
    const char *before = rows(&run);
    ck_ok(calm_remove_tree(ctx, test_format("%s.blobs", run.recipe.store)));
    play_must_run(&more);
    ck_assert(strcmp(rows(&run), before) == 0);
    ck_assert_uint_eq(absent(&run, CHOSEN), 0);
}
END_OF_TEST

/* Probes measure groups of candidates, and scores of units need the codes of all jobs: one pass computes all of them
 * again. */
TEST(later_scores)
{
    play run = new_play(NULL, "w3a16_g16", POOL), kept = keeping(&run);
    play probes = with_output(&run, "probes"), expected = with_output(&kept, "probes2");
    probes.recipe.selection.score = expected.recipe.selection.score = CALM_SCORE_PROBE_KL;
    play units = with_output(&run, "units"), of_kept = with_output(&kept, "units2");
    units.recipe.score_points = of_kept.recipe.score_points = (1u << CALM_N_POINTS) - 1;
    play_must_run(&run);
    play_must_run(&kept);
    const outcome said = play_must_run(&probes);
    play_must_run(&expected);
    ck_assert_msg(count(said.log, "computed again") == 1, "%s", said.log);
    ck_assert(strcmp(rows(&run), rows(&kept)) == 0);
    ck_assert_uint_gt(absent(&run, DIGESTS), 0);
    play_must_run(&units);
    play_must_run(&of_kept);
    ck_assert(strcmp(rows(&run), rows(&kept)) == 0);
    ck_assert_uint_gt(absent(&run, DIGESTS), 0);
}
END_OF_TEST

/* A run that keeps all candidates has them also in a store that had dropped some. */
TEST(kept_later)
{
    const play run = new_play(NULL, "w3a16_g16", POOL);
    play later = with_output(&run, "later"), third = with_output(&run, "third");
    later.recipe.keep_candidates = true;
    play_must_run(&run);
    const size_t gone = absent(&run, DIGESTS);
    const char *before = rows(&run);
    ck_assert_uint_gt(gone, 0);
    const outcome said = play_must_run(&later);
    ck_assert_uint_le(said.cached, N_CANDIDATES - gone);
    ck_assert_uint_eq(absent(&run, DIGESTS), 0);
    ck_assert(strcmp(rows(&run), before) == 0);
    /* A later run leaves the candidates to the run that keeps them. */
    play_must_run(&third);
    ck_assert_uint_eq(absent(&run, DIGESTS), 0);
}
END_OF_TEST

/* Without a guard a block's rejected candidates are dropped when the block is chosen, before the next one is read;
 * neither the run nor one that resumes it needs them again. */
static void check_shedding(const play *run)
{
    const play kept = keeping(run);
    const outcome said = play_must_run(run);
    size_t gone = 0;
    play_must_run(&kept);
    ck_assert_msg(!strstr(said.log, "computed again"), "%s", said.log);
    ck_assert_msg(count(said.log, "rejected candidates: ") == 1, "%s", said.log);
    ck_assert_str_eq(weights(run), weights(&kept));
    ck_assert(strcmp(rows(run), rows(&kept)) == 0);
    ck_assert_uint_eq(absent(run, CHOSEN), 0);
    for (long i = 3; i < 7; i += 2) {
        const play killed = play_elsewhere(run, test_format("killed%ld", i));
        ck_assert(play_run(&killed, (fault){.at = said.calls * i / 8}).killed);
        if (play_sql(&killed, "SELECT count(*) FROM choice") == 0)    /* killed among the blocks */
            gone = calm_size_max(gone, absent(&killed, DIGESTS));
        const outcome resumed = play_must_run(&killed);
        ck_assert_msg(!strstr(resumed.log, "computed again"), "%s", resumed.log);
        ck_assert_str_eq(weights(&killed), weights(&kept));
        ck_assert(strcmp(rows(&killed), rows(&kept)) == 0);
        ck_assert_uint_eq(blobs(&killed), blobs(run));
    }
    ck_assert_uint_gt(gone, 0);
}

TEST(losers_go_block_by_block)
{
    play run = new_play(NULL, "w3a16_g16", POOL);
    run.recipe.guard_windows = 0;
    check_shedding(&run);
}
END_OF_TEST

TEST(losers_go_behind_a_quantized_prefix)
{
    play run = new_play(NULL, "w3a16_g16", POOL);
    run.recipe.guard_windows = 0;
    run.recipe.prefix = CALM_PREFIX_QUANTIZED;
    check_shedding(&run);
}
END_OF_TEST

/* ---- a guard that measures block by block ---- */

/* Returns all measurements, window by window. */
static const char *figures(const play *run)
{
    return play_text(run, "SELECT e.key || ' ' || e.nll || ' ' || coalesce(e.kl, '') || ' ' || coalesce(e.top1, '') ||"
                          " ' ' || (SELECT group_concat(nll || ' ' || coalesce(kl, '')) FROM (SELECT * FROM"
                          " evaluation_window WHERE evaluation_id = e.id ORDER BY number)) FROM evaluation e JOIN"
                          " run_evaluation r ON r.evaluation_id = e.id WHERE r.role <> 'test' ORDER BY r.role,"
                          " r.subject");
}

static bool has_rows(const play *run)
{
    return calm_path_exists(test_format("%s.guard", run->recipe.store));
}

/* Checks that a run has the results of a run that kept all codes, and left no file of rows. */
static void expect_same(const play *run, const outcome *said, const play *kept, const outcome *all)
{
    ck_assert_str_eq(said->verdict, all->verdict);
    ck_assert_str_eq(weights(run), weights(kept));
    ck_assert(strcmp(rows(run), rows(kept)) == 0);
    ck_assert_str_eq(figures(run), figures(kept));
    ck_assert_uint_eq(absent(run, CHOSEN), 0);
    ck_assert(!has_rows(run) && !calm_path_exists(test_format("%s.guard.new", run->recipe.store)));
}

/* The guard runs its plans through each block once it is chosen, so that rejected candidates are dropped then.  It
 * measures what a guard measures that has all codes at the end.  `again`: the result may be a uniform run, whose
 * codes are computed again. */
static void check_beside(const play *run, bool again, long step)
{
    const play kept = keeping(run);
    const outcome said = play_must_run(run), all = play_must_run(&kept);
    size_t most = walk(run).bytes, went_on = 0;
    ck_assert_msg(again || !strstr(said.log, "computed again"), "%s", said.log);
    expect_same(run, &said, &kept, &all);
    for (long i = 1; i < 16; i += step) {
        const play killed = play_elsewhere(run, test_format("killed%ld", i));
        ck_assert(play_run(&killed, (fault){.at = said.calls * i / 16}).killed);
        most = calm_size_max(most, walk(&killed).bytes);
        went_on += has_rows(&killed);
        const outcome resumed = play_must_run(&killed);
        ck_assert_msg(again || !strstr(resumed.log, "computed again"), "%s", resumed.log);
        expect_same(&killed, &resumed, &kept, &all);
    }
    ck_assert_uint_gt(went_on, 0);
    /* Three of four blocks have dropped their rejected candidates before the last one; equal candidates share a
     * blob. */
    ck_assert_uint_lt(most, walk(&kept).bytes * 4 / 5);
}


TEST(losers_go_beside_the_guard)
{
    play run = of_four_blocks();
    run.recipe.keep_hybrid = true;
    check_beside(&run, false, 5);
}
END_OF_TEST

/* If a uniform run is taken, or an undecided guard extends, codes are computed again. */
TEST(whatever_the_guard_takes)
{
    const play run = of_four_blocks();
    check_beside(&run, true, 5);
}
END_OF_TEST

/* Experts are run in batches, and the routing of a batch decides the order of sums. */
TEST(beside_the_guard_of_a_mixture)
{
    tiny_model spec = mixture_of(4);
    play run = new_play(&spec, "w3a16_g16", POOL);
    run.threads = 2;
    run.recipe.keep_hybrid = true;
    check_beside(&run, false, 5);
}
END_OF_TEST

/* More rows than one batch of an evaluation, which decides the tokens that an expert gets together. */
TEST(beside_the_guard_in_batches)
{
    tiny_model spec = mixture_of(1);
    play run = new_play(&spec, "w3a16_g16", "rtn,gptq");
    run.recipe.eval_path = NULL;
    run.recipe.calib_path = test_format("%s/recipes/text/wikitext2-valid.txt", CALM_SOURCE_DIR);
    run.recipe.seqlen = 64;
    const calm_config config = {.hidden = spec.hidden};
    run.recipe.guard_windows = (long long)(calm_evaluation_rows(&config) / 64 + 2);
    ck_assert_uint_lt(calm_evaluation_batch(&config, (size_t)run.recipe.guard_windows, 64), run.recipe.guard_windows);
    const play kept = keeping(&run);
    const outcome said = play_must_run(&run), all = play_must_run(&kept);
    expect_same(&run, &said, &kept, &all);
}
END_OF_TEST

/* If the rows are missing or invalid, their plans are measured as in a later run. */
TEST(rows_that_cannot_be_used)
{
    play run = of_four_blocks();
    run.recipe.keep_hybrid = true;
    const play kept = keeping(&run);
    const outcome said = play_must_run(&run), all = play_must_run(&kept);
    for (int how = 0; how < 4; how++) {
        const play killed = play_elsewhere(&run, test_format("killed%d", how));
        const char *path = test_format("%s.guard", killed.recipe.store);
        char *bytes;
        size_t n;
        ck_assert(play_run(&killed, (fault){.at = said.calls / 2}).killed);
        ck_assert(has_rows(&killed));
        const size_t before = walk(&killed).bytes;
        ck_ok(calm_read_file(ctx, path, (size_t)1 << 24, &bytes, &n));
        if (how == 0)
            ck_ok(calm_remove_tree(ctx, path));
        else    /* truncated; of another run; of an invalid class */
            ck_ok(calm_write_file(ctx, path, bytes, how == 1 ? n / 2 : n));
        memset(bytes + (how == 2 ? 8 : 104), 'x', 8);
        if (how > 1)
            ck_ok(calm_write_file(ctx, path, bytes, n));
        const outcome resumed = play_must_run(&killed);
        ck_assert_msg(strstr(resumed.log, "computed again") != NULL, "%s", resumed.log);
        expect_same(&killed, &resumed, &kept, &all);
        ck_assert_uint_lt(before, walk(&kept).bytes);
    }
}
END_OF_TEST

TEST(beside_the_guard_behind_a_quantized_prefix)
{
    play run = of_four_blocks();
    run.recipe.keep_hybrid = true;
    run.recipe.prefix = CALM_PREFIX_QUANTIZED;
    check_beside(&run, false, 5);
}
END_OF_TEST

/* Blocks outside of the recipe's range are float in every plan; rtn needs no calibration pass. */
TEST(beside_the_guard_of_some_blocks)
{
    play run = of_four_blocks();
    run.recipe.first_block = 1;
    run.recipe.last_block = 2;
    play_pool(&run, NULL, "rtn");
    run.recipe.score_points = 0;
    run.recipe.score_windows = 0;
    const play kept = keeping(&run);
    const outcome said = play_must_run(&run), all = play_must_run(&kept);
    expect_same(&run, &said, &kept, &all);
}
END_OF_TEST

/* Candidates that other runs of the store need. */
TEST(what_others_need)
{
    play run = new_play(NULL, "w3a16_g16", POOL), again = with_output(&run, "again"), last = with_output(&run, "last");
    run.recipe.keep_candidates = true;
    play_must_run(&run);
    /* Candidates of an unfinished run are kept, although it no longer asks for them. */
    play_sql(&run, "UPDATE run SET recipe = json_remove(recipe, '$.keep_candidates'), status = 'interrupted',"
                   " ended_at = NULL");
    again.recipe.guard_windows = 4;    /* another run, or it would resume that one */
    play_must_run(&again);
    ck_assert_uint_eq(absent(&run, DIGESTS), 0);
    /* A finished run keeps its choices and its result, by name. */
    play_sql(&run, "UPDATE run SET status = 'finished', result = 'rtn, learned' WHERE id = 1");
    last.recipe.guard_windows = 4;
    play_must_run(&last);
    ck_assert_uint_gt(absent(&run, DIGESTS), 0);
    ck_assert_uint_eq(absent(&run, CHOSEN), 0);
    ck_assert_uint_eq(absent(&run, "SELECT blob FROM candidate k JOIN algorithm a ON a.id = k.algorithm_id"
                                   " WHERE a.name = 'rtn'"), 0);
}
END_OF_TEST

int main(void)
{
    return run_tests("losers", (const TTest *[]){
        losers_are_dropped, the_same_again_computes_nothing, a_loser_alone, a_loser_of_a_mixture, another_guard,
        another_guard_behind_a_quantized_prefix, a_prefix_without_its_codes, twins, later_scores, kept_later,
        losers_go_block_by_block, losers_go_behind_a_quantized_prefix,
        losers_go_beside_the_guard, whatever_the_guard_takes, beside_the_guard_of_a_mixture,
        beside_the_guard_in_batches, rows_that_cannot_be_used,
        beside_the_guard_behind_a_quantized_prefix, beside_the_guard_of_some_blocks, what_others_need, NULL});
}
