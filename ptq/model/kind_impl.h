/* Descriptors that files of kinds share.  Only kind*.c include it. */
#pragma once

#include "ptq/model/kind.h"

#define CALM_MLP_JOBS 2

/* Of the MLP that an expert is too. */
extern const calm_kind_job calm_mlp_jobs[CALM_MLP_JOBS];

/* Members of its descriptor (kind.h). */
void calm_mlp_shape(const calm_config *config, calm_role role, long expert, size_t *out, size_t *in);
size_t calm_mlp_hook_width(const calm_config *config, calm_hook hook, long expert);
bool calm_mlp_feed(const calm_config *config, calm_job_kind job, long expert, calm_feed *out);
