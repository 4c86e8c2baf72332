#include "memory.h"

#include "call.h"
#include "pool.h"
#include "race.h"
#include "share.h"
#include "simulator.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace simcuda {
namespace {

const char *name_of(Kind kind) {
    switch (kind) {
    case Kind::device:
        return "device memory";
    case Kind::pooled:
        return "pool memory";
    case Kind::mapped:
        return "a mapping";
    case Kind::host:
        return "pinned host memory";
    case Kind::registered:
        return "registered host memory";
    case Kind::managed:
        return "managed memory";
    case Kind::imported:
        return "imported memory";
    case Kind::graph:
        return "graph memory";
    }
    return "memory";
}

std::string text_of(CUdeviceptr address, uint64_t size) {
    char text[96];
    snprintf(text, sizeof text, "[0x%llx, 0x%llx), %" PRIu64 " bytes", address,
             static_cast<unsigned long long>(address + size), size);
    return text;
}

} // namespace

Region &Regions::add(const Region &region) {
    Region &added = by_start_[region.start] = region;
    added.id = ++sim().buffer_ids;
    removed_.erase(region.start);
    return added;
}

void Regions::remove(CUdeviceptr start, const char *why) {
    constexpr size_t remembered = 1 << 14; // a megabyte
    by_start_.erase(start);
    if (removed_.size() > remembered) {
        removed_.clear();
    }
    removed_[start] = {why, this_thread.number};
}

Region *Regions::at(CUdeviceptr start) {
    const auto found = by_start_.find(start);
    return found == by_start_.end() ? nullptr : &found->second;
}

Region *Regions::around(CUdeviceptr address) {
    auto found = by_start_.upper_bound(address);
    if (found == by_start_.begin() || address >= (--found)->second.end()) {
        return nullptr;
    }
    return &found->second;
}

Region *Regions::first_in(CUdeviceptr start, uint64_t size) {
    if (Region *before = around(start)) {
        return before;
    }
    const auto found = by_start_.lower_bound(start);
    return found == by_start_.end() || found->first >= start + size ? nullptr : &found->second;
}

std::vector<CUdeviceptr> Regions::of(Context *context) const {
    std::vector<CUdeviceptr> starts;
    for (const auto &[start, region] : by_start_) {
        if (region.context == context || region.opens.count(context) != 0) {
            starts.push_back(start);
        }
    }
    return starts;
}

bool Regions::has_any_of(const Store &store) const {
    return std::any_of(by_start_.begin(), by_start_.end(),
                       [&](const auto &entry) { return entry.second.store == &store; });
}

std::string Regions::describe(CUdeviceptr address) {
    char start[32];
    snprintf(start, sizeof start, "0x%llx is ", address);
    if (const Region *region = around(address)) {
        const char *where = address == region->start ? "the start of " : "inside ";
        return start + std::string(where) + name_of(region->kind) + " " +
               text_of(region->start, region->size);
    }
    std::string text = start + std::string("in no allocation");
    if (const auto removed = removed_.find(address); removed != removed_.end()) {
        text += "; what started there was freed by " + std::string(removed->second.first) +
                " in thread " + std::to_string(removed->second.second);
    }
    return text;
}

std::vector<Span> resolve(const char *what, CUdeviceptr address, uint64_t size, bool pageable) {
    std::vector<Span> spans;
    while (size > 0) {
        const Region *region = sim().regions.around(address);
        if (!region && pageable && spans.empty()) {
            return {{nullptr, address, size, address}};
        }
        // Work may run on from one mapping into the next; a block ends the range.
        if (!region || (!spans.empty() && region->kind != Kind::mapped)) {
            refuse(misuse("%s: %s, and %" PRIu64 " bytes from there on are to be used", what,
                          sim().regions.describe(address).c_str(), size));
        }
        if (region->kind == Kind::mapped && region->access == 0) {
            refuse(misuse("%s: %s, to which no device was given access", what,
                          sim().regions.describe(address).c_str()));
        }
        const uint64_t skip = address - region->start;
        const uint64_t length = std::min(size, region->size - skip);
        spans.push_back({region->store, region->offset + skip, length, address});
        address += length;
        size -= length;
    }
    return spans;
}

void retire_bytes(Store &store, uint64_t offset, uint64_t size, CUdeviceptr address) {
    if (const auto user = store.shadow.unseen(offset, size, sim().host)) {
        report_unseen(*user, address, size);
    }
    store.shadow.clear(offset, size);
}

void give_to_device(const Region &region) {
    region.store->shadow.clear(region.offset, region.size);
    region.device->give(region.offset, region.size);
}

void *map_host(uint64_t size) {
    const long mapped = syscall(SYS_mmap, nullptr, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mapped == -1 ? nullptr : reinterpret_cast<void *>(mapped);
}

void free_region(CUdeviceptr start) {
    const Region region = *sim().regions.at(start);
    if (region.kind == Kind::pooled || region.kind == Kind::imported) {
        region.kind == Kind::pooled ? free_pooled(start) : close_import(start);
        return;
    }
    retire_bytes(*region.store, region.offset, region.size, region.start);
    sim().regions.remove(start, this_thread.call);
    if (region.kind == Kind::device || region.kind == Kind::graph) {
        region.device->give(region.offset, region.size);
        return;
    }
    sim().host_totals.remove(region.size);
    if (region.kind != Kind::registered) {
        munmap(reinterpret_cast<void *>(start), region.size);
    }
}

} // namespace simcuda
