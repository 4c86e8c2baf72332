// Any bytes are either a snapshot, whose events and blocks can be gone through, or are refused in a
// sentence.
#include "exchange/snapshot.h"
#include "fuzz.h"
#include "problem.h"

#include <algorithm>

using namespace emm::tool;

namespace {

void go_through(Snapshot &snapshot) {
    snapshot.visit([](const RecordedEvent &event) {
        require(event.op != Op::defer_begin && event.op != Op::defer_end,
                "an event is an allocation, a free or a mark");
    });
    snapshot.live_in_the_end();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t at = 0;
    const auto source = [&](char *into, size_t most) {
        const size_t count = std::min({most, size - at, size_t(64)});
        std::copy_n(data + at, count, into);
        at += count;
        return count;
    };
    try {
        Snapshot snapshot(source, "some", 0);
        go_through(snapshot);
    } catch (const Failure &failure) {
        const std::string sentence = failure.what();
        require(sentence.find("some") == 0 && sentence.find(": expected ") != std::string::npos,
                "a refusal says what was expected");
        require(std::all_of(sentence.begin(), sentence.end(),
                            [](char letter) { return static_cast<unsigned char>(letter) >= ' '; }),
                "a refusal is one line without control characters");
    }
    return 0;
}
