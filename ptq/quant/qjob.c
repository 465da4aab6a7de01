/* Quantized jobs read back as float32. */
#include "ptq/quant/qjob.h"

#include "ptq/quant/grid.h"

void calm_qjob_dequantize(const calm_qjob *qjob, float *w)
{
    for (size_t i = 0; i < qjob->out; i++) {
        for (size_t g = 0; g < qjob->n_groups; g++) {
            size_t cell = i * qjob->n_groups + g, start = g * qjob->group, left = qjob->in - start;
            size_t n = left < qjob->group ? left : qjob->group;
            uint8_t zero = qjob->zeros ? qjob->zeros[cell] : calm_symmetric_zero(&qjob->scheme);
            calm_grid_decode((calm_grid){qjob->scales[cell], zero}, qjob->codes + i * qjob->in + start, n,
                             w + i * qjob->in + start);
        }
    }
}

void calm_qjob_effective(const calm_qjob *qjob, float *w)
{
    calm_qjob_dequantize(qjob, w);
    for (size_t i = 0; qjob->in_scale && i < qjob->out; i++)
        for (size_t j = 0; j < qjob->in; j++)
            w[i * qjob->in + j] /= qjob->in_scale[j];
}
