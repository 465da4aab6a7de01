/* The compressed-tensors entry of config.json as the check has parsed it, group by group. */
#pragma once

#include "ptq/check/check_state.h"
#include "ptq/model/qformat_ct.h"
#include "ptq/text/regex.h"

typedef struct calm_ct_group {
    const char *name;
    const calm_json *json;
    calm_qformat_scheme scheme;
    const char *format; /* its own, inferred where it has none */
    bool usable;        /* its weights were understood */
    bool floats;        /* weights of floats */
    bool foreign;       /* valid, but of a scheme that calm does not read: blocks, other floats, sparse */
    bool no_weights;    /* it quantizes activations alone: attention */
    bool reordered;     /* columns have a group index */
} calm_ct_group;

typedef struct calm_ct_target {
    const char *text;  /* as written */
    calm_regex *regex; /* NULL: a name or class */
    size_t group;      /* n_groups: an ignore entry */
    bool class_name;   /* "Linear" */
    bool other_class;  /* "LlamaAttention": tensors do not show which modules are of it */
    bool usable;
    size_t hits;
} calm_ct_target;

typedef struct calm_ct_entry {
    calm_checking *c;
    const calm_json *json;
    calm_ct_group *groups;
    size_t n_groups;
    calm_ct_target *targets; /* ignore entries, then those of the groups in file order */
    size_t n_targets;
} calm_ct_entry;

/* Resolve every module, with findings about targets and ignore, then about what engines fuse. */
calm_status calm_ct_resolve(calm_ct_entry *entry);

/* Free the patterns. */
void calm_ct_clear(calm_ct_entry *entry);
