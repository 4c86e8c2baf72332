// Names that another user guesses, takes or has freed.
#include "cases.h"
#include "sockets.h"

#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace share;

namespace attacked {

namespace {

// The number at the end of a name, counted up in decimal and in hexadecimal digits.
std::vector<std::string> next_to(const std::string &name, uint64_t steps) {
    const size_t line = name.find('-', sizeof "emm-ipc-" - 1);
    const size_t decimal = line == name.npos ? name.size() : line + 1;
    const uint64_t number = std::strtoull(name.c_str() + decimal, nullptr, 10);
    char text[24];
    std::vector<std::string> names = {name.substr(0, decimal) + std::to_string(number + steps)};
    const uint64_t low = std::strtoull(name.c_str() + name.size() - 8, nullptr, 16);
    std::snprintf(text, sizeof text, "%08llx", static_cast<unsigned long long>(low + steps));
    names.push_back(name.substr(0, name.size() - 8) + text);
    return names;
}

} // namespace

Outcome guess_next_name() {
    if (geteuid() != 0) {
        return needs_root;
    }
    const Part stranger([](int socket) {
        become_other_user();
        for_each_handle([](const emm_ipc_handle &handle, Told &answer) {
            for (const std::string &name : names_of(handle)) {
                for (uint64_t steps = 1; steps < 64; ++steps) {
                    for (const std::string &next : next_to(name, steps)) {
                        answer.number += listen_at(next, 1) >= 0;
                    }
                }
            }
        })(socket);
    });
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told first = exporter.share(0, MiB);
    if (first.status != EMM_OK) {
        return first.text;
    }
    CHECK(hand(stranger, first.handle).number > 0);
    for (uint64_t i = 1; i < 4; ++i) {
        const Told next = exporter.share(i * MiB, MiB);
        CHECK(next.status == EMM_OK);
        CHECK(importer.open(next.handle).status == EMM_OK);
    }
    return "";
}

Outcome take_another_name() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told first = exporter.share(0, MiB);
    if (first.status != EMM_OK) {
        return first.text;
    }
    exporter.set('r', first.handle.generation);
    const Told next = exporter.share(MiB, MiB);
    CHECK(next.status == EMM_OK && next.handle.generation != first.handle.generation);
    CHECK(importer.open(first.handle).status == EMM_OK);
    CHECK(importer.open(next.handle).status == EMM_OK);
    return "";
}

// With a full queue: the exporter's while it lives, and one of its name afterwards.
Outcome revive_ended() {
    if (geteuid() != 0) {
        return needs_root;
    }
    const Part stranger([](int socket) {
        become_other_user();
        std::vector<std::string> names;
        for_each_handle([&names](const emm_ipc_handle &handle, Told &answer) {
            names = names.empty() ? names_of(handle) : names;
            for (const std::string &name : names) {
                answer.number += listen_at(name, 0) >= 0;
                for (int i = 0; i < 200 && connect_at(name) >= 0; ++i) {
                }
            }
        })(socket);
    });
    const auto is_refused = [](const Told &told) {
        return told.status == EMM_E_BUSY || told.status == EMM_E_NOT_OWNED ||
               told.status == EMM_E_INVALID_VALUE;
    };
    const Part importer;
    emm_ipc_handle ended = {};
    {
        const Part exporter;
        exporter.allocate(4 * MiB);
        const Told shared = exporter.share(0, 4 * MiB);
        if (shared.status != EMM_OK) {
            return shared.text;
        }
        ended = shared.handle;
        CHECK(hand(stranger, ended).number == 0);
        CHECK(importer.open(ended).status == EMM_OK);
        importer.close_opened();
        CHECK(exporter.release(ended).status == EMM_OK);
        CHECK(hand(stranger, ended).number == 0); // the name is still the exporter's
        CHECK(is_refused(importer.open(ended)));
    }
    CHECK(hand(stranger, ended).number != 0);
    CHECK(is_refused(importer.open(ended)));
    return "";
}

Outcome open_freed_name() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told first = exporter.share(0, 4 * MiB);
    if (first.status != EMM_OK) {
        return first.text;
    }
    CHECK(importer.open(first.handle).status == EMM_OK);
    CHECK(exporter.release(first.handle).status == EMM_OK);
    exporter.tell({'f', 0, 0, 0, {}});
    exporter.allocate(4 * MiB);
    const Told second = exporter.share(0, 4 * MiB);
    CHECK(second.status == EMM_OK);
    const bool same_name = std::memcmp(first.handle.handle, second.handle.handle, 64) == 0;
    const bool same_memory = std::memcmp(first.handle.nonce, second.handle.nonce, 16) == 0;
    const Told opened = importer.open(second.handle);
    if (!same_name || same_memory) {
        std::printf("   %s\n", same_name ? "the block was kept: it is the same memory"
                                         : "the driver gives other memory another name");
    }
    CHECK(opened.status == (same_name && !same_memory ? EMM_E_BUSY : EMM_OK));
    importer.close_opened();
    CHECK(importer.open(second.handle).status == EMM_OK);
    return "";
}

} // namespace attacked
