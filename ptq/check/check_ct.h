/* The compressed-tensors entry of config.json, parsed group by group for the check. */
#pragma once

#include "ptq/check/check_state.h"
#include "ptq/text/regex.h"
#include "ptq/weights/qformat_ct.h"

typedef struct calm_ct_group {
    const char *name;
    const calm_json *json;
    calm_qformat_scheme scheme;
    const char *format; /* the group's format, inferred if it names none */
    bool usable;        /* calm understands the group's weights */
    bool floats;        /* the weights are small floats */
    bool foreign;       /* valid, but calm does not read the scheme: blocks, other floats, sparse */
    bool no_weights;    /* the group quantizes only activations: attention */
    bool reordered;     /* columns have a group index (activation order) */
} calm_ct_group;

typedef struct calm_ct_target {
    const char *text;  /* as in config.json */
    calm_regex *regex; /* NULL: a name or a class */
    size_t group;      /* index of its group; n_groups: an ignore entry */
    bool class_name;   /* "Linear" */
    bool other_class;  /* "LlamaAttention": tensors do not show which modules have this class */
    bool usable;       /* the pattern is valid */
    size_t hits;       /* number of matched modules */
} calm_ct_target;

typedef struct calm_ct_entry {
    calm_checking *c;
    const calm_json *json;
    calm_ct_group *groups;
    size_t n_groups;
    calm_ct_target *targets; /* [n_targets] ignore entries, then the groups' targets in file order */
    size_t n_targets;
} calm_ct_entry;

/* Finds the scheme of every module; reports findings about targets and ignore, then about fused modules. */
calm_status calm_ct_resolve(calm_ct_entry *entry);

/* Frees the patterns. */
void calm_ct_clear(calm_ct_entry *entry);
