/* Models and windows as messages between ranks: what is read back gives the same measurements, and truncated
 * messages are refused. */
#include "ptq/ranks/ranks.h"

#include "ptq/eval/encode.h"
#include "tests/support/play.h"

/* Returns an error of the run unless `so` holds. */
static calm_status expect(calm_ctx *context, bool so, const char *what, size_t at)
{
    return so ? CALM_OK : calm_fail(context, CALM_EMISMATCH, "%s, %zu bytes", what, at);
}

/* Reads the windows and subjects of a message; *bad: the message is invalid. */
static calm_status read_all(calm_ctx *context, calm_run *p, const char *bytes, size_t n, calm_windows *windows,
                            size_t *n_subjects, calm_subject **subjects, bool *bad)
{
    calm_rank_message in = {.at = bytes, .end = bytes + n};
    CALM_SCOPED_MODEL(written);
    CALM_TRY(calm_rank_read_windows(context, &in, windows));
    CALM_TRY(calm_rank_read_subjects(context, p, &in, n_subjects, subjects, &written));
    *bad = in.bad;
    return expect(context, in.bad || in.at == in.end, "something is left", n);
}

/* Checks that the message is refused if it is truncated anywhere. */
static calm_status cut_all(calm_ctx *context, calm_run *p, const calm_text *whole)
{
    for (size_t n = 0; n < whole->length; n++) {
        calm_windows windows;
        calm_subject *subjects;
        size_t n_subjects;
        bool bad;
        CALM_SCOPED_ARENA(arena);
        CALM_SCOPED_OUT(context, &arena);
        CALM_SCOPED_SCRATCH(context);
        char *copy = malloc(n ? n : 1);    /* of this size, so that AddressSanitizer sees a read past the end */
        memcpy(copy, whole->data, n);
        const calm_status status = read_all(context, p, copy, n, &windows, &n_subjects, &subjects, &bad);
        free(copy);
        CALM_TRY(status);
        CALM_TRY(expect(context, bad, "a message that is cut off is read", n));
    }
    return CALM_OK;
}

/* Compares the embeddings of sentences that a message asks for with those of a direct call. */
static calm_status ask_for_sentences(calm_ctx *context, calm_run *p)
{
    const calm_subject subject = {.model = p->in.model};
    const uint64_t first = 0;
    calm_embeddings found;
    CALM_SCOPED_TEXT(question);
    CALM_SCOPED_TEXT(answer);
    CALM_TRY(calm_encode(context, &subject, &p->in.guard, NULL, NULL, &found));
    calm_rank_message_put(&question, &first, sizeof first);
    calm_rank_put_windows(&question, &p->in.guard);
    calm_rank_put_subjects(p, &subject, 1, &question);
    calm_rank_message in = {.at = question.data, .end = question.data + question.length};
    CALM_TRY(calm_rank_encode(context, p, &in, &answer));
    const size_t n = found.n * found.width * sizeof *found.x;
    CALM_TRY(expect(context, answer.length == n && memcmp(answer.data, found.x, n) == 0, "other embeddings", n));
    /* Invalid questions. */
    calm_status (*const kinds[])(calm_ctx *, calm_run *, calm_rank_message *, calm_text *) = {
        calm_rank_predict, calm_rank_encode, calm_rank_pass};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        in = (calm_rank_message){.at = question.data, .end = question.data + 20};
        const calm_status status = kinds[i](context, p, &in, &answer);
        calm_ctx_clear_failure(context);
        CALM_TRY(expect(context, status == CALM_EFORMAT, "a question that is none is answered", i));
    }
    return CALM_OK;
}

/* The calm_stages_fn of this test. */
static calm_status tell_all(calm_ctx *context, calm_run *p, void *user)
{
    size_t *choice, n_subjects;
    calm_plan plan;
    calm_subject *read, reference = {.model = p->in.model};
    calm_windows windows;
    calm_eval_result told[2], found[2];
    bool bad;
    (void)user;
    CALM_SCOPED_TEXT(message);
    CALM_TRY(calm_choice_uniform(context, &p->in, 0, &choice));
    CALM_TRY(calm_plan_of_choice(context, &p->in, choice, &plan));
    calm_plan_override override = {p->in.model, &plan};
    const calm_subject subjects[2] = {
        {.model = p->in.model, .override = calm_plan_apply, .user = &override, .first_block = 1},
        {.model = p->in.model}};
    calm_rank_put_windows(&message, &p->in.guard);
    calm_rank_put_subjects(p, subjects, 2, &message);
    CALM_TRY(calm_text_check(context, &message));
    CALM_TRY(read_all(context, p, message.data, message.length, &windows, &n_subjects, &read, &bad));
    CALM_TRY(expect(context, !bad && n_subjects == 2 && read[0].first_block == 1, "not what was put", message.length));
    CALM_TRY(calm_evaluate(context, &reference, NULL, subjects, 2, told, &p->in.guard, NULL, NULL));
    CALM_TRY(calm_evaluate(context, &reference, NULL, read, 2, found, &windows, NULL, NULL));
    CALM_TRY(expect(context, told[0].kl > 0 && told[0].kl == found[0].kl && found[1].kl == told[1].kl &&
                             told[0].nll == found[0].nll, "other figures", message.length));
    /* A single rank cannot divide a measurement. */
    CALM_TRY(expect(context, !calm_rank_may_measure(p, subjects, 2, &p->in.guard), "one rank divides", 0));
    CALM_TRY(cut_all(context, p, &message));
    return ask_for_sentences(context, p);
}

TEST(messages)
{
    play run = play_new(NULL, "w4a16_g16", "rtn");
    run.recipe.guard_windows = 2;
    play_stages(&run, tell_all);
}
END_OF_TEST

int main(void)
{
    return run_tests("rank subject", (const TTest *[]){messages, NULL});
}
