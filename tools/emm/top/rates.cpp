#include "top/rates.h"

#include <map>
#include <utility>

namespace emm::tool::top {
namespace {

using Key = std::pair<std::string, uint64_t>;

std::optional<double> rate(const Context &before, const Context &now) {
    if (!before.stats || !now.stats || now.at <= before.at ||
        now.stats->allocations < before.stats->allocations) {
        return std::nullopt;
    }
    const auto count = static_cast<double>(now.stats->allocations - before.stats->allocations);
    return count * 1e9 / static_cast<double>(now.at - before.at);
}

} // namespace

void find_rates(const std::vector<Process> &before, std::vector<Process> &ret_now) {
    std::map<Key, const Context *> known;
    for (const Process &process : before) {
        for (const Context &context : process.contexts) {
            known[{process.name, context.id}] = &context;
        }
    }
    for (Process &process : ret_now) {
        for (Context &context : process.contexts) {
            const auto found = known.find({process.name, context.id});
            if (found != known.end()) {
                context.allocations_rate = rate(*found->second, context);
            }
        }
    }
}

} // namespace emm::tool::top
