// Which function of a plugin each thread is inside of, as text in static memory. A core file holds
// it, and shows it without debug information:
//
//     strings core | grep "emm runs"
//     emm runs memfree                 of /opt/x/libx.so
//
// The fast path of emm_memalloc, emm_memfree, emm_memhostalloc and emm_memhostfree makes no such
// record: there the call stack has emm's function beneath the plugin's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace emm::observe {

inline constexpr size_t running_words = 15;
using RunningText = std::array<uint64_t, running_words>; // a string of fixed columns, and its end

// The text of a record; of a long path its end.
RunningText running_text(std::string_view function, std::string_view plugin) noexcept;

// The calling thread's record has this text for a scope. Threads beyond the 64th share records,
// which then may show parts of two texts.
class Running {
public:
    Running(std::string_view function, std::string_view plugin) noexcept;
    ~Running();
    Running(const Running &) = delete;
    Running &operator=(const Running &) = delete;

private:
    const RunningText before_; // of a function that this one was called from
};

} // namespace emm::observe
