#define __CUDA_API_VERSION_INTERNAL // the older and the per-thread forms, too
#include <cuda.h>

#include "held.h"
#include "hold.h"

#include <string.h>

namespace emm::run {
namespace {

constexpr const char *held_symbols[] = {
#define HELD(symbol, type) #symbol,
#include "held.inc"
#undef HELD
};
constexpr size_t count = sizeof held_symbols / sizeof *held_symbols;

Entry behind[count];

template <size_t held, class Function> struct Wrapper;
template <size_t held, class... Arguments> struct Wrapper<held, CUresult(Arguments...)> {
    using Function = CUresult (*)(Arguments...);
    static Function function() {
        return reinterpret_cast<Function>(__atomic_load_n(&behind[held], __ATOMIC_RELAXED));
    }
    // This body adds only the call of the function behind, so the arguments stay in their
    // registers.
    static CUresult call(Arguments... arguments) {
        hold::Place *const place = hold::enter();
        if (!place) [[unlikely]] {
            return call_otherwise(arguments...);
        }
        const CUresult result = function()(arguments...);
        hold::unmark(*place);
        return result;
    }
    [[gnu::noinline]] static CUresult call_otherwise(Arguments... arguments) {
        const hold::Call call = hold::enter_otherwise();
        if (call.refused != 0) {
            return CUresult(call.refused);
        }
        const CUresult result = function()(arguments...);
        if (call.place) {
            hold::unmark(*call.place);
        }
        return result;
    }
};

enum Index : size_t {
#define HELD(symbol, type) index_of_##symbol,
#include "held.inc"
#undef HELD
};

const Entry wrappers[] = {
#define HELD(symbol, type)                                                                         \
    reinterpret_cast<Entry>(&Wrapper<index_of_##symbol, decltype(type)>::call),
#include "held.inc"
#undef HELD
};

} // namespace

size_t held_count() {
    return count;
}

size_t held_by_symbol(const char *symbol) {
    size_t held = 0;
    while (held < count && strcmp(held_symbols[held], symbol) != 0) {
        held++;
    }
    return held;
}

void set_behind(size_t held, Entry entry) {
    __atomic_store_n(&behind[held], entry, __ATOMIC_RELEASE);
}

Entry wrapper_of(size_t held) {
    return wrappers[held];
}

} // namespace emm::run
