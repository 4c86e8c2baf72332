#include "bench/candidate.h"
#include "bench/memory.h"
#include "bench/works.h"
#include "driver.h"

#include <nlohmann/json.hpp>

namespace emm::tool {
namespace {

class PluginCandidate : public Candidate {
public:
    PluginCandidate() {
        auto plugin = sized<emm_plugin_info>();
        require(emm_get_plugin(&plugin), "resolve");
        spec_ = plugin.spec ? plugin.spec : "";
        require(emm_context_for_device(0, &context_), "create");
        auto info = sized<emm_context_info>();
        require(emm_context_get_info(context_, &info), "run");
        cuda_context_ = info.cuda_context;
    }

    Team::Maker maker(const Measurement &measurement) override {
        if (measurement.name == "host") {
            return stream_maker<PinnedMemory>(measurement);
        }
        if (measurement.name == "handle") {
            return stream_maker<HandleMemory>(measurement);
        }
        if (measurement.name == "pair_current") {
            return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
                enter();
                auto stream = std::make_unique<Stream>(context_);
                auto work = std::make_unique<PairWork<CurrentMemory>>(CurrentMemory{stream->get()},
                                                                      measurement.size);
                return std::make_unique<StreamWork>(std::move(stream), std::move(work));
            };
        }
        if (measurement.name == "pair_null") {
            return fixed_maker(measurement, EMM_STREAM_LEGACY);
        }
        if (measurement.name == "pair_unordered") {
            return fixed_maker(measurement, EMM_STREAM_UNORDERED);
        }
        if (measurement.name == "pair_busy") {
            const size_t room = memory_room() / measurement.threads;
            return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
                enter();
                return std::make_unique<BusyWork>(PluginMemory{context_, EMM_STREAM_UNORDERED},
                                                  measurement.size, room, cuda_context_);
            };
        }
        if (measurement.name == "idle") {
            return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
                enter();
                return std::make_unique<IdleWork>(context_, measurement.size);
            };
        }
        return stream_maker<PluginMemory>(measurement);
    }

    void return_cached() override { emm_trim(context_, 0, nullptr); }
    Json driver() const override { return describe_driver(); }
    std::string spec() const override { return spec_; }

protected:
    emm_context *context() const { return context_; }
    void enter() const { EMM_REQUIRE_CUDA(cuCtxSetCurrent, cuda_context_); }

private:
    // A stream for each thread.
    template <class Memory> Team::Maker stream_maker(const Measurement &measurement) {
        const auto ring = std::make_shared<RingOf<Memory>>(measurement.threads);
        const size_t room = memory_room();
        return
            [=, this](uint32_t thread, const std::atomic<bool> &stopping) -> std::unique_ptr<Work> {
                enter();
                auto stream =
                    std::make_unique<Stream>(measurement.name == "pair_raw" ? nullptr : context_);
                auto work = make_work(measurement, Memory{context_, stream->get()}, thread, room,
                                      ring, stopping);
                return std::make_unique<StreamWork>(std::move(stream), std::move(work));
            };
    }

    Team::Maker fixed_maker(const Measurement &measurement, emm_stream stream) {
        return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
            enter();
            return std::make_unique<PairWork<PluginMemory>>(PluginMemory{context_, stream},
                                                            measurement.size);
        };
    }

    // A live set takes at most two thirds of the free memory: the plugin may need more than the
    // set.
    size_t memory_room() const {
        size_t free = 0, all = 0;
        require(emm_get_memory_info(context_, &free, &all), "run");
        return free / 3 * 2;
    }

    std::string spec_;
    emm_context *context_ = nullptr;
    CUcontext cuda_context_ = nullptr;
};

// The empty plugin, called directly and through emm.
class EmptyCandidate : public PluginCandidate {
public:
    Team::Maker maker(const Measurement &measurement) override {
        if (measurement.name == "clock") {
            return
                [](uint32_t, const std::atomic<bool> &) { return std::make_unique<ClockWork>(); };
        }
        if (measurement.name != "bare") {
            Measurement pair = measurement;
            pair.name = "pair";
            return PluginCandidate::maker(pair);
        }
        return [=, this](uint32_t, const std::atomic<bool> &) -> std::unique_ptr<Work> {
            enter();
            auto stream = std::make_unique<Stream>(context());
            auto work =
                std::make_unique<PairWork<BareMemory>>(bare(stream->get()), measurement.size);
            return std::make_unique<StreamWork>(std::move(stream), std::move(work));
        };
    }

private:
    // Read through a volatile pointer: otherwise the compiler would see through the functions.
    static BareMemory bare(emm_stream stream) {
        const emm_plugin *volatile hidden = empty_plugin_entry(nullptr);
        const emm_plugin *table = hidden;
        emm_manager *manager = nullptr;
        table->create(nullptr, nullptr, nullptr, &manager);
        return {manager, table->memalloc, table->memfree, stream};
    }
};

} // namespace

std::unique_ptr<Candidate> make_plugin_candidate() {
    return std::make_unique<PluginCandidate>();
}

std::unique_ptr<Candidate> make_empty_candidate() {
    require(emm_set_plugin_entry(empty_plugin_entry, nullptr), "resolve");
    return std::make_unique<EmptyCandidate>();
}

namespace {

constexpr emm_deviceptr the_address = 1 << 20;

emm_status create(const emm_host *, const emm_context_info *, const char *const *,
                  emm_manager **ret_manager) {
    static char manager;
    *ret_manager = reinterpret_cast<emm_manager *>(&manager);
    return EMM_OK;
}

emm_status destroy(emm_manager *) {
    return EMM_OK;
}

emm_status memalloc(emm_manager *, size_t, emm_stream, emm_deviceptr *ret_ptr) {
    *ret_ptr = the_address;
    return EMM_OK;
}

emm_status memfree(emm_manager *, emm_deviceptr, size_t, emm_stream) {
    return EMM_OK;
}

emm_plugin make_table() {
    auto table = sized<emm_plugin>();
    table.interface_version = EMM_PLUGIN_ABI_MAJOR;
    table.interface_minor = EMM_PLUGIN_ABI_MINOR;
    table.name = "empty";
    table.description = "does nothing";
    table.create = create;
    table.destroy = destroy;
    table.memalloc = memalloc;
    table.memfree = memfree;
    return table;
}

} // namespace

const emm_plugin *empty_plugin_entry(const emm_host *) {
    static const emm_plugin table = make_table();
    return &table;
}

} // namespace emm::tool
