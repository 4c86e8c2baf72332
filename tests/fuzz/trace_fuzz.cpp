// Any text is either a trace whose events name existing blocks, or is refused in a sentence.
#include "file.h"
#include "problem.h"
#include "trace/reader.h"

using namespace emm::tool;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    try {
        const Trace trace = parse_trace(text, "some");
        for (const Event &event : trace.events) {
            require(!(event.op == Op::alloc || event.op == Op::free) || event.block < trace.blocks,
                    "an event's block is one of the trace");
        }
    } catch (const Failure &failure) {
        require_sentence(failure.what());
    }
    return 0;
}
