// The table, and hosts that are older or newer than the plugin.
#include "check/bare.h"
#include "check/gpu.h"
#include "check/hosted.h"
#include "check/plan.h"
#include "check/stack.h"
#include "json.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

namespace emm::tool::check {
namespace {

// A round of calls to the four functions that every plugin has.
void work(const Bare &bare) {
    BareManager manager(bare);
    const emm_deviceptr one = manager.alloc(1000), two = manager.alloc(5000000);
    manager.free(one, 1000);
    manager.free(two, 5000000);
    manager.destroy();
    run_deferred(EMM_DEFERRED_RUN);
}

// Behind the host's structs, as 1.0 has them, lies no readable memory.
void older_host(const CheckedPlugin &plugin) {
    enter_device();
    const Tail<emm_host> host(kit_host());
    const Bare bare(plugin, host.get());
    work(bare);
    emm_context_info known = describe_current();
    known.struct_size = offsetof(emm_context_info, pool);
    const Tail<emm_context_info> info(known, known.struct_size);
    emm_manager *manager = nullptr;
    const emm_status made =
        call("create", bare.slots().create, host.get(), info.get(), bare.option_texts(), &manager);
    expect(made >= EMM_OK, "create fails for an older host: {} {}", made, last_said().text);
    call("destroy", bare.slots().destroy, manager);
    run_deferred(EMM_DEFERRED_RUN);
}

// A later minor version: unknown services behind those of 1.0, which the plugin must not call.
void newer_host(const CheckedPlugin &plugin) {
    enter_device();
    static struct {
        emm_host known;
        uint64_t later[8];
    } host;
    host.known = kit_host();
    host.known.struct_size = sizeof host;
    host.known.abi_minor = EMM_PLUGIN_ABI_MINOR + 7;
    std::fill(std::begin(host.later), std::end(host.later), 1);
    work(Bare(plugin, &host.known));
}

void quiet_entry(const CheckedPlugin &plugin) {
    const auto calls_made = [] { return counters().calls - calls_of("cuGetProcAddress"); };
    const uint64_t calls = calls_made();
    const auto threads = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
    };
    const auto before = threads();
    const Bare bare(plugin);
    expect(calls_made() == calls, "loading it made {} driver calls: that is for create",
           calls_made() - calls);
    expect(threads() == before, "loading it started a thread: that is for create");
}

void constant(const CheckedPlugin &plugin) {
    const Bare bare = on_device(plugin);
    std::vector<emm_plugin> before;
    for (const emm_plugin *table : bare.tables()) {
        before.push_back(known_part_of(*table));
    }
    work(bare);
    for (size_t i = 0; i < before.size(); i++) {
        const emm_plugin after = known_part_of(*bare.tables()[i]);
        expect(std::memcmp(&before[i], &after, sizeof after) == 0,
               "the table of {} changed while it was used", after.name);
    }
}

bool is_plain(const char *text, bool dash) {
    for (const char *at = text; *at; at++) {
        const bool fine = (*at >= 'a' && *at <= 'z') || (*at >= '0' && *at <= '9') || *at == '_' ||
                          (dash && *at == '-');
        if (!fine) {
            return false;
        }
    }
    return *text != '\0';
}

// Looks at the tables of the plugin and of each layer.
void look_at_tables(const CheckedPlugin &plugin, void (*look)(const emm_plugin &table)) {
    const Bare bare(plugin);
    for (const emm_plugin *table : bare.tables()) {
        look(known_part_of(*table));
    }
}

void texts_of(const emm_plugin &slots) {
    expect(is_plain(slots.name, true), "its name is '{}': expected lower case, digits, - and _",
           slots.name);
    for (const emm_option *option = slots.options; option && option->name; option++) {
        expect(is_plain(option->name, false),
               "an option is called '{}': expected lower case, digits and _", option->name);
        expect(option->help && *option->help, "the option {} has no help", option->name);
    }
}

void texts(const CheckedPlugin &plugin) {
    look_at_tables(plugin, texts_of);
}

// Whether the text is UTF-8 without control characters, and no longer than emm prints.
bool is_one_line(const char *text) {
    constexpr size_t longest = 4096;
    const std::string whole = text;
    bool plain = whole.size() <= longest;
    for (size_t i = 0; i < whole.size(); i++) {
        const auto byte = static_cast<unsigned char>(whole[i]);
        const bool c1 = byte == 0xc2 && static_cast<unsigned char>(whole[i + 1]) < 0xa0;
        plain = plain && byte >= 0x20 && byte != 0x7f && !c1;
    }
    try {
        static_cast<void>(Json(whole).dump()); // throws for texts that are not UTF-8
    } catch (const Json::exception &) {
        return false;
    }
    return plain;
}

void lines_of(const emm_plugin &slots) {
    const auto look = [](const std::string &what, const char *text) {
        expect(!text || is_one_line(text),
               "{} is no line of UTF-8: expected no control characters, at most 4096 bytes", what);
    };
    look("its name", slots.name);
    look("its version", slots.version);
    look("its description", slots.description);
    for (const emm_option *option = slots.options; option && option->name; option++) {
        look("the default of option " + std::string(option->name), option->default_value);
        look("the help of option " + std::string(option->name), option->help);
    }
}

void lines(const CheckedPlugin &plugin) {
    look_at_tables(plugin, lines_of);
}

// emm as it was before, or after, slots were appended: it sees a copy of the table that ends
// elsewhere.
struct OtherHost {
    emm_plugin_entry entry = nullptr;
    size_t bytes = 0;
    uint32_t minor = 0;
    alignas(8) unsigned char table[512] = {};
} other;

const emm_plugin *as_another_host_sees_it(const emm_host *host) {
    const emm_plugin *own = other.entry(host);
    if (own) {
        std::fill(other.table + sizeof(emm_plugin), std::end(other.table), uint8_t(0xa5));
        std::memcpy(other.table, own, std::min<size_t>(other.bytes, own->struct_size));
        auto *copy = reinterpret_cast<emm_plugin *>(other.table);
        copy->struct_size = static_cast<uint32_t>(other.bytes);
        copy->interface_minor = other.minor;
        return copy;
    }
    return nullptr;
}

void serve_with(const CheckedPlugin &plugin, size_t bytes, uint32_t minor) {
    if (!plugin.layers.empty()) {
        throw Skipped("a stack is not linked in");
    }
    if (plugin.simulated) {
        open_simulator(); // nothing is found after emm_shutdown
    }
    other.entry = open_entry(plugin.path);
    other.bytes = bytes;
    other.minor = minor;
    const size_t colon = plugin.spec.find(':');
    const std::string options = colon == std::string::npos ? "" : plugin.spec.substr(colon + 1);
    must(emm_set_plugin_entry(&as_another_host_sees_it, options.c_str()), "taking the table");
    emm_context *context = nullptr;
    must(emm_context_for_device(0, &context), "making a manager");
    emm_deviceptr ptr = 0;
    must(emm_memalloc(context, 1 << 20, EMM_STREAM_LEGACY, &ptr), "memalloc");
    must(emm_memfree(context, ptr, 1 << 20, EMM_STREAM_LEGACY), "memfree");
    must(emm_context_reset(context), "reset");
    must(emm_shutdown(), "shutdown");
}

void short_table(const CheckedPlugin &plugin) {
    serve_with(plugin, offsetof(emm_plugin, memhostalloc), 0);
}

void long_table(const CheckedPlugin &plugin) {
    serve_with(plugin, sizeof(emm_plugin) + 64, EMM_PLUGIN_ABI_MINOR + 1);
}

} // namespace

std::vector<Case> table_cases() {
    return {
        {"table/texts", "EMM-P-05", "names are plain, and options are explained", texts},
        {"table/lines", "EMM-P-05", "texts are lines of UTF-8", lines},
        {"table/quiet-entry", "EMM-P-07", "loading does nothing but return the table", quiet_entry,
         on_simulator},
    };
}

std::vector<Case> version_cases() {
    return {
        {"table/constant", "EMM-P-06", "the table does not change", constant},
        {"table/older-host", "EMM-P-08", "it reads no more of the host than there is", older_host},
        {"table/newer-host", "EMM-P-08", "it works for a host of a later minor version",
         newer_host},
        {"table/short", "EMM-P-08 EMM-H-01",
         "it works where the slots beyond the fourth are not known", short_table},
        {"table/long", "EMM-H-01", "slots that emm does not know are left alone", long_table},
    };
}

} // namespace emm::tool::check
