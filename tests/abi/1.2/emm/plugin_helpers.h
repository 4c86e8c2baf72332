/*
 * emm/plugin_helpers.h: for authors of plugins in C. Inline: nothing to link. C99 and C++11. Any
 * thread may call these functions; they allocate no memory.
 */
#ifndef EMM_PLUGIN_HELPERS_H
#define EMM_PLUGIN_HELPERS_H

#include <emm/plugin.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls a slot below a layer: EMM_BELOW(layer, memalloc, size, stream, &ptr). The layer has copied
 * `below` and `below_managers` of emm_context_info. */
#define EMM_BELOW(layer, slot, ...)                                                                \
    ((layer)->below->slot((layer)->below_managers[EMM_SLOT_INDEX(slot)], __VA_ARGS__))

/* The text of option `name` among create's option_texts, or NULL. */
static inline const char *emm_option_text(const emm_option *options,
                                          const char *const *option_texts, const char *name) {
    size_t i;
    for (i = 0; options && options[i].name; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return option_texts[i];
        }
    }
    return NULL;
}

/*
 * Reads a size in the form that the host accepts for EMM_OPTION_SIZE: decimal digits, then perhaps
 * KiB, MiB, GiB or TiB. With such a unit, a fraction of up to six digits may follow the digits
 * (1.5GiB). Returns 1 and sets *ret_bytes. If the text is not a size, or the size is 2^63 or more,
 * returns 0.
 */
static inline int emm_parse_size(const char *text, uint64_t *ret_bytes) {
    static const char units[] = "KMGT";
    const uint64_t limit = UINT64_C(1) << 63;
    uint64_t whole = 0, unit = 1, numerator = 0, denominator = 1;
    const char *p = text;
    if (!p || *p < '0' || *p > '9') {
        return 0;
    }
    for (; *p >= '0' && *p <= '9'; p++) {
        const uint64_t digit = *p & 15;
        if (whole > (limit - 1 - digit) / 10) {
            return 0;
        }
        whole = whole * 10 + digit;
    }
    if (*p == '.') {
        for (p++; *p >= '0' && *p <= '9' && denominator < 1000000; p++) {
            numerator = numerator * 10 + (*p & 15);
            denominator *= 10;
        }
        if (denominator == 1 || *p == '\0') {
            return 0;
        }
    }
    if (*p != '\0') {
        const char *found = strchr(units, *p);
        if (!found || strcmp(p + 1, "iB") != 0) {
            return 0;
        }
        unit = UINT64_C(1) << (10 * (found - units + 1));
    }
    if (whole >= limit / unit) {
        return 0;
    }
    *ret_bytes = whole * unit + unit * numerator / denominator;
    return 1;
}

/* host->fail with a printf format; the text is cut at 1,023 bytes. */
#if defined(__GNUC__)
__attribute__((format(printf, 4, 5)))
#endif
static inline emm_status
emm_failf(const emm_host *host, emm_status code, int32_t driver_result, const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return host->fail(code, driver_result, text);
}

/*
 * Copies `from` into a caller's struct of the same type, perhaps of another version. Both structs
 * begin with their struct_size. The copy ends where the shorter struct ends, and leaves the
 * caller's struct_size as it is. emm lets no application's struct through whose struct_size is 0.
 */
static inline void emm_copy_sized(void *ret, const void *from) {
    uint32_t wanted, known;
    memcpy(&wanted, ret, sizeof wanted);
    memcpy(&known, from, sizeof known);
    if (wanted > sizeof wanted) {
        memcpy(ret, from, wanted < known ? wanted : known);
        memcpy(ret, &wanted, sizeof wanted);
    }
}

#ifdef __cplusplus
}
#endif

#endif
