#include "check/bare.h"

#include "check/gpu.h"
#include "check/stack.h"
#include "check/traffic.h"

#include <cstring>
#include <dlfcn.h>
#include <emm/emm.h>
#include <mutex>
#include <string_view>

namespace emm::tool::check {

std::atomic<void (*)()> before_giving_back{nullptr};

namespace {

// One replacement for each entry of this signature.
template <int which, class... Arguments> class GivingBack {
public:
    using Entry = CUresult(CUDAAPI *)(Arguments...);

    static emm_function hold(emm_function entry) {
        real() = reinterpret_cast<Entry>(entry);
        return reinterpret_cast<emm_function>(&call);
    }

private:
    static std::atomic<Entry> &real() {
        static std::atomic<Entry> entry{nullptr};
        return entry;
    }
    static CUresult CUDAAPI call(Arguments... arguments) {
        if (void (*const before)() = before_giving_back) {
            before();
        }
        return real().load()(arguments...);
    }
};

struct Watched {
    std::string_view name;
    emm_function (*hold)(emm_function);
};

constexpr Watched that_give_back[] = {
    {"cuMemFree", &GivingBack<0, CUdeviceptr>::hold},
    {"cuMemFreeAsync", &GivingBack<0, CUdeviceptr, CUstream>::hold},
    {"cuMemPoolTrimTo", &GivingBack<0, CUmemoryPool, size_t>::hold},
    {"cuMemUnmap", &GivingBack<0, CUdeviceptr, size_t>::hold},
    {"cuMemRelease", &GivingBack<1, CUmemGenericAllocationHandle>::hold},
};

// The same entry; for entries that return memory, the replacement.
emm_function entry_that_can_be_held(const char *name, emm_function entry) {
    for (const Watched &each : that_give_back) {
        if (entry && each.name == name) {
            return each.hold(entry);
        }
    }
    return entry;
}

struct Pending {
    emm_deferred function;
    void *argument;
};

std::mutex mutex;
std::vector<Pending> pending;
Defer defer_how = Defer::queue;
thread_local Said said;

void kit_log(int32_t, const char *text) {
    std::fprintf(stderr, "log: %s\n", text);
}

emm_status suite_fail(emm_status code, int32_t, const char *text) {
    said.code = code;
    said.text = text ? text : "";
    return code;
}

emm_function kit_driver(const char *name, int32_t cuda_version) {
    return entry_that_can_be_held(name, emm_driver_entry(name, cuda_version));
}

emm_status kit_defer(emm_context *, emm_deferred function, void *argument, size_t) {
    Defer how;
    {
        const std::lock_guard lock(mutex);
        how = defer_how;
        if (how == Defer::queue) {
            pending.push_back({function, argument});
        }
    }
    if (how == Defer::at_once) {
        const InSlot inside("a pending free");
        function(argument, EMM_DEFERRED_RUN);
    }
    return how == Defer::refuse
               ? suite_fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "the suite queues nothing")
               : EMM_OK;
}

size_t kit_pressure(emm_context *, size_t) {
    return 0;
}

// Exports served here are never opened. Each handle is different.
emm_status kit_serve_ipc(emm_context *, const emm_ipc_source *source, emm_ipc_handle *ret_handle) {
    static std::atomic<uint64_t> served{0};
    emm_ipc_handle handle = {};
    handle.kind = source->kind;
    handle.offset = source->offset;
    handle.size = handle.exported_size = source->size;
    const uint64_t number = ++served;
    std::memcpy(handle.handle, &number, sizeof number);
    *ret_handle = handle;
    return EMM_OK;
}

emm_status kit_withdraw_ipc(emm_context *, const emm_ipc_handle *) {
    return EMM_OK;
}

constexpr emm_host the_host = {sizeof(emm_host),
                               EMM_PLUGIN_ABI_MAJOR,
                               EMM_PLUGIN_ABI_MINOR,
                               0,
                               "the conformance suite",
                               &kit_log,
                               &suite_fail,
                               &kit_driver,
                               &kit_defer,
                               &kit_pressure,
                               &kit_serve_ipc,
                               &kit_withdraw_ipc};

} // namespace

const Said &last_said() {
    return said;
}

void forget_said() {
    said = Said();
}

void expect_described(const std::string &slot, emm_status status) {
    expect(status >= EMM_E_PAUSED, "{} returns {}, which is no code of emm/status.h", slot, status);
    expect(said.code == status && !said.text.empty(),
           "{} returns {} and did not say why: expected host->fail with that code before it", slot,
           status);
}

void set_defer(Defer how) {
    const std::lock_guard lock(mutex);
    defer_how = how;
}

size_t run_deferred(uint32_t what) {
    std::vector<Pending> taken;
    {
        const std::lock_guard lock(mutex);
        taken.swap(pending);
    }
    for (const Pending &entry : taken) {
        const InSlot inside("a pending free");
        entry.function(entry.argument, what);
    }
    return taken.size();
}

const emm_host &kit_host() {
    return the_host;
}

emm_plugin_entry open_entry(const std::string &path, const char *symbol) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    expect(library != nullptr, "the library does not open: {}", library ? "" : dlerror());
    void *entry = dlsym(library, symbol);
    expect(entry != nullptr, "the library has no {}", symbol);
    return reinterpret_cast<emm_plugin_entry>(entry);
}

namespace {

Member member_of(const CheckedFile &file, const char *symbol, const emm_host *host) {
    Member member = {open_entry(file.path, symbol)(host), {}};
    expect(member.table != nullptr, "the entry function returned NULL: {}", said.text);
    for (const auto &text : file.option_texts) {
        member.option_texts.push_back(text ? text->c_str() : nullptr);
    }
    member.option_texts.push_back(nullptr);
    return member;
}

} // namespace

Bare::Bare(const CheckedPlugin &plugin, const emm_host *host) {
    std::vector<Member> members = {member_of(plugin, EMM_PLUGIN_ENTRY_SYMBOL, host)};
    for (const CheckedFile &layer : plugin.layers) {
        members.push_back(member_of(layer, EMM_LAYER_ENTRY_SYMBOL, host));
    }
    for (const Member &member : members) {
        tables_.push_back(member.table);
    }
    texts_ = members.front().option_texts;
    slots_ =
        known_part_of(members.size() == 1 ? *tables_.front() : *table_of_stack(std::move(members)));
}

Bare on_device(const CheckedPlugin &plugin) {
    enter_device();
    return Bare(plugin);
}

emm_context_info describe_current(const char *pool) {
    auto info = sized<emm_context_info>();
    CUcontext context = nullptr;
    EMM_REQUIRE_CUDA_ENTRY(cuCtxGetCurrent, &context);
    info.cuda_context = context;
    unsigned long long id = 0;
    EMM_REQUIRE_CUDA_ENTRY(cuCtxGetId, context, &id);
    info.context_id = id;
    EMM_REQUIRE_CUDA_ENTRY(cuCtxGetDevice, &info.device);
    CUuuid uuid = {};
    EMM_REQUIRE_CUDA(cuDeviceGetUuid, &uuid, info.device);
    std::memcpy(info.device_uuid, uuid.bytes, sizeof uuid.bytes);
    info.context = reinterpret_cast<emm_context *>(&pending); // opaque: only the suite reads it
    info.pool = pool;
    info.group = info.context;
    return info;
}

emm_status try_create(const Bare &bare, emm_manager **ret_manager, const char *const *option_texts,
                      const char *pool) {
    const emm_context_info info = describe_current(pool);
    return call("create", bare.slots().create, &kit_host(), &info,
                option_texts ? option_texts : bare.option_texts(), ret_manager);
}

BareManager::BareManager(const Bare &bare, bool initialize, const char *pool) : bare_(bare) {
    const emm_status made = try_create(bare, &self_, nullptr, pool);
    expect(made >= EMM_OK && self_, "create failed: {}, {}", made, said.text);
    if (initialize && slots().initialize) {
        const emm_status ready = EMM_SLOT(*this, initialize);
        expect(ready >= EMM_OK, "initialize failed: {}, {}", ready, said.text);
    }
}

BareManager::~BareManager() {
    if (self_) {
        const InSlot inside("destroy");
        slots().destroy(self_);
    }
}

void BareManager::destroy() {
    const emm_status gone = call("destroy", slots().destroy, self_);
    self_ = nullptr;
    expect(gone >= EMM_OK, "destroy failed: {}, {}", gone, said.text);
}

emm_deviceptr BareManager::alloc(size_t size, emm_stream stream) const {
    emm_deviceptr ptr = 0;
    const emm_status got = EMM_SLOT(*this, memalloc, size, stream, &ptr);
    size_t free = 0, total = 0;
    if (got == EMM_E_OUT_OF_MEMORY && slots().get_memory_info &&
        EMM_SLOT(*this, get_memory_info, &free, &total) >= EMM_OK) {
        skip_below_limit(got, total);
    }
    expect(got >= EMM_OK && ptr != 0, "memalloc of {} bytes failed: {}, {}{}", size, got, said.text,
           got == EMM_E_OUT_OF_MEMORY ? why_out_of_memory() : "");
    count_allocated(size);
    return ptr;
}

void BareManager::free(emm_deviceptr ptr, size_t size, emm_stream stream) const {
    const emm_status freed = EMM_SLOT(*this, memfree, ptr, size, stream);
    expect(freed >= EMM_OK, "memfree of {} bytes failed: {}, {}", size, freed, said.text);
    count_freed(size);
}

emm_stats BareManager::stats() const {
    auto stats = sized<emm_stats>();
    if (slots().get_stats) {
        EMM_MUST(*this, get_stats, &stats);
    }
    return stats;
}

} // namespace emm::tool::check
