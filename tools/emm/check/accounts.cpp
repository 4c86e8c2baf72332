// Errors, memory info and queries: the plugin's reports.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/hosted.h"
#include "check/plan.h"

#include <limits>
#include <vector>

namespace emm::tool::check {
namespace {

void memory_info(const CheckedPlugin &plugin) {
    const Hosted hosted(plugin);
    size_t of_device = 0, unused = 0;
    EMM_REQUIRE_CUDA(cuMemGetInfo, &unused, &of_device);
    size_t last = 0;
    const auto ask = [&] {
        size_t free = 0, total = 0;
        must(emm_get_memory_info(hosted.get(), &free, &total), "get_memory_info");
        expect(free <= total, "{} bytes are free of {} in all", free, total);
        expect(total <= of_device, "{} bytes in all, on a device of {}", total, of_device);
        return free;
    };
    last = ask();
    const emm_deviceptr ptr = hosted.alloc(64 * mib);
    const size_t now = ask();
    // On a real device other processes, such as other cases, return memory at any time.
    const bool of_host = hosted.stats().spilled_bytes > 0; // the device has as much as before
    expect(now < last || (of_host && now == last) || !plugin.simulated,
           "{} bytes are free after an allocation, and {} before", now, last);
    hosted.free(ptr, 64 * mib);
    ask();
}

size_t total_told(const BareManager &manager) {
    size_t free = 0, total = 0;
    if (manager.slots().get_memory_info) {
        EMM_MUST(manager, get_memory_info, &free, &total);
    } else {
        EMM_REQUIRE_CUDA(cuMemGetInfo, &free, &total);
    }
    return total;
}

// Asked before any context exists; later a manager says the same.
void device_total(const CheckedPlugin &plugin) {
    const Bare bare(plugin);
    need(bare.slots().get_device_total,
         "it has no get_device_total: no option of its own limits a device");
    size_t of_device = 0, told = 0;
    EMM_REQUIRE_CUDA(cuDeviceTotalMem, &of_device, 0);
    const emm_status status = call("get_device_total", bare.slots().get_device_total, &kit_host(),
                                   int32_t(0), of_device, bare.option_texts(), &told);
    expect(status >= EMM_OK, "get_device_total fails: {} {}", status, last_said().text);
    unsigned flags = 0;
    int active = 0;
    EMM_REQUIRE_CUDA_ENTRY(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    expect(active == 0, "get_device_total made a context");
    enter_device();
    const size_t total = total_told(BareManager(bare));
    expect(told == total,
           "get_device_total tells {} bytes for a device of {}: expected {}, as get_memory_info "
           "tells in a context there",
           told, of_device, total);
}

// Visits each numeric option with values at the ends of the range that the host accepts, and
// create's texts for them.
template <class Visit> void each_extreme(const Bare &bare, const Visit &visit) {
    const emm_option *const options = bare.slots().options;
    std::vector<const char *> texts;
    for (size_t i = 0; options && options[i].name; i++) {
        texts.push_back(bare.option_texts()[i]);
    }
    for (size_t i = 0; i < texts.size(); i++) {
        const uint32_t kind = options[i].kind;
        if (kind != EMM_OPTION_SIZE && kind != EMM_OPTION_COUNT && kind != EMM_OPTION_NUMBER) {
            continue;
        }
        const char *const own = texts[i];
        for (const char *value : {"0", "1", "1000000"}) {
            texts[i] = value;
            visit(options[i], value, texts.data());
        }
        texts[i] = own;
    }
}

emm_status status_of_create(const Bare &bare, const char *const *texts) {
    emm_manager *manager = nullptr;
    const emm_status made = try_create(bare, &manager, texts);
    if (made >= EMM_OK) {
        call("destroy", bare.slots().destroy, manager);
    }
    return made;
}

void options_checked(const CheckedPlugin &plugin) {
    const Bare bare(plugin);
    need(bare.slots().check_options, "it has no check_options: create alone refuses values");
    enter_device();
    each_extreme(bare, [&](const emm_option &option, const char *value, const char *const *texts) {
        const emm_status told =
            call("check_options", bare.slots().check_options, &kit_host(), texts);
        const emm_status made = status_of_create(bare, texts);
        expect((told < EMM_OK) == (made == EMM_E_PLUGIN_SPEC),
               "option {}={}: create returns {} and check_options {}: expected both to refuse it, "
               "or neither",
               option.name, value, made, told);
    });
}

// Live memory stays unchanged.
void options_changed(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().set_option, "it has no set_option: its options are fixed");
    each_extreme(bare, [&](const emm_option &option, const char *value, const char *const *texts) {
        if ((option.reserved & EMM_OPTION_CHANGES) == 0) {
            return;
        }
        const emm_status made = status_of_create(bare, texts);
        const BareManager manager(bare);
        const emm_deviceptr ptr = manager.alloc(mib);
        mark(nullptr, ptr, mib, 0x5a);
        const emm_status told = EMM_SLOT(manager, set_option, option.name, value);
        expect(made == EMM_E_PLUGIN_SPEC ? told == EMM_E_PLUGIN_SPEC : told >= EMM_OK,
               "option {}={}: create returns {} and set_option {}: expected both to refuse it, or "
               "neither",
               option.name, value, made, told);
        expect(is_marked(nullptr, ptr, mib, 0x5a), "set_option {}={} changed memory that is live",
               option.name, value);
        const char *const own = bare.option_texts()[&option - bare.slots().options];
        EMM_MUST(manager, set_option, option.name, own);
        manager.free(ptr, mib);
    });
}

// Structs of older and newer callers: the bytes behind the caller's struct are not the plugin's.
template <class Struct, class Fill> void fill_sizes(const char *what, const Fill &fill) {
    for (const size_t size :
         {size_t(8), size_t(16), sizeof(Struct) - 8, sizeof(Struct), sizeof(Struct) + 32}) {
        Struct blank = {};
        blank.struct_size = static_cast<uint32_t>(size);
        const Tail<Struct> tail(blank, size);
        fill(tail.get());
        expect(tail.get()->struct_size == size, "{} changed the caller's struct_size from {} to {}",
               what, size, tail.get()->struct_size);
    }
}

void struct_sizes(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const emm_plugin &slots = bare.slots();
    if (!slots.get_stats && !slots.query) {
        throw Skipped("it has neither get_stats nor query");
    }
    const BareManager manager(bare);
    const emm_deviceptr ptr = manager.alloc(mib);
    if (slots.get_stats) {
        fill_sizes<emm_stats>("get_stats",
                              [&](emm_stats *stats) { EMM_SLOT(manager, get_stats, stats); });
    }
    if (slots.query) {
        fill_sizes<emm_block_info>(
            "query", [&](emm_block_info *info) { EMM_SLOT(manager, query, ptr, info); });
    }
    manager.free(ptr, mib);
}

emm_status ask(const BareManager &manager, emm_deviceptr ptr, emm_block_info &ret_info) {
    ret_info = {};
    ret_info.struct_size = sizeof ret_info;
    return EMM_SLOT(manager, query, ptr, &ret_info);
}

void ask_at(const BareManager &manager, emm_deviceptr ptr, size_t size, size_t offset) {
    emm_block_info info, behind;
    const emm_status status = ask(manager, ptr + offset, info);
    expect(status >= EMM_OK, "query of a live block fails: {} {}", status, last_said().text);
    expect(info.base == ptr && info.size >= size,
           "query at {} bytes into a block at 0x{:x} of {} tells 0x{:x} and {}", offset, ptr, size,
           info.base, info.size);
    expect(info.kind == EMM_KIND_DEVICE && info.device == 0,
           "query tells kind {} on device {}: expected {} on 0", info.kind, info.device,
           EMM_KIND_DEVICE);
    // The block ends at the reported size, rounded or not: the bytes behind it are not its own.
    expect(ask(manager, ptr + info.size, behind) < EMM_OK || behind.base != ptr,
           "query tells that a block has {} bytes, and describes it at the byte behind them too",
           info.size);
}

void query(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    need(bare.slots().query, "it has no query");
    const BareManager manager(bare);
    for (const size_t size : {size_t(1), size_t(1000), size_t(100000), 3 * mib}) {
        const emm_deviceptr ptr = manager.alloc(size);
        for (const size_t offset : {size_t(0), size / 2, size - 1}) {
            ask_at(manager, ptr, size, offset);
        }
        manager.free(ptr, size);
        emm_block_info info;
        const emm_status status = ask(manager, ptr, info);
        expect(status == EMM_E_NOT_OWNED, "query of a freed block returns {}: expected {}", status,
               EMM_E_NOT_OWNED);
    }
}

constexpr size_t too_much = size_t(1) << 50;

// Failures of the slots that a caller can provoke.
class Failures {
public:
    explicit Failures(const BareManager &manager) : manager_(manager) {}

    template <class Check> void each(const Check &check) {
        const emm_plugin &slots = manager_.slots();
        emm_deviceptr ptr = 77;
        void *host = &ptr;
        constexpr size_t everything = std::numeric_limits<size_t>::max();
        for (const size_t size : {too_much, everything - 255, everything}) {
            const emm_status status = EMM_SLOT(manager_, memalloc, size, EMM_STREAM_LEGACY, &ptr);
            tell(check, fmt::format("memalloc of {} bytes", size), status, ptr == 77);
        }
        const emm_status freed = EMM_SLOT(manager_, memfree, 0x7000, 256, EMM_STREAM_LEGACY);
        tell(check, "memfree", freed, true);
        if (slots.memhostalloc) {
            ptr = 77;
            const emm_status status =
                EMM_SLOT(manager_, memhostalloc, too_much, EMM_HOST_MAPPED, &host, &ptr);
            tell(check, "memhostalloc", status, ptr == 77 && host == &ptr);
        }
        if (slots.memallocmanaged) {
            ptr = 77;
            const emm_status status =
                EMM_SLOT(manager_, memallocmanaged, too_much, EMM_ATTACH_GLOBAL, &ptr);
            tell(check, "memallocmanaged", status, ptr == 77);
        }
        if (slots.query) {
            emm_block_info info = {sizeof info, 7, 7, 7, 7, 7};
            const emm_status status = EMM_SLOT(manager_, query, 0x7000, &info);
            tell(check, "query", status, info.kind == 7 && info.base == 7 && info.size == 7);
        }
        if (slots.get_ipc_handle) {
            emm_ipc_handle handle = {};
            handle.offset = 7;
            const emm_status status = EMM_SLOT(manager_, get_ipc_handle, 0x7000, 256, &handle);
            tell(check, "get_ipc_handle", status, handle.offset == 7 && handle.size == 0);
        }
    }

private:
    template <class Check>
    static void tell(const Check &check, const std::string &slot, emm_status status,
                     bool untouched) {
        if (status < EMM_OK) {
            check(slot, status, untouched);
        }
        forget_said();
    }

    const BareManager &manager_;
};

void untouched(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager manager(bare);
    Failures(manager).each([](const std::string &slot, emm_status status, bool kept) {
        expect(kept, "{} returns {} and has written to its outputs", slot, status);
    });
}

void described(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    const BareManager manager(bare);
    Failures(manager).each(
        [](const std::string &slot, emm_status status, bool) { expect_described(slot, status); });
}

} // namespace

std::vector<Case> account_cases() {
    return {
        {"errors/described", "EMM-P-15", "a failure is a known code, and says why", described},
        {"errors/untouched", "EMM-P-16", "outputs are untouched on failure", untouched},
        {"accounts/memory-info", "EMM-P-29", "free and total memory make sense", memory_info},
        {"accounts/device-total", "EMM-P-58",
         "the total that it reports without a context is the total in a context", device_total},
        {"accounts/options", "EMM-P-59",
         "check_options refuses the values that create refuses, and no others", options_checked},
        {"accounts/options-changed", "EMM-P-67",
         "set_option refuses the values that create refuses, and no others", options_changed},
        {"accounts/struct-sizes", "EMM-P-08", "a caller's shorter struct is filled up to its end",
         struct_sizes},
        {"accounts/query", "EMM-P-31", "query describes live allocations and nothing else", query},
    };
}

} // namespace emm::tool::check
