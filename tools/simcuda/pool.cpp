#include "pool.h"

#include "call.h"
#include "simulator.h"

#include <algorithm>

namespace simcuda {
namespace {

constexpr int looks = 32; // at free memory, the tightest first

bool all_done(const std::vector<OpRef> &work) {
    return std::all_of(work.begin(), work.end(), [](const OpRef &op) { return op->done(); });
}

void join(Vacancy &into, const Vacancy &other) {
    into.size += other.size;
    into.clock.join(other.clock, sim().host);
    for (const OpRef &op : other.work) {
        if (!op->done()) {
            into.work.push_back(op);
        }
    }
}

// A destroyed pool lives on until its last block is freed.
bool is_over(const std::unique_ptr<Pool> &pool) {
    return pool->dying && pool->blocks == 0 && pool->reserved == 0;
}

} // namespace

void Pool::insert(uint64_t offset, Vacancy vacancy) {
    by_size.insert({vacancy.size, offset});
    vacancies[offset] = std::move(vacancy);
}

Vacancy Pool::erase(uint64_t offset) {
    const auto found = vacancies.find(offset);
    Vacancy vacancy = std::move(found->second);
    by_size.erase({vacancy.size, offset});
    vacancies.erase(found);
    return vacancy;
}

// Queries the work that free memory of this size waits for, as the driver does before a pool grows.
// A host function may run meanwhile, unlocked.
void Pool::ask_about(uint64_t size) const {
    std::vector<OpRef> asked;
    auto each = by_size.lower_bound({size, 0});
    for (int look = 0; look < looks && each != by_size.end(); ++look, ++each) {
        const std::vector<OpRef> &work = vacancies.at(each->second).work;
        asked.insert(asked.end(), work.begin(), work.end());
    }
    for (const OpRef &op : asked) {
        sim().work.query(op);
    }
}

// Prefers memory that is free for this stream, because no stream has to wait for it.
std::optional<uint64_t> Pool::choose(uint64_t size, const Stream &stream, bool must_wait) const {
    auto each = by_size.lower_bound({size, 0});
    for (int look = 0; look < looks && each != by_size.end(); ++look, ++each) {
        const Vacancy &vacancy = vacancies.at(each->second);
        if (must_wait || all_done(vacancy.work) ||
            vacancy.clock.is_within(stream.clock, sim().host)) {
            return each->second;
        }
    }
    return std::nullopt;
}

bool Pool::grow(uint64_t size) {
    constexpr uint64_t granule = Device::granule;
    for (const uint64_t unit : {segment_size, granule}) {
        const uint64_t bytes = (size + unit - 1) / unit * unit;
        const bool fits = bytes >= size && bytes <= most && reserved <= most - bytes;
        if (const auto offset = fits ? device->take(bytes) : std::nullopt) {
            segments[*offset] = bytes;
            reserved += bytes;
            reserved_high = std::max(reserved, reserved_high);
            insert(*offset, {bytes, {}, {}});
            return true;
        }
    }
    return false;
}

Pool::Part Pool::carve(uint64_t offset, uint64_t size) {
    Vacancy vacancy = erase(offset);
    if (vacancy.size > size) {
        insert(offset + size, {vacancy.size - size, vacancy.clock, vacancy.work});
        vacancy.size = size;
    }
    used += size;
    used_high = std::max(used, used_high);
    ++blocks;
    return {offset, std::move(vacancy)};
}

std::optional<Pool::Part> Pool::take(uint64_t size, const Stream &stream) {
    auto offset = choose(size, stream, false);
    if (!offset) {
        ask_about(size);
        offset = choose(size, stream, false);
    }
    if (!offset && grow(size)) {
        offset = choose(size, stream, false);
    }
    if (!offset) {
        offset = choose(size, stream, true);
    }
    if (!offset) {
        for (const auto &pool : sim().pools) {
            pool->trim(0);
        }
        offset = grow(size) ? choose(size, stream, true) : std::nullopt;
    }
    return offset ? std::optional(carve(*offset, size)) : std::nullopt;
}

void Pool::give(uint64_t offset, uint64_t size, Clock clock, std::vector<OpRef> work) {
    used -= size;
    --blocks;
    Vacancy vacancy{size, std::move(clock), std::move(work)};
    const auto next = vacancies.find(offset + size);
    if (next != vacancies.end() && segments.count(next->first) == 0) {
        join(vacancy, erase(next->first));
    }
    const auto after = vacancies.lower_bound(offset);
    if (after != vacancies.begin() && segments.count(offset) == 0) {
        const auto previous = std::prev(after);
        if (previous->first + previous->second.size == offset) {
            offset = previous->first;
            join(vacancy, erase(offset));
        }
    }
    insert(offset, std::move(vacancy));
}

void Pool::trim(uint64_t keep) {
    for (auto segment = segments.begin(); segment != segments.end() && reserved > keep;) {
        const auto [offset, size] = *segment;
        const auto vacancy = vacancies.find(offset);
        if (vacancy == vacancies.end() || vacancy->second.size != size ||
            !all_done(vacancy->second.work)) {
            ++segment;
            continue;
        }
        erase(offset);
        store->shadow.clear(offset, size);
        device->give(offset, size);
        reserved -= size;
        segment = segments.erase(segment);
    }
}

Pool &find_pool(CUmemoryPool handle) {
    return find_object(sim().pool_handles, handle, "memory pool");
}

Pool *make_pool(Device &device, unsigned handle_types) {
    auto pool = std::make_unique<Pool>();
    pool->id = ++sim().buffer_ids;
    pool->device = &device;
    pool->store = &device.store;
    pool->handle_types = handle_types;
    for (const CUmemPool_attribute setting : {CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                                              CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
                                              CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES}) {
        pool->settings[setting] = 1;
    }
    pool->handle = sim().pool_handles.insert(pool.get());
    sim().pools.push_back(std::move(pool));
    return sim().pools.back().get();
}

unsigned handle_types_of(const Pool &pool) {
    return pool.handle_types;
}

void free_pooled(CUdeviceptr start) {
    const Region region = *sim().regions.at(start);
    retire_bytes(*region.store, region.offset, region.size, region.start);
    sim().regions.remove(start, this_thread.call);
    region.pool->give(region.offset, Device::rounded_small(region.size), {}, {});
}

void trim_pools() {
    for (const auto &pool : sim().pools) {
        const uint64_t keep = pool->dying ? 0 : pool->threshold;
        if (pool->reserved > keep) {
            pool->trim(keep);
        }
    }
    std::erase_if(sim().pools, is_over);
}

} // namespace simcuda
