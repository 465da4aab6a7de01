/* Hidden states of the guard, block by block.
 *
 * Plans that are equal so far form a class and share their hidden states.  Class 0 is the float model; a class splits
 * when its plans take different candidates.  Each block reads the file of the block before and writes a new one,
 *
 *   header | rows of class 0 | rows of class 1 | ...        all rows of floats, the header's last row padded
 *   header:  "CALMGR01" | identity | u64 position, n_classes, n_plans | u64 class [n_plans]
 *            | u64 choice [n_plans, n_jobs]
 *
 * which is renamed when it is complete, so that the file is always that of a whole number of blocks. */
#include "ptq/choose/choose_impl.h"

#include <string.h>

#include "ptq/base/file.h"
#include "ptq/plan/assemble.h"
#include "ptq/state/run_pool.h"

static const char magic[8] = "CALMGR01";

typedef struct header {
    char magic[8], identity[CALM_SHA256_HEX + 7];
    uint64_t position, n_classes, n_plans;
} header;

/* A class after the current block: its input is class `from`, its block that of `plan`; NULL: the float block. */
typedef struct class {
    size_t from;
    const calm_plan *plan;
} class;

bool calm_choice_is_final(const calm_run *p)
{
    const calm_recipe *recipe = p->in.recipe;
    return !p->several && !recipe->keep_candidates && !recipe->n_budgets &&
           recipe->selection.score != CALM_SCORE_PROBE_KL;
}

bool calm_guard_can_stream(const calm_run *p)
{
    return p->in.guard.n && calm_choice_is_final(p) && !calm_inputs_encode(&p->in);
}

bool calm_guard_streams(const calm_run *p)
{
    return p->choosing->streams && calm_guard_can_stream(p);
}

static size_t n_jobs(const calm_run *p)
{
    return calm_model_layout(p->in.model)->n_jobs;
}

/* ---- the file ---- */

static size_t header_bytes(const calm_run *p, size_t n_plans)
{
    return sizeof(header) + n_plans * (1 + n_jobs(p)) * sizeof(uint64_t);
}

static size_t header_rows(const calm_run *p, size_t n_plans)
{
    const size_t row = calm_batch_width(calm_model_config(p->in.model)) * sizeof(float);
    return (header_bytes(p, n_plans) + row - 1) / row;
}

/* Creates a file for n classes. */
static calm_status create(calm_ctx *ctx, const calm_run *p, const calm_guard_rows *r, size_t n, calm_row_store *out)
{
    const size_t width = calm_batch_width(calm_model_config(p->in.model)), rows = r->head + n * r->rows;
    /* Without an identity no run continues with the file, so it needs no name. */
    return r->identity[0] ? calm_row_store_create(ctx, r->new_path, rows, width, out)
                          : calm_row_store_open(ctx, ctx->scratch, rows, width, r->dir, out);
}

/* Allocates a header in ctx->scratch. */
static calm_status new_header(calm_ctx *ctx, const calm_run *p, const calm_guard_rows *r, header **head,
                              uint64_t **numbers)
{
    float *x;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, x, r->head * calm_batch_width(calm_model_config(p->in.model))));
    *head = (header *)(void *)x;
    *numbers = (uint64_t *)(void *)(*head + 1);
    return CALM_OK;
}

static calm_status write_header(calm_ctx *ctx, const calm_run *p, const calm_guard_rows *r, size_t n_classes,
                                const calm_row_store *file)
{
    uint64_t *at;
    header *head;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_header(ctx, p, r, &head, &at));
    *head = (header){.position = r->position + 1, .n_classes = n_classes, .n_plans = r->n};
    memcpy(head->magic, magic, sizeof magic);
    memcpy(head->identity, r->identity, sizeof r->identity);
    for (size_t i = 0; i < r->n; i++)
        *at++ = r->plans[i].next;
    for (size_t i = 0; i < r->n; i++)
        for (size_t job = 0; job < n_jobs(p); job++)
            *at++ = r->plans[i].choice ? r->plans[i].choice[job] : CALM_STAYS_FLOAT;
    return calm_row_store_put(ctx, file, 0, r->head, (const float *)(const void *)head);
}

/* Checks a header from a file, and if it is valid for these plans, sets position, classes and choices from it. */
static bool take_header(const calm_run *p, calm_guard_rows *r, const header *head, const uint64_t *at)
{
    const size_t n_pool = p->in.recipe->n_pool;
    if (memcmp(head->magic, magic, sizeof magic) != 0 || memcmp(head->identity, r->identity, sizeof r->identity) != 0 ||
        head->n_plans != r->n || !head->position || head->position > calm_model_config(p->in.model)->n_blocks ||
        !head->n_classes || head->n_classes > r->n + 1 || r->file.n != r->head + head->n_classes * r->rows)
        return false;
    for (size_t i = 0; i < r->n; i++)
        if (at[i] != CALM_GUARD_GONE && at[i] >= head->n_classes)
            return false;
    for (size_t i = 0; i < r->n * n_jobs(p); i++)
        if (at[r->n + i] != CALM_STAYS_FLOAT && at[r->n + i] >= n_pool)
            return false;
    /* All numbers are in range. */
    r->position = head->position;
    for (size_t i = 0; i < r->n; i++) {
        r->plans[i].of_class = at[i];
        for (size_t job = 0; job < n_jobs(p); job++)
            r->plans[i].choice[job] = at[r->n + i * n_jobs(p) + job];
    }
    return true;
}

calm_status calm_guard_rows_load(calm_ctx *ctx, const calm_run *p, calm_guard_rows *r)
{
    header *head;
    uint64_t *numbers;
    bool taken = false;
    CALM_SCOPED_SCRATCH(ctx);
    CALM_TRY(new_header(ctx, p, r, &head, &numbers));
    if (calm_row_store_reopen(ctx, r->path, calm_batch_width(calm_model_config(p->in.model)), &r->file) == CALM_OK &&
        r->file.n >= r->head &&
        calm_row_store_read(ctx, &r->file, 0, r->head, (float *)(void *)head) == CALM_OK)
        taken = take_header(p, r, head, numbers);
    calm_ctx_clear_failure(ctx);
    if (!taken)
        calm_row_store_close(&r->file);
    return CALM_OK;
}

/* ---- begin and end ---- */

calm_status calm_guard_rows_open(calm_ctx *ctx, calm_run *p, const calm_windows *windows, size_t n,
                                 calm_guard_rows **out)
{
    calm_guard_rows *r;
    char *dir;
    CALM_SCOPED_OUT(ctx, p->arena);
    CALM_TRY(CALM_NEW(ctx, ctx->out, r, 1));
    *r = (calm_guard_rows){.windows = windows, .n = n, .head = header_rows(p, n), .file.file = -1,
                           .rows = windows->begin[windows->n] - windows->begin[0]};
    CALM_TRY(CALM_NEW(ctx, ctx->out, r->plans, n));
    CALM_TRY(calm_strf(ctx, ctx->out, &r->path, "%s" CALM_STORE_GUARD, p->in.recipe->store));
    CALM_TRY(calm_strf(ctx, ctx->out, &r->new_path, "%s" CALM_STORE_GUARD_NEW, p->in.recipe->store));
    CALM_TRY(calm_path_parent(ctx, p->in.recipe->store, &dir));
    CALM_TRY(calm_strf(ctx, ctx->out, &r->dir, "%s", dir));
    CALM_TRY(calm_rope_init(ctx, calm_model_config(p->in.model), calm_windows_reach(windows), &r->rope));
    *out = r;
    return CALM_OK;
}

void calm_guard_rows_close(calm_run *p)
{
    if (p->guard_rows)
        calm_row_store_close(&p->guard_rows->file);
    p->guard_rows = NULL;
}

void calm_guard_rows_remove(calm_ctx *ctx, calm_run *p)
{
    const calm_guard_rows *r = p->guard_rows;
    const bool named = r && r->identity[0];
    calm_guard_rows_close(p);
    /* A file that cannot be removed is overwritten by the next run that needs one. */
    if (named && (calm_remove_tree(ctx, r->path) != CALM_OK || calm_remove_tree(ctx, r->new_path) != CALM_OK))
        calm_ctx_clear_failure(ctx);
}

/* ---- plans and classes ---- */

/* Do all candidates of a plan's block have codes, and does the target accept them? */
static bool has_codes(const calm_run *p, const calm_plan *plan, size_t begin, size_t end)
{
    bool all = true;
    for (size_t job = begin; job < end; job++) {
        const calm_candidate *candidate = plan->jobs[job].source;
        if (!plan->jobs[job].quantized)
            continue;
        /* Plans with learned blocks have no hidden states here, so candidates are the pool's. */
        const size_t entry = (size_t)(candidate - p->in.candidates) % p->in.recipe->n_pool;
        all &= candidate->blob[0] && !candidate->failure && !candidate->dropped &&
               calm_run_takes(p, job, p->in.recipe->pool[entry].of_scheme);
    }
    return all;
}

/* Makes the plans for the current block, in ctx->out, and drops plans that cannot run it. */
static calm_status list_plans(calm_ctx *ctx, const calm_run *p)
{
    const calm_guard_rows *r = p->guard_rows;
    const size_t *begin = calm_model_layout(p->in.model)->block_begin + r->position;
    for (size_t i = 0; i < r->n; i++) {
        calm_guard_plan *plan = &r->plans[i];
        calm_plan *own;
        plan->next = CALM_GUARD_GONE;
        if (plan->of_class == CALM_GUARD_GONE)
            continue;
        /* Valid only for blocks that have a choice. */
        if (plan->choice) {
            CALM_TRY(CALM_NEW(ctx, ctx->out, own, 1));
            CALM_TRY(calm_plan_of_choice(ctx, &p->in, plan->choice, own));
            plan->plan = own;
        }
        plan->of_class = has_codes(p, plan->plan, begin[0], begin[1]) ? plan->of_class : CALM_GUARD_GONE;
    }
    return CALM_OK;
}

/* Do two plans have the same block?  b NULL: is the block of plan a float? */
static bool same_block(const calm_run *p, const calm_plan *a, const calm_plan *b, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    bool same = true;
    for (size_t job = layout->block_begin[block]; job < layout->block_begin[block + 1]; job++) {
        const calm_plan_job *x = &a->jobs[job];
        /* Compares candidates, not codes: a plan's key depends on its candidates. */
        same &= b ? x->quantized == b->jobs[job].quantized && x->source == b->jobs[job].source : !x->quantized;
    }
    return same;
}

/* Computes the classes after the block, in ctx->out, and the class of each plan. */
static calm_status divide(calm_ctx *ctx, const calm_run *p, class **out, size_t *n)
{
    const calm_guard_rows *r = p->guard_rows;
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, r->n + 1));
    *n = 1;    /* class 0, the float model */
    for (size_t i = 0; i < r->n; i++) {
        calm_guard_plan *plan = &r->plans[i];
        if (plan->of_class == CALM_GUARD_GONE)
            continue;
        if (plan->of_class == 0 && same_block(p, plan->plan, NULL, r->position))
            plan->next = 0;
        for (size_t j = 0; j < i && plan->next == CALM_GUARD_GONE; j++)
            if (r->plans[j].of_class == plan->of_class && same_block(p, plan->plan, r->plans[j].plan, r->position))
                plan->next = r->plans[j].next;
        if (plan->next != CALM_GUARD_GONE)
            continue;
        (*out)[*n] = (class){plan->of_class, plan->plan};
        plan->next = (*n)++;
    }
    return CALM_OK;
}

/* ---- a block ---- */

/* Runs windows first .. first + n - 1 of a class through a loaded block. */
static calm_status pass_batch(calm_ctx *ctx, const calm_run *p, const calm_block *block, const class *of, size_t number,
                              size_t first, size_t n, const calm_row_store *file)
{
    const calm_guard_rows *r = p->guard_rows;
    const size_t row = r->windows->begin[first] - r->windows->begin[0];
    calm_batch batch;
    CALM_SCOPED_ARENA(arena);
    CALM_SCOPED_SCRATCH(ctx);
    /* Before the first block, all plans have the embeddings. */
    if (r->position) {
        CALM_TRY(calm_batch_open(ctx, calm_model_config(p->in.model), r->windows, first, n, &arena, NULL, &batch));
        CALM_TRY(calm_row_store_read(ctx, &r->file, r->head + of->from * r->rows + row, batch.rows, batch.hidden.data));
    } else {
        CALM_TRY(calm_batch_embed(ctx, p->in.model, r->windows, first, n, &arena, NULL, &batch));
    }
    CALM_TRY(calm_batch_block(ctx, block, &r->rope, &batch, NULL));
    return calm_row_store_put(ctx, file, r->head + number * r->rows + row, batch.rows, batch.hidden.data);
}

/* Runs all windows of a class through its block, in the same batches as an evaluation, because experts multiply the
 * rows of a batch together. */
static calm_status pass_class(calm_ctx *ctx, const calm_run *p, const class *of, size_t number,
                              const calm_row_store *file)
{
    const calm_guard_rows *r = p->guard_rows;
    const size_t n = r->windows->n;
    const size_t most = calm_evaluation_batch(calm_model_config(p->in.model), n, r->windows->longest);
    calm_block block;
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_INTS(ctx, calm_run_ints(p));
    /* Loaded once for all batches. */
    CALM_TRY(calm_model_load_block(ctx, p->in.model, r->position, &block));
    if (of->plan) {
        calm_plan_override override = {p->in.model, of->plan};
        CALM_TRY(calm_plan_apply(&override, ctx, r->position, &block));
    }
    for (size_t first = 0; first < n; first += most)
        CALM_TRY(pass_batch(ctx, p, &block, of, number, first, calm_size_min(n - first, most), file));
    return CALM_OK;
}

/* Runs all classes and writes a new file.  A plan with a numerical failure is dropped here; the guard runs it again and
 * reports why it failed. */
static calm_status pass_classes(calm_ctx *ctx, const calm_run *p, const class *classes, size_t n,
                                const calm_row_store *file)
{
    const calm_guard_rows *r = p->guard_rows;
    for (size_t c = 0; c < n; c++) {
        const calm_status status = pass_class(ctx, p, &classes[c], c, file);
        /* A failure of the float model, class 0, fails the run. */
        if (status != CALM_ENUMERIC || !c)
            CALM_TRY(status);
        calm_ctx_clear_failure(ctx);
        for (size_t i = 0; i < r->n && status != CALM_OK; i++)
            r->plans[i].next = r->plans[i].next == c ? CALM_GUARD_GONE : r->plans[i].next;
    }
    if (!r->identity[0])
        return CALM_OK;
    /* Written last, because classes may have been dropped. */
    CALM_TRY(write_header(ctx, p, r, n, file));
    return calm_row_store_publish(ctx, file, r->new_path, r->path);
}

calm_status calm_guard_rows_cross(calm_ctx *ctx, const calm_run *p)
{
    calm_guard_rows *r = p->guard_rows;
    class *classes;
    size_t n;
    CALM_SCOPED_RESULTS(ctx);
    CALM_SCOPED_SCRATCH(ctx);
    CALM_SCOPED(calm_row_store, calm_row_store_close) file = {.file = -1};
    CALM_TRY(list_plans(ctx, p));
    CALM_TRY(divide(ctx, p, &classes, &n));
    CALM_TRY(create(ctx, p, r, n, &file));
    CALM_TRY(pass_classes(ctx, p, classes, n, &file));
    calm_row_store_close(&r->file);
    r->file = file;
    file.file = -1;    /* it stays open */
    for (size_t i = 0; i < r->n; i++)
        r->plans[i].of_class = r->plans[i].next;
    r->position++;
    return CALM_OK;
}

/* ---- measurement ---- */

bool calm_guard_rows_of(const calm_run *p, const char *key, const calm_windows *windows, calm_subject *subject)
{
    const calm_guard_rows *r = p->guard_rows;
    size_t of_class = key ? CALM_GUARD_GONE : 0;    /* the float model is class 0 */
    if (!r || !r->finished || r->windows != windows)
        return false;
    for (size_t i = 0; key && i < r->n; i++)
        if (r->plans[i].of_class != CALM_GUARD_GONE && strcmp(r->plans[i].key, key) == 0)
            of_class = r->plans[i].of_class;
    if (of_class == CALM_GUARD_GONE)
        return false;
    subject->passed = &r->file;
    subject->passed_first = r->head + of_class * r->rows;
    return true;
}

/* ---- sizes ---- */

size_t calm_guard_rows_bytes(const calm_run *p)
{
    const calm_config *config = calm_model_config(p->in.model);
    const calm_windows *windows = &p->in.guard;
    const size_t n = p->in.recipe->n_pool + 1;
    const size_t batch = calm_evaluation_batch(config, windows->n, windows->longest);
    const size_t width = calm_batch_width(config);
    return calm_rope_bytes(config, calm_windows_reach(windows)) + CALM_BYTES(float, header_rows(p, n) * width) +
           n * CALM_BYTES(size_t, n_jobs(p)) + n * CALM_BYTES(calm_plan_job, n_jobs(p)) +
           calm_row_store_bytes(batch * windows->longest, width);
}

double calm_guard_rows_file_bytes(const calm_run *p)
{
    const calm_windows *windows = &p->in.guard;
    const size_t n = p->in.recipe->n_pool + 1;
    /* At most one class per plan, and the float model; the old file exists until the new one is complete. */
    const size_t rows = header_rows(p, n) + (n + 1) * windows->begin[windows->n];
    return 2.0 * (double)(rows * calm_batch_width(calm_model_config(p->in.model)) * sizeof(float));
}
