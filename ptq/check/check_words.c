/* Check: unused bits of the last word of codes. */
#include <string.h>

#include "ptq/check/check_state.h"

/* Counts the words first, first + stride, ... [n] with a bit behind the used ones; *at: the first of them. */
static size_t count_spilled(const calm_tensor *tensor, size_t first, size_t stride, size_t n, size_t used_bits,
                            size_t *at)
{
    const uint32_t mask = used_bits % 32 ? ~0u << used_bits % 32 : 0;
    size_t bad = 0;
    for (size_t i = n; mask && i-- > 0;) {
        uint32_t word;
        memcpy(&word, tensor->data + 4 * (first + i * stride), sizeof word);
        bad += (word & mask) != 0;
        *at = word & mask ? i : *at;
    }
    return bad;
}

calm_status calm_check_padding(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t words, size_t used_bits)
{
    size_t first = 0;
    if (tensor->dtype != CALM_I32 || tensor->n_elements != rows * words || !words)
        return CALM_OK;
    const size_t bad = count_spilled(tensor, words - 1, words, rows, used_bits, &first);
    calm_safetensors_release(c->set, tensor);
    return bad ? calm_check_add(c, CALM_CHECK_RULE_CODE_PADDING, tensor->name, "%zu of %zu rows, the first is %zu", bad,
                                rows, first)
               : CALM_OK;
}

calm_status calm_check_last_row(calm_checking *c, const calm_tensor *tensor, size_t rows, size_t cols, size_t used_bits)
{
    size_t first = 0;
    if (tensor->dtype != CALM_I32 || tensor->n_elements != rows * cols || !rows)
        return CALM_OK;
    const size_t bad = count_spilled(tensor, (rows - 1) * cols, 1, cols, used_bits, &first);
    return bad ? calm_check_add(c, CALM_CHECK_RULE_CODE_PADDING, tensor->name, "%zu of %zu words of the last row", bad,
                                cols)
               : CALM_OK;
}
