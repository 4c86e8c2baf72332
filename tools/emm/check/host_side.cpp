// The host's own requirements, observed by a table between host and plugin.
#include "check/bare.h"
#include "check/hosted.h"
#include "check/plan.h"
#include "loader/text.h"
#include "threads.h"

#include <atomic>
#include <cstring>
#include <set>

namespace emm::tool::check {
namespace {

// The plugin's own table, and counts of the host's calls to it.
struct CallObserver {
    emm_plugin_entry entry = nullptr;
    emm_plugin own = {}, shown = {};
    std::set<uint64_t> contexts; // create calls of one context must not overlap
    std::atomic<unsigned> creates{0}, zeros{0}, without_output{0}, elsewhere{0};
    CUcontext expected = nullptr;
} observer;

void note_current() {
    CUcontext current = nullptr;
    EMM_DRIVER_ENTRY(cuCtxGetCurrent)(&current);
    const bool promised = (observer.own.capabilities & EMM_PLUGIN_NEEDS_CURRENT) != 0;
    observer.elsewhere += promised && observer.expected && current != observer.expected;
}

emm_status create(const emm_host *host, const emm_context_info *info,
                  const char *const *option_texts, emm_manager **ret_manager) {
    CUcontext current = nullptr;
    EMM_DRIVER_ENTRY(cuCtxGetCurrent)(&current);
    observer.elsewhere += current != info->cuda_context;
    observer.creates += 1;
    observer.contexts.insert(info->context_id);
    return observer.own.create(host, info, option_texts, ret_manager);
}

emm_status memalloc(emm_manager *self, size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    observer.zeros += size == 0;
    observer.without_output += ret_ptr == nullptr;
    note_current();
    return observer.own.memalloc(self, size, stream, ret_ptr);
}

emm_status memfree(emm_manager *self, emm_deviceptr ptr, size_t size, emm_stream stream) {
    observer.zeros += ptr == 0;
    note_current();
    return observer.own.memfree(self, ptr, size, stream);
}

emm_status trim(emm_manager *self, size_t keep_bytes, size_t *ret_released) {
    observer.without_output += ret_released == nullptr;
    note_current();
    if (observer.own.trim) {
        return observer.own.trim(self, keep_bytes, ret_released);
    }
    *ret_released = 0;
    return EMM_OK;
}

const emm_plugin *watched(const emm_host *host) {
    const emm_plugin *own = observer.entry(host);
    if (!own) {
        return nullptr;
    }
    std::memcpy(&observer.own, own, std::min<size_t>(own->struct_size, sizeof observer.own));
    observer.shown = observer.own;
    observer.shown.struct_size = sizeof observer.shown;
    observer.shown.create = create;
    observer.shown.memalloc = memalloc;
    observer.shown.memfree = memfree;
    observer.shown.trim = trim;
    return &observer.shown;
}

void put_in_between(const CheckedPlugin &plugin) {
    observer.entry = open_entry(plugin.path);
    const size_t colon = plugin.spec.find(':', loader::find_plugin(plugin.spec));
    const std::string options = colon == std::string::npos ? "" : plugin.spec.substr(colon + 1);
    must(emm_set_plugin_entry(&watched, options.c_str()), "taking the table");
}

void arguments(const CheckedPlugin &plugin) {
    put_in_between(plugin);
    emm_context *context = nullptr;
    must(emm_context_for_device(0, &context), "making a manager");
    emm_deviceptr ptr = 77;
    must(emm_memalloc(context, 0, EMM_STREAM_LEGACY, &ptr), "memalloc of 0 bytes");
    expect(ptr == 0, "an allocation of 0 bytes has address 0x{:x}", ptr);
    must(emm_memfree(context, 0, 0, EMM_STREAM_LEGACY), "a free of address 0");
    must(emm_memalloc(context, mib, EMM_STREAM_LEGACY, &ptr), "memalloc");
    must(emm_memfree(context, ptr, mib, EMM_STREAM_LEGACY), "memfree");
    must(emm_trim(context, 0, nullptr), "trim without an output");
    expect(observer.zeros == 0, "size 0 or address 0 reached the plugin");
    expect(observer.without_output == 0, "an output was NULL");
}

void current(const CheckedPlugin &plugin) {
    put_in_between(plugin);
    const CUcontext mine = enter_device();
    const CUcontext other = make_context();
    enter(nullptr);
    emm_context *context = nullptr;
    must(emm_context_for_device(0, &context), "making a manager");
    observer.expected = mine;
    for (const CUcontext now : {CUcontext(nullptr), other, mine}) {
        enter(now);
        emm_deviceptr ptr = 0;
        must(emm_memalloc(context, mib, EMM_STREAM_UNORDERED, &ptr), "memalloc");
        must(emm_memfree(context, ptr, mib, EMM_STREAM_UNORDERED), "memfree");
        must(emm_trim(context, 0, nullptr), "trim");
        CUcontext after = nullptr;
        EMM_DRIVER_ENTRY(cuCtxGetCurrent)(&after);
        expect(after == now, "another context is current after a call than before");
    }
    expect(observer.elsewhere == 0, "a call came without the context that it was promised");
}

void once(const CheckedPlugin &plugin) {
    put_in_between(plugin);
    std::atomic<unsigned> failed{0};
    on_threads(4, [&](unsigned) {
        emm_context *context = nullptr;
        failed += emm_context_for_device(0, &context) < EMM_OK;
    });
    expect(failed == 0, "a racing thread got no manager");
    expect(observer.creates == 1 && observer.contexts.size() == 1,
           "create was called {} times for one context", observer.creates.load());
}

} // namespace

std::vector<Case> host_side_cases() {
    return {
        {"host-side/arguments", "EMM-H-02 EMM-H-03",
         "size 0 never reaches the plugin, and outputs are never NULL", arguments},
        {"host-side/current", "EMM-H-04 EMM-H-05", "the context that was promised is current",
         current},
        {"host-side/once", "EMM-H-06", "racing threads make one manager", once},
    };
}

} // namespace emm::tool::check
