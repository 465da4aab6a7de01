/* Rows of the store as messages: a rank sends the rows that it puts, and rank 0 puts them into the store.
 *
 * Ids differ between the stores, so a message names a job by its place in the layout, and a candidate by its key. */
#include "ptq/ranks/ranks.h"

#include <string.h>


/* The head of a message. */
typedef struct head {
    uint64_t kind, job, n;    /* kind of rows; place of the job in the layout, or 0; number of rows that follow */
} head;

enum kind { CANDIDATE = 1, SCORES, EXPERT, ACTIVATION, CONTEXT };

/* ---- writing ---- */

static void append_head(calm_text *out, enum kind kind, size_t job, size_t n)
{
    const head h = {.kind = kind, .job = job, .n = n};
    calm_rank_message_put(out, &h, sizeof h);
}

static void append_scores(calm_text *out, const calm_store_score *scores, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        calm_rank_message_put(out, &scores[i].value, sizeof scores[i].value);
        calm_rank_message_put_text(out, scores[i].unit);
        calm_rank_message_put_text(out, scores[i].metric);
    }
}

void calm_relay_encode(calm_text *out, size_t job, const calm_store_candidate *row)
{
    append_head(out, CANDIDATE, job, row->n_scores);
    calm_rank_message_put(out, row, sizeof *row);
    calm_rank_message_put_text(out, row->key);
    calm_rank_message_put_text(out, row->algorithm);
    calm_rank_message_put_text(out, row->chain);
    calm_rank_message_put_text(out, row->scheme);
    calm_rank_message_put_text(out, row->failure);
    calm_rank_message_put_text(out, row->blob);
    append_scores(out, row->scores, row->n_scores);
}

/* ---- reading ---- */

static calm_status read_texts(calm_ctx *ctx, calm_rank_message *in, const char **const *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CALM_TRY(calm_rank_message_text(ctx, in, out[i]));
    return CALM_OK;
}

static calm_status read_scores(calm_ctx *ctx, calm_rank_message *in, uint64_t n, const calm_store_score **out)
{
    calm_store_score *scores;
    *out = NULL;
    if (!calm_rank_message_fits(in, n, sizeof(double)))
        return CALM_OK;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, scores, (size_t)n));
    for (size_t i = 0; i < n; i++) {
        calm_rank_message_read(in, &scores[i].value, sizeof scores[i].value);
        CALM_TRY(calm_rank_message_text(ctx, in, &scores[i].unit));
        CALM_TRY(calm_rank_message_text(ctx, in, &scores[i].metric));
    }
    *out = scores;
    return CALM_OK;
}

/* ---- candidates ---- */

/* Returns the run's candidate of that key, or NULL. */
static calm_candidate *find_candidate(const calm_run *p, size_t job, const char *key)
{
    for (size_t entry = 0; key && entry < p->in.recipe->n_pool; entry++) {
        calm_candidate *candidate = calm_candidate_at(&p->in, job, entry);
        if (strcmp(candidate->key, key) == 0)
            return candidate;
    }
    return NULL;
}

/* Puts a candidate and that the run considered it in one transaction, as candidates.c does. */
static calm_status put_candidate(calm_ctx *ctx, calm_run *p, const head *h, calm_rank_message *in)
{
    calm_store_candidate row;
    int64_t id;
    calm_rank_message_read(in, &row, sizeof row);
    const char **texts[] = {&row.key, &row.algorithm, &row.chain, &row.scheme, &row.failure, &row.blob};
    CALM_TRY(read_texts(ctx, in, texts, sizeof texts / sizeof *texts));
    CALM_TRY(read_scores(ctx, in, h->n, &row.scores));
    calm_candidate *candidate = find_candidate(p, h->job, row.key);
    if (in->bad || !candidate)
        return calm_fail(ctx, CALM_EFORMAT, "a row from another rank is no candidate of this run");
    row.n_scores = (size_t)h->n;
    row.job_id = p->job_ids[h->job];
    row.calibration_id = p->result.calibration_id;
    CALM_SCOPED_TRANSACTION(ctx, p->in.store);
    CALM_TRY(calm_store_candidate_put(ctx, p->in.store, &row, &id));
    CALM_TRY(calm_store_run_candidate(ctx, p->in.store, p->result.run_id, id));
    CALM_TRY(calm_store_commit(ctx, p->in.store));
    /* The choice later reads the rest from the store. */
    candidate->id = id;
    return CALM_OK;
}

static calm_status put_scores(calm_ctx *ctx, calm_run *p, const head *h, calm_rank_message *in)
{
    const calm_store_score *scores;
    const char *key;
    CALM_TRY(calm_rank_message_text(ctx, in, &key));
    CALM_TRY(read_scores(ctx, in, h->n, &scores));
    const calm_candidate *candidate = find_candidate(p, h->job, key);
    if (in->bad || !candidate || !candidate->id)
        return calm_fail(ctx, CALM_EFORMAT, "scores from another rank are of no candidate of this run");
    return calm_store_scores_add(ctx, p->in.store, candidate->id, scores, (size_t)h->n);
}

/* ---- activations ---- */

/* Returns the number of a calibration: 0 for all calibration windows, t + 1 for text t of several. */
static size_t text_of(const calm_run *p, int64_t calibration_id)
{
    for (size_t t = 0; p->text_ids && t < p->in.calib.n_texts; t++)
        if (p->text_ids[t] == calibration_id)
            return t + 1;
    return 0;
}

static void append_activation(calm_text *out, size_t text, const calm_store_activation *a)
{
    const uint64_t of_text = text;
    append_head(out, ACTIVATION, 0, a->n_peaks);
    calm_rank_message_put(out, &of_text, sizeof of_text);
    calm_rank_message_put(out, a, sizeof *a);
    calm_rank_message_put_text(out, a->hook);
    calm_rank_message_put_text(out, a->point);
    calm_rank_message_put(out, a->histogram, a->n_bins * sizeof *a->histogram);
    for (size_t i = 0; i < a->n_peaks; i++) {
        calm_rank_message_put(out, &a->peaks[i], sizeof a->peaks[i]);
        calm_rank_message_put_text(out, a->peaks[i].text);
    }
}

static calm_status put_activation(calm_ctx *ctx, calm_run *p, const head *h, calm_rank_message *in)
{
    calm_store_activation a;
    calm_store_peak *peaks;
    uint64_t *bins, text = 0;
    calm_rank_message_read(in, &text, sizeof text);
    calm_rank_message_read(in, &a, sizeof a);
    const char **texts[] = {&a.hook, &a.point};
    CALM_TRY(read_texts(ctx, in, texts, sizeof texts / sizeof *texts));
    CALM_TRY(calm_rank_message_array(ctx, in, a.n_bins, sizeof *bins, &bins));
    if (!calm_rank_message_fits(in, h->n, sizeof *peaks))
        return calm_fail(ctx, CALM_EFORMAT, "a row from another rank ends too early");
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, peaks, (size_t)h->n));
    for (size_t i = 0; i < h->n; i++) {
        calm_rank_message_read(in, &peaks[i], sizeof peaks[i]);
        CALM_TRY(calm_rank_message_text(ctx, in, &peaks[i].text));
    }
    if (in->bad || !a.hook || !a.point || (text && (!p->text_ids || text > p->in.calib.n_texts)))
        return calm_fail(ctx, CALM_EFORMAT, "a row from another rank ends too early");
    a.histogram = bins;
    a.peaks = peaks;
    a.n_peaks = (size_t)h->n;
    a.model_id = p->result.model_id;
    a.calibration_id = text ? p->text_ids[text - 1] : p->result.calibration_id;
    return calm_store_activation_put(ctx, p->in.store, &a);
}

/* Puts the text around a token, which several ranks may send. */
static calm_status put_context(calm_ctx *ctx, const calm_run *p, calm_rank_message *in)
{
    const char *before, *after, **texts[] = {&before, &after};
    int64_t at[2];
    calm_rank_message_read(in, at, sizeof at);
    CALM_TRY(read_texts(ctx, in, texts, sizeof texts / sizeof *texts));
    if (in->bad)
        return calm_fail(ctx, CALM_EFORMAT, "a row from another rank ends too early");
    return calm_store_context_put(ctx, p->in.store, p->result.calibration_id, at[0], at[1], before, after);
}

/* ---- all kinds ---- */

static calm_status put_one(calm_ctx *ctx, calm_run *p, calm_rank_message *in)
{
    head h;
    int64_t tokens;
    CALM_SCOPED_SCRATCH(ctx);
    calm_rank_message_read(in, &h, sizeof h);
    if (in->bad || h.job >= calm_model_layout(p->in.model)->n_jobs)
        return calm_fail(ctx, CALM_EFORMAT, "what came from another rank is no row of this run");
    switch (h.kind) {
    case CANDIDATE:
        return put_candidate(ctx, p, &h, in);
    case SCORES:
        return put_scores(ctx, p, &h, in);
    case ACTIVATION:
        return put_activation(ctx, p, &h, in);
    case CONTEXT:
        return put_context(ctx, p, in);
    case EXPERT:
        calm_rank_message_read(in, &tokens, sizeof tokens);
        if (!in->bad)
            return calm_store_expert_put(ctx, p->in.store, p->job_ids[h.job], p->result.calibration_id, tokens);
        break;
    default:
        break;
    }
    return calm_fail(ctx, CALM_EFORMAT, "what came from another rank is no row of this run");
}

calm_status calm_relay_put(calm_ctx *ctx, calm_run *p, const char *bytes, size_t n)
{
    calm_rank_message in = {.at = bytes, .end = bytes + n};
    while (in.at < in.end)
        CALM_TRY(put_one(ctx, p, &in));
    return CALM_OK;
}

/* ---- sending ---- */

/* Returns the job with this id in this rank's store; n_jobs: there is none. */
static size_t job_of(const calm_run *p, int64_t id)
{
    const size_t n = calm_model_layout(p->in.model)->n_jobs;
    size_t job = 0;
    while (job < n && p->job_ids[job] != id)
        job++;
    return job;
}

static calm_status tell(calm_ctx *ctx, calm_run *p, const calm_text *message)
{
    CALM_TRY(calm_text_check(ctx, message));
    return calm_cluster_tell(ctx, p->cluster, message->data, message->length);
}

static calm_status tell_candidate(calm_ctx *ctx, void *user, const calm_store_candidate *row, int64_t id)
{
    calm_run *p = user;
    CALM_SCOPED_TEXT(message);
    (void)id;
    if (p->ranks->seeding)
        return CALM_OK;
    calm_relay_encode(&message, job_of(p, row->job_id), row);
    return tell(ctx, p, &message);
}

static calm_status tell_scores(calm_ctx *ctx, void *user, int64_t candidate_id, const calm_store_score *scores,
                               size_t n)
{
    static const char sql[] = "SELECT key, job_id FROM candidate WHERE id = ?1";
    calm_run *p = user;
    const calm_value param = calm_value_int(candidate_id);
    calm_value found[2];
    CALM_SCOPED_TEXT(message);
    CALM_TRY(calm_store_query_one(ctx, p->in.store, sql, &param, 1, found, 2));
    append_head(&message, SCORES, job_of(p, found[1].integer), n);
    calm_rank_message_put_text(&message, found[0].text);
    append_scores(&message, scores, n);
    return tell(ctx, p, &message);
}

static calm_status tell_expert(calm_ctx *ctx, void *user, int64_t job_id, int64_t tokens)
{
    calm_run *p = user;
    CALM_SCOPED_TEXT(message);
    append_head(&message, EXPERT, job_of(p, job_id), 0);
    calm_rank_message_put(&message, &tokens, sizeof tokens);
    return tell(ctx, p, &message);
}

static calm_status tell_activation(calm_ctx *ctx, void *user, const calm_store_activation *activation)
{
    calm_run *p = user;
    CALM_SCOPED_TEXT(message);
    append_activation(&message, text_of(p, activation->calibration_id), activation);
    return tell(ctx, p, &message);
}

static calm_status tell_context(calm_ctx *ctx, void *user, int64_t window, int64_t token, const char *before,
                                const char *after)
{
    const int64_t at[] = {window, token};
    calm_run *p = user;
    CALM_SCOPED_TEXT(message);
    append_head(&message, CONTEXT, 0, 0);
    calm_rank_message_put(&message, at, sizeof at);
    calm_rank_message_put_text(&message, before);
    calm_rank_message_put_text(&message, after);
    return tell(ctx, p, &message);
}

calm_store_relay calm_relay_to_rank_0(calm_run *run)
{
    return (calm_store_relay){.candidate = tell_candidate, .scores = tell_scores, .expert = tell_expert,
                              .activation = tell_activation, .context = tell_context, .user = run};
}
