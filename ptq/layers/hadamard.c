/* Online transforms: rows of a job's input times a Hadamard matrix. */
#include "ptq/layers/hadamard.h"

#include "ptq/tensor/rotation.h"

calm_status calm_hadamard_rows(calm_ctx *ctx, const calm_config *config, calm_job_kind job, size_t n, size_t width,
                               float *x)
{
    const calm_rotation hadamard = calm_rotation_hadamard(config->hadamard[job]);
    return hadamard.n ? calm_rotation_apply_rows(ctx, &hadamard, n, width, x) : CALM_OK;
}

size_t calm_hadamard_bytes(const calm_config *config, calm_job_kind job, size_t width)
{
    return config->hadamard[job] ? CALM_BYTES(double, width) : 0;
}
