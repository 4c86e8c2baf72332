#include "proc_address.h"

#include <initializer_list>
#include <string.h>

namespace emm::run {
namespace {

struct Row {
    const char *name;
    int since;
    Served plain;
    Served per_thread;
};

constexpr Row rows[] = {
#define SERVED(name, since, symbol) {#name, since, served_##symbol, served_##symbol},
#define SERVED_ALSO SERVED
#define SERVED_STREAM(name, since, symbol, variant)                                                \
    {#name, since, served_##symbol, served_##variant},
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
};

constexpr const char *symbols[] = {
#define SERVED(name, since, symbol) #symbol,
#define SERVED_STREAM(name, since, symbol, variant) #symbol, #variant,
#include "served.def"
#undef SERVED
#undef SERVED_STREAM
};

constexpr int first_per_thread = 7000; // CUDA 7.0 brought the streams of threads

Served form_of(const Row &row, int version, bool per_thread) {
    return per_thread && version >= first_per_thread ? row.per_thread : row.plain;
}

} // namespace

Served served_by_name(const char *name, int version, bool per_thread) {
    const Row *found = nullptr;
    for (const Row &row : rows) {
        if (strcmp(row.name, name) == 0 && row.since <= version &&
            (!found || found->since < row.since)) {
            found = &row;
        }
    }
    return found ? form_of(*found, version, per_thread) : served_count;
}

Served served_by_function(void *found, const char *name, int version, bool per_thread,
                          const Entries &driver, AskDriver ask) {
    for (const Row &row : rows) {
        for (const Served served : {row.plain, row.per_thread}) {
            if (strcmp(row.name, name) == 0 &&
                reinterpret_cast<void *>(driver.at[served]) == found) {
                return served;
            }
        }
    }
    for (const Row &row : rows) {
        const Served served = form_of(row, version, per_thread);
        const bool is_early = row.since < first_per_thread && version >= first_per_thread;
        const int asked = per_thread && is_early ? first_per_thread : row.since;
        if (strcmp(row.name, name) == 0 && asked <= version && driver.at[served] &&
            ask(name, asked, per_thread) == found) {
            return served;
        }
    }
    return served_count;
}

const char *symbol_of(Served served) {
    return symbols[served];
}

Served served_by_symbol(const char *symbol) {
    int served = 0;
    while (served < served_count && strcmp(symbols[served], symbol) != 0) {
        served++;
    }
    return static_cast<Served>(served);
}

} // namespace emm::run
