#include "tests/support/ggml_sample.h"

#include <string.h>

#include "tests/support/harness.h"

uint8_t *ggml_sample(calm_ggml_type type, size_t *bytes)
{
    static const uint8_t same[] = {0x00, 0xff, 0x7f, 0x80, 0x55, 0xaa, 0x0f, 0xf0};
    static const size_t n_same = sizeof same;
    const size_t size = calm_ggml_find(type)->bytes;
    uint32_t state = (uint32_t)type + 1;
    uint8_t *out;
    *bytes = size * GGML_SAMPLE_BLOCKS;
    ck_ok(CALM_NEW(ctx, ctx->out, out, *bytes));
    for (size_t b = 0; b < GGML_SAMPLE_BLOCKS; b++) {
        for (size_t i = 0; i < size; i++) {
            state = state * 1664525u + 1013904223u;
            out[b * size + i] = b < n_same ? same[b] : (uint8_t)(state >> 24);
        }
        /* Some blocks have the least, the largest and negative float16 values as scales. */
        static const uint16_t halves[] = {0x0001, 0x7bff, 0x8001, 0xfbff, 0x8000, 0x3c00};
        if (b >= n_same && b < n_same + sizeof halves / sizeof *halves)
            for (size_t i = 0; i + 1 < size; i += size > 36 ? size - 4 : 2) {
                out[b * size + i] = (uint8_t)halves[b - n_same];
                out[b * size + i + 1] = (uint8_t)(halves[b - n_same] >> 8);
            }
    }
    return out;
}
