#include "recording.h"

#include "workload/program.h"

#include <algorithm>
#include <istream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace emm::peers {

Recording read_recording(std::istream &input) {
    Recording recording;
    for (std::string line; std::getline(input, line);) {
        std::istringstream fields(line);
        char op = 0;
        Event event = {};
        fields >> op >> event.stream >> event.block >> event.size;
        if (!fields || (op != '+' && op != '-')) {
            throw std::runtime_error("expected '+ STREAM BLOCK SIZE', found '" + line + "'");
        }
        event.is_free = op == '-';
        recording.streams = std::max(recording.streams, event.stream + 1);
        recording.blocks = std::max(recording.blocks, event.block + 1);
        recording.events.push_back(event);
    }
    return recording;
}

Recording random_allocations(uint32_t count, size_t largest) {
    constexpr size_t most_live = size_t(16000) << 20;
    tool::Random random(1);
    Recording recording;
    std::vector<Event> live;
    size_t live_bytes = 0;
    for (uint32_t step = 0; step < 2 * count; step++) {
        const size_t size = random.between(1, largest);
        const bool allocates =
            live.empty() || (random.percent(73) && live_bytes + size < most_live);
        if (allocates && recording.blocks < count) {
            live.push_back({false, 0, recording.blocks++, size});
            live_bytes += size;
            recording.events.push_back(live.back());
        } else if (!live.empty()) {
            std::swap(live[random.below(live.size())], live.back());
            live_bytes -= live.back().size;
            live.back().is_free = true;
            recording.events.push_back(live.back());
            live.pop_back();
        }
    }
    return recording;
}

} // namespace emm::peers
