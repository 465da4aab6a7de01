/* Lines of a text. */
#include "ptq/text/lines.h"

#include <string.h>

bool calm_lines_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r' && text[i] != '\n')
            return false;
    return true;
}

bool calm_lines_next(calm_lines *lines, const char **line, size_t *n)
{
    while (lines->at < lines->n) {
        const char *begin = lines->text + lines->at, *end = memchr(begin, '\n', lines->n - lines->at);
        const size_t length = end ? (size_t)(end - begin) : lines->n - lines->at;
        lines->at += length + 1;
        lines->number++;
        if (!calm_lines_blank(begin, length)) {
            *line = begin;
            *n = length;
            return true;
        }
    }
    return false;
}
