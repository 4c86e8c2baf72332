#include "check/hosted.h"

#include "check/report.h"
#include "check/traffic.h"

namespace emm::tool::check {

void must(emm_status status, const char *what) {
    expect(status >= EMM_OK, "{} failed: {} {}", what, status, emm_last_error()->text);
}

void choose(const CheckedPlugin &plugin) {
    static const bool chosen = [&] {
        must(emm_set_plugin(plugin.spec.c_str()), "loading the plugin");
        return true;
    }();
    static_cast<void>(chosen);
}

Hosted::Hosted(const CheckedPlugin &plugin, int device) {
    choose(plugin);
    cuda_ = enter_device(device);
    const InSlot inside("create");
    must(emm_context_for_device(device, &context_), "making a manager");
}

Hosted::Hosted(const CheckedPlugin &plugin, CUcontext cuda) : cuda_(cuda) {
    choose(plugin);
    enter(cuda);
    const InSlot inside("create");
    must(emm_context_from(cuda, &context_), "making a manager");
}

emm_deviceptr Hosted::alloc(size_t size, emm_stream stream) const {
    emm_deviceptr ptr = 0;
    const InSlot inside("memalloc");
    const emm_status got = emm_memalloc(context_, size, stream, &ptr);
    skip_if_limited(got);
    expect(got >= EMM_OK && ptr != 0, "memalloc of {} bytes failed: {} {}{}", size, got,
           got < EMM_OK ? emm_last_error()->text : "(address 0)",
           got == EMM_E_OUT_OF_MEMORY ? why_out_of_memory() : "");
    count_allocated(size);
    return ptr;
}

void Hosted::skip_if_limited(emm_status status) const {
    size_t free = 0, total = 0;
    if (status == EMM_E_OUT_OF_MEMORY && emm_get_memory_info(context_, &free, &total) >= EMM_OK) {
        skip_below_limit(status, total);
    }
}

void Hosted::free(emm_deviceptr ptr, size_t size, emm_stream stream) const {
    const InSlot inside("memfree");
    must(emm_memfree(context_, ptr, size, stream), "memfree");
    count_freed(size);
}

void Hosted::enlist(const OwnedStream &owned) const {
    must(emm_stream_register(context_, owned.get()), "announcing a stream");
}

void Hosted::retire(OwnedStream &owned) const {
    must(emm_stream_retire(context_, owned.get()), "announcing a stream's end");
    owned.close();
}

emm_stats Hosted::stats() const {
    auto found = sized<emm_stats>();
    must(emm_get_stats(context_, &found), "get_stats");
    return found;
}

uint64_t Hosted::capabilities() const {
    auto info = sized<emm_plugin_info>();
    must(emm_get_plugin(&info), "asking for the plugin");
    return info.capabilities;
}

void expect_all_back(const Hosted &hosted, uint64_t idle, const std::string &what) {
    constexpr uint64_t allowed = 64 * mib; // the most that it may keep for itself
    for (int round = 0; round < 3; round++) {
        EMM_REQUIRE_CUDA_ENTRY(cuCtxSynchronize);
        hosted.free(hosted.alloc(1000, EMM_STREAM_LEGACY), 1000, EMM_STREAM_LEGACY);
        must(emm_trim(hosted.get(), 0, nullptr), "trim");
    }
    expect(held_bytes() < idle + allowed,
           "{}: with all work done and nothing live, {} bytes more than before are taken after a "
           "trim to 0",
           what, held_bytes() - idle);
}

} // namespace emm::tool::check
