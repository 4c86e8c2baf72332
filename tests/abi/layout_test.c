/* Everything in the frozen headers lies where it lay, is as large as it was, and has its value. */
#include "layout.h"

#include <stdio.h>
#include <string.h>

static const struct layout_line *find(const char *name) {
    const struct layout_line *line = present_layout;
    while (line->name && strcmp(line->name, name) != 0) {
        line++;
    }
    return line->name ? line : NULL;
}

int main(void) {
    int failed = 0;
    for (const struct layout_line *frozen = frozen_layout; frozen->name; frozen++) {
        const struct layout_line *present = find(frozen->name);
        if (!present || present->offset != frozen->offset || present->size != frozen->size) {
            fprintf(stderr, "%s: expected offset %zu and size or value %zu, found %zu and %zu\n",
                    frozen->name, frozen->offset, frozen->size, present ? present->offset : 0,
                    present ? present->size : 0);
            failed = 1;
        }
    }
    return failed;
}
