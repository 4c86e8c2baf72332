// Any bytes are either a recording of another program, from which a trace can be made and read
// back, or are refused in a sentence.
#pragma once

#include "exchange/conversion.h"
#include "file.h"
#include "problem.h"
#include "trace/reader.h"

#include <cstdlib>

// `open` makes the recording.
template <class Open> void convert_or_refuse(Open open) {
    using namespace emm::tool;
    static const std::string output =
        std::string(std::getenv("TMPDIR") ? std::getenv("TMPDIR") : "/tmp") + "/emm-fuzz-" +
        std::to_string(getpid()) + ".csv";
    try {
        const auto recording = open();
        Conversion result;
        {
            Output out(output);
            result = convert(*recording, out, [] {});
            out.finish();
        }
        const Trace trace = read_trace(output);
        uint64_t allocations = 0;
        for (const Event &event : trace.events) {
            allocations += event.op == Op::alloc;
        }
        require(allocations == result.allocations + result.live_before,
                "the trace has what was told");
    } catch (const Failure &failure) {
        require_sentence(failure.what());
    }
    unlink(output.c_str());
}
