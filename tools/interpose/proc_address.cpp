#include "proc_address.h"

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

} // namespace

Served served_by_name(const char *name, int version, bool per_thread) {
    const Row *found = nullptr;
    for (const Row &row : rows) {
        if (strcmp(row.name, name) == 0 && row.since <= version &&
            (!found || found->since < row.since)) {
            found = &row;
        }
    }
    if (!found) {
        return served_count;
    }
    return per_thread && version >= first_per_thread ? found->per_thread : found->plain;
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
