#pragma once

#include "core/memory/call.h"

#include <algorithm>
#include <iterator>

namespace emm::core {

// A struct that a plugin fills. A plugin that writes more than struct_size says, which is what it
// knows of a later version, writes into the room behind it, and is found out.
template <class Struct> class Filled {
public:
    Filled() {
        if constexpr (requires(Struct & any) { any.struct_size; }) {
            value_.struct_size = sizeof(Struct);
        }
        std::fill(std::begin(behind_), std::end(behind_), untouched);
    }
    Struct *out() { return &value_; }

    // What the slot answered, unless it succeeded and wrote too much.
    emm_status conclude(emm_context &context, emm_status status, const char *slot) {
        if constexpr (requires(Struct & any) { any.struct_size; }) {
            value_.struct_size = sizeof(Struct); // what is copied from here ends with it
        }
        const bool whole = std::all_of(std::begin(behind_), std::end(behind_),
                                       [](unsigned char byte) { return byte == untouched; });
        return whole ? status : conclude_overrun(context, slot, sizeof(Struct));
    }

private:
    static constexpr unsigned char untouched = 0xa5;

    Struct value_ = {};
    unsigned char behind_[1024];
};

} // namespace emm::core
