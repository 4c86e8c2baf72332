#include "backing.h"

#include "backing/pages.h"
#include "backing/segments.h"

#include <cstdio>

namespace emm::pool {
namespace {

void log_growth(const ServedContext &context, const char *growth, const char *reason) {
    char text[160];
    snprintf(text, sizeof text, "pool: growth=%s on device %d (%s)", growth, context.device,
             reason);
    context.host.log(EMM_LOG_INFO, text);
}

void log_spill(const ServedContext &context) {
    char text[160];
    snprintf(text, sizeof text, "pool: no spill on device %d: spill needs growth=vmm",
             context.device);
    context.host.log(EMM_LOG_WARN, text);
}

} // namespace

// The device decides the values that the options leave open.
std::unique_ptr<Backing> Backing::make(const Options &options, StreamOrder &order,
                                       DeviceMemory &memory, ThreadCaches &caches, Moves &moves) {
    const ServedContext &context = order.context();
    const Growth growth = options.growth;
    const bool possible = PageDriver::is_served(context);
    if (growth == Growth::pages && !possible) {
        throw PluginError(EMM_E_NOT_SUPPORTED, 0,
                          "pool: growth=vmm needs a driver and a device with virtual memory "
                          "management");
    }
    const bool chooses = growth == Growth::automatic;
    const bool pages =
        growth == Growth::pages || (chooses && possible && PageDriver::can_share(context));
    log_growth(context, pages ? "vmm" : "segment",
               !chooses    ? "as asked for"
               : !possible ? "it has no virtual memory management"
               : !pages    ? "it cannot share memory by descriptor"
                           : "it has virtual memory management");
    if (pages) {
        return std::make_unique<Pages>(options, order, memory, caches, moves);
    }
    if (options.spill > 0) {
        log_spill(context);
    }
    if (options.initial == 0) { // otherwise small requests may need the large zone
        memory.heap.set_remnants_apart();
    }
    return std::make_unique<Segments>(options, order, memory, caches, moves);
}

Backing::~Backing() {
    while (Segment *segment = refused_.pop_front()) {
        delete segment;
    }
}

Block *Backing::await_idle(Lock &lock, StreamPool &pool, uint64_t bytes,
                           const std::function<bool()> &has_enough) {
    Block *block = nullptr;
    if (!moves_.returns_are_deferred() && !has_enough()) {
        order_.wait_bounded(lock, pool, [&] {
            block = take(pool, bytes);
            return block || has_enough();
        });
    }
    return block;
}

} // namespace emm::pool
