/* Check: shards, their index, and the modules of their tensors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptq/check/check_state.h"

typedef struct fault_report {
    calm_checking *c;
    calm_status status;
    size_t other_dtypes;
} fault_report;

/* Returns true for a safetensors dtype that calm does not read; such a dtype is reported once. */
static bool is_other_dtype(const char *text)
{
    static const char *const list[] = {"dtype F8_", "dtype F4 ",   "dtype F6_", "dtype C64 ", "dtype C128 ",
                                       "dtype U16 ", "dtype U64 "};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strstr(text, list[i]))
            return true;
    return false;
}

/* A calm_shard_fault_fn; faults have the order of the first rules. */
static void add_fault(void *user, calm_shard_fault fault, const char *tensor, const char *text)
{
    fault_report *to = user;
    calm_checking *c = to->c;
    calm_check_rule rule = (calm_check_rule)(CALM_CHECK_RULE_SHARD_HEADER + (int)fault);
    char copy[CALM_MESSAGE_MAX], file[256];
    const size_t length = strlen(c->path);
    memcpy(copy, text, strlen(text) + 1);
    calm_ctx_clear_failure(c->ctx);
    /* The message begins with "DIR/FILE:". */
    const char *name = strncmp(copy, c->path, length) == 0 && copy[length] == '/' ? copy + length + 1 : "";
    snprintf(file, sizeof file, "%.*s", (int)strcspn(name, ":"), name);
    c->partial |= fault != CALM_SHARD_UNLISTED && fault != CALM_SHARD_TOTAL && fault != CALM_SHARD_HOLE;
    if (fault == CALM_SHARD_DTYPE && is_other_dtype(copy)) {
        if (to->other_dtypes++)
            return;
        rule = CALM_CHECK_RULE_METHOD_UNCHECKED;
    }
    if (to->status == CALM_OK)
        to->status = calm_check_add(c, rule, tensor ? tensor : *file ? file : c->path, "%s", copy);
}

static int compare_members(const void *a, const void *b)
{
    const calm_check_member *x = a, *y = b;
    const int order = strcmp(x->module, y->module);
    return order ? order : strcmp(x->suffix, y->suffix);
}

/* Returns true for a suffix that only quantized weights have. */
static bool is_stored_suffix(const char *suffix)
{
    calm_qformat_part part;
    return calm_qformat_suffix_part(NULL, suffix, &part) && part != CALM_QFORMAT_INDEX && strcmp(suffix, "weight") != 0;
}

/* Returns true if the module is an embedding, by its name. */
static bool is_embedding(const char *module)
{
    const char *dot = strrchr(module, '.');
    const char *last = dot ? dot + 1 : module;
    return strstr(last, "embed") || strcmp(last, "wte") == 0 || strcmp(last, "wpe") == 0 ||
           strcmp(last, "rel_pos") == 0;
}

#define MOST_ROTATIONS 64 /* in transform_config; models have four */

/* Returns true for "up_proj.R4_input", NAME_LOCATION, if transform_config has NAME. */
static bool is_transform(const calm_checking *c, const char *module)
{
    static const char *const places[] = {"input",  "weight_input", "weight_output", "output",
                                         "attn_q", "attn_k",       "q_attn",        "k_cache"};
    const calm_json *groups = calm_json_get(calm_json_get(c->entry, "transform_config"), "config_groups"), *value;
    const char *dot = strrchr(module, '.'), *key;
    if (!dot || calm_json_size(groups) > MOST_ROTATIONS)
        return false;
    for (void *iter = NULL; calm_json_next(groups, &iter, &key, &value);) {
        const size_t n = strlen(key);
        if (strncmp(dot + 1, key, n) == 0 && dot[1 + n] == '_' && CALM_CHECK_LISTED(dot + 2 + n, places))
            return true;
    }
    return false;
}

static void describe(const calm_checking *c, calm_check_module *module)
{
    module->transform = is_transform(c, module->name);
    for (size_t i = module->first; i < module->first + module->n; i++) {
        const calm_check_member *at = &c->members[i];
        module->stored |= is_stored_suffix(at->suffix);
        if (strcmp(at->suffix, "weight") != 0 || module->transform)
            continue;
        module->linear |= at->tensor->n_dims == 2 && !is_embedding(module->name);
        if (at->tensor->n_dims == 2 && calm_dtype_is_float(at->tensor->dtype)) {
            module->out = at->tensor->shape[0];
            module->in = at->tensor->shape[1];
        }
    }
    module->linear |= module->stored;
}

calm_status calm_check_list_modules(calm_checking *c)
{
    const size_t n = calm_safetensors_count(c->set);
    c->n_modules = 0;
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->out, c->members, n));
    for (size_t i = 0; i < n; i++) {
        const calm_tensor *tensor = calm_safetensors_at(c->set, i);
        const char *dot = strrchr(tensor->name, '.');
        char *module;
        CALM_TRY(calm_strf(c->ctx, c->ctx->out, &module, "%.*s", dot ? (int)(dot - tensor->name) : 0, tensor->name));
        c->members[i] = (calm_check_member){module, dot ? dot + 1 : tensor->name, tensor};
    }
    c->n_members = n;
    if (n)
        qsort(c->members, n, sizeof *c->members, compare_members);
    CALM_TRY(CALM_NEW(c->ctx, c->ctx->out, c->modules, n));
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(c->members[i].module, c->members[i - 1].module) != 0)
            c->modules[c->n_modules++] = (calm_check_module){.name = c->members[i].module, .first = i};
        c->modules[c->n_modules - 1].n++;
    }
    for (size_t i = 0; i < c->n_modules; i++)
        describe(c, &c->modules[i]);
    return CALM_OK;
}

calm_status calm_check_files(calm_checking *c)
{
    fault_report to = {c, CALM_OK, 0};
    CALM_TRY(calm_safetensors_open_leniently(c->ctx, c->path, add_fault, &to, &c->set));
    if (to.status != CALM_OK)
        return calm_fail(c->ctx, to.status, "%s: out of memory", c->path);
    CALM_TRY(calm_check_published(c));
    c->report->n_tensors = calm_safetensors_count(c->set);
    for (size_t i = 0; i < c->report->n_tensors; i++)
        c->report->bytes += calm_safetensors_at(c->set, i)->bytes;
    return calm_check_list_modules(c);
}

static int compare_name(const void *name, const void *module)
{
    return strcmp(name, ((const calm_check_module *)module)->name);
}

calm_check_module *calm_check_find_module(const calm_checking *c, const char *name)
{
    return c->n_modules ? bsearch(name, c->modules, c->n_modules, sizeof *c->modules, compare_name) : NULL;
}

const calm_tensor *calm_check_part(const calm_checking *c, const calm_check_module *module, const char *suffix)
{
    for (size_t i = module->first; i < module->first + module->n; i++)
        if (strcmp(c->members[i].suffix, suffix) == 0)
            return c->members[i].tensor;
    return NULL;
}
