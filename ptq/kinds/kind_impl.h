/* The MLP's parts of a descriptor, which mixtures share.  Only kind*.c include it. */
#pragma once

#include "ptq/arch/kind.h"

#define CALM_MLP_JOBS 2

/* Jobs of an MLP, and of an expert. */
extern const calm_kind_job calm_mlp_jobs[CALM_MLP_JOBS];

/* Functions of its descriptor (calm_kind). */
void calm_mlp_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in);
size_t calm_mlp_hook_width(const calm_config *config, calm_hook hook, long expert);
bool calm_mlp_feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out);
