/* One line a member: where it lies, and how large it is. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stddef.h>

struct layout_line {
    const char *name;
    size_t offset, size;
};

extern const struct layout_line frozen_layout[], present_layout[]; /* ended by a NULL name */

#endif
