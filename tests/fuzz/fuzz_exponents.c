/* Codes of exponents: decoded words encode to a code that decodes to the same words. */
#include <stdlib.h>
#include <string.h>

#include "ptq/quant/exponent_code.h"
#include "tests/fuzz/fuzz.h"

#define MOST ((size_t)1 << 18)    /* words */

int calm_fuzz_one(const uint8_t *data, size_t size)
{
    calm_ctx *ctx = fuzz_context();
    static uint8_t first[4 * MOST], second[4 * MOST], code[4 * MOST + 64];
    uint64_t n = 0;
    if (size >= 24)
        memcpy(&n, data + 16, sizeof n);
    const size_t width = size >= 10 && data[9] == 2 ? 2 : 4;
    if (n > MOST)
        return 0;
    if (calm_exponent_decode(ctx, "code", data, size, n, width, first) != CALM_OK) {
        if (!ctx->message[0])
            abort();
        return 0;
    }
    const size_t bytes = calm_exponent_encode(first, n, width, false, code);
    if (bytes > calm_exponent_code_most(n, width) ||
        calm_exponent_decode(ctx, "again", code, bytes, n, width, second) != CALM_OK ||
        memcmp(first, second, n * width) != 0)
        abort();
    return 0;
}
