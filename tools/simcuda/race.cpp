#include "race.h"

#include "simulator.h"
#include "stream.h"
#include "thread.h"

#include <cstdio>
#include <cstdlib>

namespace simcuda {
namespace {

std::string text_of(const Access &access) {
    char text[160];
    snprintf(text, sizeof text, "%s (%s, stream %p of id %u, thread %u)", access.call,
             access.write ? "writes" : "reads", static_cast<void *>(access.stream),
             access.stream_id, access.thread);
    return text;
}

std::string range_of(CUdeviceptr address, uint64_t size) {
    char text[96];
    snprintf(text, sizeof text, "[0x%llx, 0x%llx)", address,
             static_cast<unsigned long long>(address + size));
    return text;
}

void report(const std::string &text) {
    Simulator &simulator = sim();
    ++simulator.races;
    simulator.last_race = text;
    if (simulator.options.abort_on_race) {
        fprintf(stderr, "simcuda: race: %s\n", text.c_str());
        abort();
    }
}

} // namespace

void report_race(const Access &earlier, const Access &later, CUdeviceptr address, uint64_t size) {
    report(text_of(later) + " uses " + range_of(address, size) + " and is not ordered after " +
           text_of(earlier));
}

void report_unseen(const Access &user, CUdeviceptr address, uint64_t size) {
    report(std::string(this_thread.call) + " (thread " + std::to_string(this_thread.number) +
           ") takes " + range_of(address, size) + " away, and the CPU has not seen the end of " +
           text_of(user));
}

void check_uses(const std::vector<Use> &uses, const Stream &stream, uint32_t line, uint64_t time,
                const Clock &clock) {
    for (const Use &use : uses) {
        if (!use.span.store || use.span.size == 0) {
            continue;
        }
        const Access access{line,          static_cast<uint32_t>(stream.id),
                            time,          this_thread.call,
                            stream.handle, this_thread.number,
                            use.write};
        const auto earlier =
            use.span.store->shadow.use(use.span.offset, use.span.size, access, clock, sim().host);
        if (earlier) {
            report_race(*earlier, access, use.span.address, use.span.size);
        }
    }
}

} // namespace simcuda
