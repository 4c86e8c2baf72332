// The plugin function that each thread is inside of, as text in static memory. A core file holds
// the text, readable without debug information:
//
//     strings core | grep "emm runs"
//     emm runs memfree                 of /opt/x/libx.so
//
// The fast path of emm_memalloc, emm_memfree, emm_memhostalloc and emm_memhostfree makes no such
// record, with or without EMM_TRACK: there the call stack has emm's function beneath the plugin's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace emm::observe {

// The text that follows "emm runs": a string of fixed columns, and its end. It lacks those words,
// so that a text kept for later calls is not mistaken for a call under way.
using RunningText = std::array<uint64_t, 14>;

// The text of a record; of a long path only the end.
RunningText running_text(std::string_view function, std::string_view plugin) noexcept;

// For a scope, the calling thread's record has this text, which must live as long. Threads beyond
// the 64th share records, which then may show parts of two texts.
class Running {
public:
    explicit Running(const RunningText &text) noexcept;
    ~Running();
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

private:
    const RunningText *const before_; // text of the outer call's function; NULL: none
};

} // namespace emm::observe
