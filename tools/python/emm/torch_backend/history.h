#pragma once

#include "types.h"

#include <algorithm>
#include <c10/util/ApproximateClock.h>
#include <deque>
#include <set>

namespace emm::torch_backend {

// The events for torch.cuda.memory._record_memory_history, and for PyTorch's own trackers.
class History {
public:
    void configure(bool enabled, CreateContextFn recorder, size_t limit, RecordContext when,
                   bool clear, const std::vector<std::string> &skipped) {
        Lock guard(lock_);
        enabled_ = enabled;
        limit_ = std::max(limit, size_t(1));
        skipped_.clear();
        for (const std::string &action : skipped) {
            skipped_.insert(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
        }
        if (!enabled || clear) {
            traces_.assign(traces_.size(), {});
            annotations_.clear();
        }
        recorder_.store(enabled ? recorder : nullptr);
        when_.store(enabled ? when : RecordContext::NEVER);
        listening_.store(enabled || !trackers_.empty());
    }

    void attach(AllocatorTraceTracker tracker) {
        Lock guard(lock_);
        trackers_.push_back(std::move(tracker));
        listening_.store(true);
    }

    bool enabled() {
        Lock guard(lock_);
        return enabled_;
    }

    // The calling thread's stack, if so much is wanted.
    Context gather(RecordContext level) const {
        if (when_.load(std::memory_order_relaxed) < level) {
            return nullptr;
        }
        const CreateContextFn recorder = recorder_.load();
        return recorder ? recorder() : nullptr;
    }

    void record(TraceEntry::Action action, DeviceIndex device, size_t address, size_t size,
                cudaStream_t stream, MempoolId_t pool, Context context = nullptr) {
        if (!listening_.load(std::memory_order_relaxed)) {
            return;
        }
        if (when_.load(std::memory_order_relaxed) < RecordContext::ALLOC) {
            context = nullptr;
        }
        Lock guard(lock_);
        TraceEntry entry(action, device, address, size, stream, pool, c10::getApproximateTime(),
                         std::move(context), compiling().empty() ? "N/A" : compiling().back(),
                         metadata_);
        for (const AllocatorTraceTracker &tracker : trackers_) {
            tracker(entry);
        }
        if (enabled_ && !skipped_.count(action)) {
            keep(traces_[size_t(device)], std::move(entry));
        }
    }

#if TORCH_VERSION_MINOR >= 14
    void record_annotation(DeviceIndex device, size_t address, size_t size,
                           const std::string &text) {
        Lock guard(lock_);
        if (enabled_ && !skipped_.count(TraceEntry::ANNOTATE)) {
            keep(traces_[size_t(device)],
                 TraceEntry(TraceEntry::ANNOTATE, device, address, size, nullptr, no_pool,
                            c10::getApproximateTime(), nullptr, "N/A", text));
        }
    }
#endif

    void annotate(DeviceIndex device,
                  const std::vector<std::pair<std::string, std::string>> &what) {
        Lock guard(lock_);
        if (enabled_) {
            AnnotationEntry entry(device, c10::getApproximateTime());
            for (const auto &[name, value] : what) {
                entry.recordUserMetadata(name, value);
            }
            keep(annotations_, std::move(entry));
        }
    }

    void set_metadata(const std::string &metadata) {
        Lock guard(lock_);
        metadata_ = metadata;
    }

    std::string metadata() {
        Lock guard(lock_);
        return metadata_;
    }

    // Entries carry a raw counter of the processor until they are read.
    void read(caching::SnapshotInfo *ret_snapshot, int devices) {
        const auto to_ns = clock_.makeConverter();
        const auto convert = [&](auto &entry) {
            entry.time_.t_ = to_ns(entry.time_.approx_t_) / 1000;
        };
        Lock guard(lock_);
        for (int device = 0; device < devices; device++) {
            const auto &trace = traces_[size_t(device)];
            ret_snapshot->device_traces.emplace_back(trace.begin(), trace.end());
            auto &copied = ret_snapshot->device_traces.back();
            std::for_each(copied.begin(), copied.end(), convert);
        }
        ret_snapshot->external_annotations.assign(annotations_.begin(), annotations_.end());
        std::for_each(ret_snapshot->external_annotations.begin(),
                      ret_snapshot->external_annotations.end(), convert);
    }

    // The names of the regions that the calling thread compiles, the innermost last.
    static std::vector<std::string> &compiling() {
        static thread_local std::vector<std::string> names;
        return names;
    }

private:
    template <class Entry> void keep(std::deque<Entry> &entries, Entry entry) {
        entries.push_back(std::move(entry));
        while (entries.size() > limit_) {
            entries.pop_front();
        }
    }

    std::atomic<bool> listening_{false};
    std::atomic<CreateContextFn> recorder_{nullptr};
    std::atomic<RecordContext> when_{RecordContext::NEVER};
    std::mutex lock_;
    bool enabled_ = false;
    size_t limit_ = 1;
    std::set<TraceEntry::Action> skipped_;
    std::vector<AllocatorTraceTracker> trackers_;
    std::string metadata_;
    std::vector<std::deque<TraceEntry>> traces_{size_t(most_devices)};
    std::deque<AnnotationEntry> annotations_;
    c10::ApproximateClockToUnixTimeConverter clock_;
};

} // namespace emm::torch_backend
