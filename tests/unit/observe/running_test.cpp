#include "catch.h"

#include "../core/driver_calls.h"
#include "../core/recorder.h"
#include "observe/running.h"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

namespace {

// A core file has the program's writable memory. Static memory is the part that belongs to the
// program's file, with the part directly behind it.
std::string static_memory() {
    std::ifstream maps("/proc/self/maps");
    std::string all, line, own_file;
    uintptr_t end = 0;
    while (std::getline(maps, line)) {
        std::istringstream fields(line);
        uintptr_t first = 0, last = 0;
        char dash = 0;
        std::string rights, offset, device, inode, file;
        fields >> std::hex >> first >> dash >> last >> rights >> offset >> device >> inode >> file;
        own_file = own_file.empty() ? file : own_file;
        const bool follows = file.empty() && first == end;
        if ((file == own_file || follows) && rights.rfind("rw", 0) == 0) {
            all.append(reinterpret_cast<const char *>(first), last - first);
        }
        end = file == own_file ? last : 0;
    }
    return all;
}

std::string shown(std::string_view function, std::string_view plugin) {
    const auto text = emm::observe::running_text(function, plugin);
    const auto *const first = reinterpret_cast<const char *>(text.data());
    const auto *const end = static_cast<const char *>(std::memchr(first, '\0', sizeof text));
    return end ? "emm runs" + std::string(first, end) : "";
}

bool in_static_memory(const std::string &function, const std::string &plugin) {
    return static_memory().find(shown(function, plugin)) != std::string::npos;
}

} // namespace

TEST_CASE("the record of what runs is one string, with the end of a long path") {
    CHECK(shown("memfree", "/opt/x/libx.so")
              .rfind("emm runs memfree                  of /opt/x/libx.so  ", 0) == 0);
    const std::string long_path = "/" + std::string(5000, 'p') + "/libx.so";
    const std::string text = shown(std::string(5000, 'f'), long_path);
    CHECK(text.size() == strlen("emm runs") + sizeof(emm::observe::RunningText) - 1);
    CHECK(text.substr(text.size() - 10) == "pp/libx.so");
    CHECK(shown("", "").find_first_not_of("emruns of") == std::string::npos);
}

TEST_CASE("a function of a plugin stands in static memory while it runs, and no longer") {
    static bool seen_create = false, seen_inner = false, seen_innermost = false, seen_outer = false;
    Recorder::the().on_create = [] {
        seen_create = in_static_memory("create", "recorder");
        return EMM_OK;
    };
    Recorder::the().on_initialize = [] {
        std::thread([] {
            const auto text = emm::observe::running_text("memfree", "recorder");
            const emm::observe::Running other(text);
            seen_inner = in_static_memory("memfree", "recorder");
        }).join();
        {
            const auto text = emm::observe::running_text("trim", "recorder");
            const emm::observe::Running inner(text);
            seen_innermost = in_static_memory("trim", "recorder");
        }
        seen_outer = in_static_memory("initialize", "recorder");
        return EMM_OK;
    };
    REQUIRE(emm_set_plugin_entry(&Recorder::entry, nullptr) == EMM_OK);
    context_for_device();
    CHECK(seen_create);
    CHECK(seen_inner);
    CHECK(seen_innermost);
    CHECK(seen_outer);
    CHECK_FALSE(in_static_memory("initialize", "recorder"));
    CHECK_FALSE(in_static_memory("memfree", "recorder"));
}
