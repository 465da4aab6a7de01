/* Every kind of sublayer by the same list of checks: its tables agree with each other, with a tiny model of each
 * family that has the kind, and with what it computes. */
#include "ptq/arch/kind.h"

#include "ptq/layers/block_back.h"
#include "ptq/model/model.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

#define TOKENS 13

/* Called for each sublayer of each tiny model that has the kind. */
typedef void check_fn(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot);

static size_t each_sublayer(const calm_kind *kind, check_fn *check)
{
    size_t n = 0;
    for (const char *const *family = tiny_families; *family; family++) {
        const tiny_model spec = tiny_of(*family);
        CALM_SCOPED_MODEL(model);
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        for (size_t b = 0; b < calm_model_config(model)->n_blocks; b++)
            for (calm_sublayer s = 0; s < CALM_N_SUBLAYERS; s++) {
                CALM_SCOPED_SCRATCH(ctx);
                if (calm_kind_at(calm_model_config(model), b, s) != kind)
                    continue;
                check(kind, model, b, s);
                n++;
            }
    }
    return n;
}

static void each_kind(check_fn *check)
{
    size_t n;
    const calm_kind *const *all = calm_kinds(&n);
    ck_assert_uint_ge(n, 3);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(each_sublayer(all[i], check) > 0, "no tiny model has a sublayer of kind %s", all[i]->name);
}

TEST(registry)
{
    size_t n, n_fusions = 0;
    const calm_kind *const *all = calm_kinds(&n);
    for (size_t i = 0; i < n; i++) {
        const calm_kind *kind = all[i];
        ck_assert(kind->n_jobs > 0 && kind->n_jobs <= CALM_FOLD_SET_JOBS && kind->jobs[0].outer && kind->shape);
        ck_assert(!kind->run == kind->routed && !kind->scratch_bytes == kind->routed);
        ck_assert(!kind->n_plains || kind->plain_shape);
        ck_assert(!kind->n_hooks || kind->hook_width);
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(all[j]->name, kind->name);
        for (size_t j = 0; j < kind->n_fusions; j++)
            ck_assert_ptr_eq(calm_fusion_at(n_fusions++), &kind->fusions[j]);
        for (size_t j = 0; j < kind->n_jobs; j++) {
            ck_assert_int_eq(calm_job_sublayer(kind->jobs[j].job), kind->slot);
            ck_assert(kind->jobs[j].fold != CALM_FOLD_ROWS || kind->feed);
        }
    }
    ck_assert(n_fusions > 0 && !calm_fusion_at(n_fusions));
}
END_OF_TEST

/* ---- jobs and roles ---- */

/* Checks the jobs of a sublayer, or of one expert: those of the kind in its order, with each role once. */
static void check_set(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot, long expert)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_config_at(calm_model_config(model), block);
    size_t begin, end, listed = 0, times[CALM_N_ROLES] = {0};
    calm_layout_fold_set(layout, block, slot, expert, &begin, &end);
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        size_t rows = 0;
        /* A job without linears in this block is not listed. */
        while (listed < kind->n_jobs && !calm_job_exists(config, kind->jobs[listed].job))
            listed++;
        ck_assert_uint_lt(listed, kind->n_jobs);
        ck_assert_ptr_eq(job->traits, &kind->jobs[listed]);
        ck_assert_int_eq(job->kind, kind->jobs[listed++].job);
        ck_assert(job->n > 0 && job->n <= CALM_JOB_LINEARS && (j + 1 < end || job->n == 1));
        ck_assert_uint_eq(job->in, calm_hook_width(config, calm_job_input(job->kind), expert));
        for (size_t i = job->first; i < job->first + job->n; i++) {
            const calm_linear_ref *linear = &layout->linears[i];
            size_t out, in;
            calm_role_shape(config, linear->role, expert, &out, &in);
            ck_assert(linear->out == out && linear->in == in && in == job->in);
            ck_assert_int_eq(calm_role_job(linear->role), job->kind);
            times[linear->role]++;
            rows += out;
        }
        ck_assert_uint_eq(rows, job->out);
    }
    for (calm_role role = 0; role < CALM_N_ROLES; role++)
        ck_assert_uint_eq(times[role], calm_slot_has_job(config, slot, calm_role_job(role)) &&
                                           calm_expert_has_role(config, role, expert));
    ck_assert_uint_eq(listed, kind->n_jobs);
    /* Both ends have the width of the residual stream, those of experts the width of their latent if there is one. */
    const size_t width = expert >= 0 && config->moe.latent ? config->moe.latent : config->hidden;
    ck_assert_uint_eq(layout->jobs[begin].in, width);
    ck_assert_uint_eq(layout->jobs[end - 1].out, width);
}

static void check_jobs(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot)
{
    const calm_moe_config *moe = &calm_model_config(model)->moe;
    if (!kind->routed) {
        check_set(kind, model, block, slot, CALM_NO_EXPERT);
        return;
    }
    if (moe->shared_inner)
        check_set(kind, model, block, slot, CALM_SHARED_EXPERT);
    check_set(kind, model, block, slot, 0);
    check_set(kind, model, block, slot, (long)moe->n_experts - 1);
}

TEST(jobs)
{
    each_kind(check_jobs);
}
END_OF_TEST

/* ---- folding ---- */

/* The rows that feed a job lie within their linear, each once, and are together all channels of the input. */
static void check_feed(const calm_model *model, const calm_job_ref *job, const calm_feed *feed)
{
    const calm_config *config = calm_config_at(calm_model_config(model), job->block);
    size_t out, in, *read;
    calm_role_shape(config, feed->role, job->expert, &out, &in);
    ck_assert(calm_expert_has_role(config, feed->role, job->expert) && feed->readers > 0);
    ck_assert_uint_eq(calm_feed_rows(feed) * feed->readers, job->in);
    ck_ok(CALM_NEW(ctx, ctx->scratch, read, job->in));
    for (size_t k = 0; k < calm_feed_rows(feed); k++) {
        ck_assert_uint_lt(calm_feed_row(feed, k), out);
        ck_assert(!k || calm_feed_row(feed, k) > calm_feed_row(feed, k - 1));
        for (size_t r = 0; r < feed->readers; r++) {
            const size_t channel = calm_feed_channel(feed, k) + r * feed->width;
            ck_assert_uint_lt(channel, job->in);
            ck_assert_uint_eq(calm_feed_number(feed, channel), k);
            read[channel]++;
        }
    }
    for (size_t i = 0; i < job->in; i++)
        ck_assert_uint_eq(read[i], 1);
}

static void check_folds(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot)
{
    const calm_layout *layout = calm_model_layout(model);
    const calm_config *config = calm_config_at(calm_model_config(model), block);
    size_t begin, end;
    calm_layout_sublayer(layout, block, slot, &begin, &end);
    for (size_t j = begin; j < end; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        calm_feed feed;
        const calm_fold fold = calm_job_fold(config, job->kind, job->expert, &feed);
        ck_assert(fold != CALM_FOLD_NONE || !job->can_absorb);
        /* A norm's scale is folded for the first reader alone, which must be the only one in the sublayer. */
        ck_assert(fold != CALM_FOLD_NORM || job->kind == kind->jobs[0].job);
        for (size_t i = 1; i < kind->n_jobs && fold == CALM_FOLD_NORM; i++)
            ck_assert(!kind->jobs[i].outer);
        if (fold == CALM_FOLD_ROWS)
            check_feed(model, job, &feed);
    }
}

TEST(folds)
{
    each_kind(check_folds);
}
END_OF_TEST

/* ---- what it computes ---- */

/* What the hooks observed: how often, how wide, and a copy. */
typedef struct seen_rows {
    const calm_config *config;
    size_t n[CALM_N_HOOKS], width[CALM_N_HOOKS];
    float *x[CALM_N_HOOKS];
} seen_rows;

static calm_status keep_rows(void *user, calm_ctx *task, const calm_observation *at)
{
    seen_rows *seen = user;
    (void)task;
    ck_assert_uint_eq(at->n_rows, TOKENS);
    seen->n[at->hook]++;
    seen->width[at->hook] = at->width;
    ck_ok(CALM_NEW_RAW(ctx, ctx->out, seen->x[at->hook], TOKENS * at->width));
    memcpy(seen->x[at->hook], at->x, TOKENS * at->width * sizeof *at->x);
    return CALM_OK;
}

static void check_hooks(const calm_kind *kind, calm_sublayer slot, const seen_rows *seen)
{
    for (calm_hook hook = 0; hook < CALM_N_HOOKS; hook++) {
        const bool outside = hook == calm_sublayer_output(slot) || hook == CALM_HOOK_BLOCK_OUT ||
                             hook == CALM_HOOK_LAYER_INPUT;
        ck_assert_msg(seen->n[hook] == (!outside && calm_hook_in_slot(seen->config, slot, CALM_NO_EXPERT, hook)),
                      "%s: %s was seen %zu times", kind->name, calm_hook_name(hook), seen->n[hook]);
        ck_assert(!seen->n[hook] || seen->width[hook] == calm_hook_width(seen->config, hook, CALM_NO_EXPERT));
    }
}

static void check_run(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot)
{
    const calm_span span = {.n_tokens = TOKENS};
    const calm_config *config = calm_config_at(calm_model_config(model), block);
    const size_t n = TOKENS * config->hidden;
    seen_rows seen = {.config = config};
    const calm_observer observer = {keep_rows, &seen};
    calm_block loaded;
    calm_rope rope;
    float *h, *plain, *whole, *part;
    if (kind->routed)
        return;
    ck_ok(calm_model_load_block(ctx, model, block, &loaded));
    ck_assert_ptr_eq(calm_block_kind(&loaded, slot), kind);
    ck_ok(calm_rope_init(ctx, config, TOKENS, &rope));
    for (float **of[] = {&h, &plain, &whole, &part}, ***at = of; at < of + 4; at++)
        ck_ok(CALM_NEW(ctx, ctx->out, **at, n));
    for (size_t i = 0; i < n; i++)
        h[i] = (float)((double)(i * 2654435761u % 1009) / 504.5 - 1);
    /* The same bytes with and without an observer. */
    ck_ok(kind->run(ctx, &loaded, &rope, h, &span, plain, NULL));
    ck_ok(kind->run(ctx, &loaded, &rope, h, &span, whole, &observer));
    ck_assert_mem_eq(plain, whole, n * sizeof *plain);
    check_hooks(kind, slot, &seen);
    /* The first job's input gives the whole output, and the last job's input the output of its product. */
    for (size_t j = 0; j < kind->n_jobs; j++) {
        const calm_job_kind job = kind->jobs[j].job, from = calm_job_scored_from(config, job);
        ck_assert_int_eq(from, kind->jobs[j + 1 < kind->n_jobs ? 0 : j].job);
        ck_ok(calm_block_from_job(ctx, &loaded, &rope, job, seen.x[calm_job_input(from)], &span, part));
        if (!j)
            memcpy(whole, part, n * sizeof *whole);
        ck_assert_mem_eq(part, whole, n * sizeof *part);
    }
    ck_assert_mem_eq(seen.x[calm_job_input(kind->jobs[0].job)], h, n * sizeof *h);
}

TEST(runs)
{
    each_kind(check_run);
}
END_OF_TEST

/* Checks the peak of a run against its estimate, but for helping threads, which there are none of here. */
static void check_scratch(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot)
{
    const calm_span span = {.n_tokens = TOKENS};
    const calm_config *config = calm_config_at(calm_model_config(model), block);
    calm_block loaded;
    calm_rope rope;
    float *h, *out;
    (void)slot;
    if (kind->routed)
        return;
    ck_ok(calm_model_load_block(ctx, model, block, &loaded));
    ck_ok(calm_rope_init(ctx, config, TOKENS, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, h, TOKENS * config->hidden));
    ck_ok(CALM_NEW(ctx, ctx->out, out, TOKENS * config->hidden));
    for (int bits = 0; bits <= 8; bits += 8) {
        for (calm_role role = 0; role < CALM_N_ROLES; role++)
            loaded.weight[role].act_bits = bits;
        test_memory_begin();
        ck_ok(kind->run(ctx, &loaded, &rope, h, &span, out, NULL));
        const test_memory held = test_memory_end();
        const size_t said = kind->scratch_bytes(config, TOKENS, bits > 0);
        ck_assert_uint_eq(held.out, 0);
        ck_assert_msg(held.scratch <= said && held.scratch > 0, "%s: held %zu bytes, said %zu", kind->name,
                      held.scratch, said);
    }
}

TEST(scratch)
{
    each_kind(check_scratch);
}
END_OF_TEST

/* ---- plain tensors ---- */

static void check_plains(const calm_kind *kind, const calm_model *model, size_t block, calm_sublayer slot)
{
    const calm_config *config = calm_config_at(calm_model_config(model), block);
    calm_block loaded;
    (void)slot;
    ck_ok(calm_model_load_block(ctx, model, block, &loaded));
    for (size_t i = 0; i < kind->n_plains; i++) {
        const calm_norm *found = &loaded.plain[kind->plains[i].plain];
        size_t shape[CALM_PLAIN_DIMS], n = 1;
        int n_dims;
        const bool has = calm_plain_shape(config, kind, kind->plains[i].plain, shape, &n_dims);
        ck_assert_int_eq(has, found->w != NULL);
        for (int d = 0; d < n_dims; d++)
            n *= shape[d];
        ck_assert(!has || found->width == n);
    }
}

TEST(plains)
{
    each_kind(check_plains);
}
END_OF_TEST

/* ---- blocks that differ ---- */

/* A config whose blocks differ has a part for each block, with its widths, and a block may lack a sublayer. */
TEST(differing_blocks)
{
    const tiny_model spec = tiny_of("qwen3");
    CALM_SCOPED_MODEL(model);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    calm_config config = *calm_model_config(model);
    calm_layout layout;
    size_t begin, end;
    ck_assert_ptr_eq(calm_config_at(&config, 1), &config);
    ck_ok(calm_config_new_shapes(ctx, &config));
    config.shapes[0].kind[CALM_SUBLAYER_MLP] = NULL;
    config.shapes[1].head_dim = 2 * config.head_dim;
    config.shapes[1].inner = 3 * config.inner;
    ck_ok(calm_config_new_blocks(ctx, &config));
    ck_ok(calm_layout_build(ctx, &config, "model.", false, &layout));
    ck_assert_uint_eq(layout.block_begin[1], 2);
    ck_assert_uint_eq(layout.n_jobs, 6);
    ck_assert_uint_eq(layout.jobs[0].out, calm_model_layout(model)->jobs[0].out);
    ck_assert_uint_eq(layout.jobs[2].out, 2 * calm_model_layout(model)->jobs[4].out);
    ck_assert_uint_eq(layout.jobs[4].out, 3 * calm_model_layout(model)->jobs[6].out);
    calm_layout_sublayer(&layout, 0, CALM_SUBLAYER_MLP, &begin, &end);
    ck_assert_uint_eq(begin, end);
    ck_assert_ptr_null(calm_kind_at(&config, 0, CALM_SUBLAYER_MLP));
    ck_assert_int_eq(calm_block_last_slot(calm_config_at(&config, 0)), CALM_SUBLAYER_ATTENTION);
    ck_assert_int_eq(calm_block_last_slot(calm_config_at(&config, 1)), CALM_SUBLAYER_MLP);
    /* Common settings reach all parts. */
    config.hadamard[CALM_JOB_DOWN] = 16;
    calm_config_copy_common(&config);
    ck_assert_uint_eq(calm_config_at(&config, 1)->hadamard[CALM_JOB_DOWN], 16);
    ck_assert_uint_eq(calm_config_at(&config, 1)->head_dim, 2 * config.head_dim);
}
END_OF_TEST

/* A block without an MLP returns its attention's sum, and the block's hook observes it. */
TEST(half_a_block)
{
    const tiny_model spec = tiny_of("qwen3");
    const calm_span span = {.n_tokens = TOKENS};
    CALM_SCOPED_MODEL(model);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    calm_config config = *calm_model_config(model);
    const size_t n = TOKENS * config.hidden;
    calm_block block;
    calm_rope rope;
    float *whole, *half;
    ck_ok(calm_config_new_shapes(ctx, &config));
    config.shapes[0].kind[CALM_SUBLAYER_MLP] = NULL;
    ck_ok(calm_config_new_blocks(ctx, &config));
    ck_ok(calm_model_load_block(ctx, model, 0, &block));
    ck_ok(calm_rope_init(ctx, &config, TOKENS, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, whole, n));
    ck_ok(CALM_NEW(ctx, ctx->out, half, n));
    for (size_t i = 0; i < n; i++)
        whole[i] = half[i] = (float)((double)(i * 48271u % 997) / 498.5 - 1);
    ck_ok(calm_block_sublayer(ctx, &block, CALM_SUBLAYER_ATTENTION, &rope, whole, &span, NULL));
    seen_rows seen = {.config = &config};
    const calm_observer observer = {keep_rows, &seen};
    block.config = calm_config_at(&config, 0);
    ck_ok(calm_block_run(ctx, &block, &rope, half, &span, &observer));
    ck_assert_mem_eq(whole, half, n * sizeof *whole);
    ck_assert(seen.n[CALM_HOOK_BLOCK_OUT] == 1 && seen.n[CALM_HOOK_MLP_OUT] == 0);
    ck_assert_mem_eq(seen.x[CALM_HOOK_BLOCK_OUT], half, n * sizeof *half);
}
END_OF_TEST

/* A kind without a backward pass is refused by name wherever gradients are needed, before and while they are
 * computed. */
TEST(without_a_way_back)
{
    const tiny_model spec = tiny_of("qwen3");
    const calm_span span = {.n_tokens = TOKENS};
    CALM_SCOPED_MODEL(model);
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    calm_config config = *calm_model_config(model);
    calm_kind one_way = *calm_kind_at(&config, 1, CALM_SUBLAYER_ATTENTION);
    calm_block_tape *tape;
    calm_block block;
    calm_rope rope;
    float *x, *z;
    config.qkv_limit = 8;
    ck_assert(!calm_kinds_have_back(&config));
    ck_fails(calm_kinds_need_back(ctx, &config, "`learn`"), CALM_EUNSUPPORTED, "of clamped q, k and v (\"clip_qkv\")");
    config.qkv_limit = 0;
    one_way.name = "one_way";
    one_way.back = NULL;
    ck_ok(calm_kinds_need_back(ctx, &config, "`learn`"));
    ck_ok(calm_config_new_shapes(ctx, &config));
    config.shapes[1].kind[CALM_SUBLAYER_ATTENTION] = &one_way;
    ck_ok(calm_config_new_blocks(ctx, &config));
    ck_fails(calm_kinds_need_back(ctx, &config, "`learn`"), CALM_EUNSUPPORTED,
             "`learn` needs gradients, and calm does not compute those of sublayers of kind one_way, as in block 1");
    ck_ok(calm_model_load_block(ctx, model, 1, &block));
    block.config = calm_config_at(&config, 1);
    ck_ok(calm_rope_init(ctx, &config, TOKENS, &rope));
    ck_ok(CALM_NEW(ctx, ctx->out, x, TOKENS * config.hidden));
    ck_ok(CALM_NEW(ctx, ctx->out, z, TOKENS * config.hidden));
    ck_fails(calm_block_forward_tape(ctx, &block, &rope, x, &span, z, &tape), CALM_EUNSUPPORTED,
             "block 1: calm does not compute gradients of kind one_way");
}
END_OF_TEST

int main(void)
{
    return run_tests("kind", (const TTest *[]){registry, jobs, folds, runs, scratch, plains, differing_blocks,
                                               half_a_block, without_a_way_back, NULL});
}
