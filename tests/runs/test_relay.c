/* Candidates as messages between ranks: a message stored again changes nothing; truncated and damaged messages are
 * refused or stored, but never read past their end. */
#include "ptq/ranks/ranks.h"

#include "tests/support/play.h"

/* Encodes all candidates of the run as messages. */
static calm_status encode_all(calm_ctx *context, calm_run *p, calm_text *out)
{
    const size_t n_jobs = calm_model_layout(p->in.model)->n_jobs;
    for (size_t job = 0; job < n_jobs; job++)
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++) {
            calm_store_candidate row;
            int64_t id;
            CALM_TRY(calm_store_candidate_find(context, p->in.store, calm_candidate_at(&p->in, job, entry)->key, &row,
                                               &id));
            calm_relay_encode(out, job, &row);
        }
    return calm_text_check(context, out);
}

/* Returns an error of the run unless `found` is the expected status. */
static calm_status expect(calm_ctx *context, calm_status found, calm_status wanted, size_t at)
{
    calm_ctx_clear_failure(context);
    return found == wanted ? CALM_OK : calm_fail(context, CALM_EMISMATCH, "at byte %zu: status %d", at, (int)found);
}

/* A calm_stages_fn that gives messages to rank 0. */
static calm_status tell_all(calm_ctx *context, calm_run *p, void *user)
{
    (void)user;
    CALM_SCOPED_TEXT(all);
    CALM_SCOPED_TEXT(one);
    calm_store_candidate row;
    int64_t id;
    CALM_TRY(encode_all(context, p, &all));
    CALM_TRY(expect(context, calm_relay_put(context, p, all.data, all.length), CALM_OK, all.length));
    CALM_TRY(calm_store_candidate_find(context, p->in.store, p->in.candidates[0].key, &row, &id));
    calm_relay_encode(&one, 0, &row);
    for (size_t n = 1; n < one.length; n++) {
        char *copy = malloc(n);    /* of this size, so that AddressSanitizer sees a read past the end */
        memcpy(copy, one.data, n);
        const calm_status status = calm_relay_put(context, p, copy, n);
        free(copy);
        CALM_TRY(expect(context, status, CALM_EFORMAT, n));
    }
    /* A message of another job, and of a job that does not exist. */
    one.data[8] = 1;
    CALM_TRY(expect(context, calm_relay_put(context, p, one.data, one.length), CALM_EFORMAT, 8));
    memset(one.data + 8, 0x7f, 8);
    CALM_TRY(expect(context, calm_relay_put(context, p, one.data, one.length), CALM_EFORMAT, 8));
    memset(one.data + 8, 0, 8);
    /* Each byte damaged in turn. */
    for (size_t i = 0; i < one.length; i++) {
        one.data[i] = (char)~one.data[i];
        calm_relay_put(context, p, one.data, one.length);
        calm_ctx_clear_failure(context);
        one.data[i] = (char)~one.data[i];
    }
    return calm_relay_put(context, p, one.data, one.length);
}

TEST(messages)
{
    const play run = play_new(NULL, "w4a16_g16", "rtn,gptq");
    play_stages(&run, tell_all);
    ck_assert_int_eq(play_sql(&run, "SELECT count(*) FROM candidate"), 16);
}
END_OF_TEST

int main(void)
{
    return run_tests("relay", (const TTest *[]){messages, NULL});
}
