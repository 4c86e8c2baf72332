// Memory shared by two processes, on the simulated driver or a real one: share [CASE...]
//
// EMM_PLUGIN selects the plugin of the memory. A case that the machine or the plugin cannot serve
// is skipped by name; the cases in EMM_TEST_MUST_SHARE must not be.
#include "cases.h"
#include "pair.h"

#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sched.h>
#include <thread>
#include <unistd.h>

using namespace share;

namespace {

constexpr size_t KiB = 1 << 10, MiB = KiB << 10, GiB = MiB << 10;

// Memory with an export, on device 0.
class Exported {
public:
    explicit Exported(size_t size) : context(context_on(0)), bytes(size) {
        CHECK(emm_memory_alloc(context, size, EMM_STREAM_LEGACY, &memory) == EMM_OK);
        status = emm_memory_export(memory, &handle);
        refusal = status == EMM_OK ? "" : emm_last_error()->text;
        CHECK(status == EMM_OK || status == EMM_E_NOT_SUPPORTED);
    }
    ~Exported() {
        release();
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
    void release() {
        CHECK(status != EMM_OK || emm_release_ipc_handle(context, &handle) == EMM_OK);
        status = EMM_E_NOT_OWNED;
    }
    Exported(const Exported &) = delete;
    Exported &operator=(const Exported &) = delete;
    void fill(int value) const { share::fill(context, address_of(memory), bytes, value); }
    bool holds(int value) const { return share::holds(context, address_of(memory), bytes, value); }

    emm_context *const context;
    const size_t bytes;
    emm_memory *memory = nullptr;
    emm_ipc_handle handle = {};
    emm_status status = EMM_OK;
    std::string refusal;
};

Outcome exchange(size_t size) {
    const Exported exported(size);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer;
    exported.fill(7);
    const Answer opened = peer.open(0, exported.handle);
    CHECK(opened.status == EMM_OK && opened.kind == EMM_KIND_IPC);
    CHECK(peer.holds(0, 7));
    peer.fill(0, 9);
    CHECK(exported.holds(9));
    exported.fill(11);
    CHECK(peer.holds(0, 11));
    peer.close(0);
    CHECK(exported.holds(11));
    return "";
}

Outcome share_whole() {
    // A pool may have reasons to export no small ones.
    for (const size_t size : {4 * KiB, 700 * KiB}) {
        if (const Outcome refused = exchange(size); !refused.empty()) {
            std::printf("   %zu bytes: %s\n", size, refused.c_str());
        }
    }
    const Outcome refused = exchange(5 * MiB + 512);
    return refused.empty() ? exchange(33 * MiB) : refused;
}

Outcome share_huge() {
    emm_context *context = context_on(0);
    size_t free = 0, total = 0;
    CHECK(emm_get_memory_info(context, &free, &total) == EMM_OK);
    if (free < 9 * GiB) {
        return "less than 9 GiB of device memory are free";
    }
    const Outcome refused = exchange(8 * GiB);
    if (refused.empty()) {
        return "";
    }
    std::printf("   %zu bytes: %s\n", 8 * GiB, refused.c_str()); // CUDA's limit for a memory pool
    return exchange(4 * GiB);
}

// A part is released while the whole is exported, and the other way round.
Outcome share_part() {
    Exported exported(6 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer;
    const size_t start = MiB + 512, stop = 3 * MiB;
    emm_memory *view = nullptr;
    emm_ipc_handle part = {};
    CHECK(emm_memory_view(exported.memory, start, stop, &view) == EMM_OK);
    CHECK(emm_memory_export(view, &part) == EMM_OK);
    exported.fill(7);
    const Answer opened = peer.open(0, exported.handle), opened_part = peer.open(1, part);
    CHECK(opened.status == EMM_OK && opened_part.status == EMM_OK);
    // Pages are mapped for each export; other memory is one mapping.
    CHECK(exported.handle.kind == EMM_IPC_FILE_DESCRIPTOR ||
          opened_part.number == opened.number + start);
    peer.fill(1, 9);
    CHECK(holds(exported.context, address_of(view), stop - start, 9));
    CHECK(holds(exported.context, address_of(exported.memory), start, 7));
    CHECK(holds(exported.context, address_of(exported.memory) + stop, exported.bytes - stop, 7));
    CHECK(emm_release_ipc_handle(exported.context, &part) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    CHECK(peer.open(2, part).status == EMM_E_NOT_OWNED);
    CHECK(emm_memory_free(exported.memory) == EMM_E_BUSY);
    CHECK(peer.open(2, exported.handle).status == EMM_OK);
    exported.fill(11);
    CHECK(peer.holds(0, 11) && peer.holds(1, 11) && peer.holds(2, 11));
    for (const uint32_t slot : {1u, 0u, 2u}) {
        peer.close(slot);
    }
    exported.release();
    CHECK(peer.open(0, exported.handle).status == EMM_E_NOT_OWNED);
    return "";
}

Outcome open_hundred_times() {
    const Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer(0, {"EMM_DRIVER_METER=1"});
    const Answer first = peer.open(0, exported.handle);
    const uint64_t openings = peer.openings();
    for (uint32_t slot = 1; slot < 100; ++slot) {
        const Answer again = peer.open(slot, exported.handle);
        CHECK(again.status == EMM_OK && again.number == first.number);
    }
    CHECK(openings > 0 && peer.openings() == openings);
    for (uint32_t slot = 0; slot < 100; ++slot) {
        peer.close(slot);
    }
    return "";
}

Outcome open_by_name() {
    Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    emm_ipc_name name = {};
    CHECK(emm_ipc_handle_to_name(&exported.handle, &name) == EMM_OK && emm_ipc_is_name(&name));
    const Peer peer;
    const Answer opened = peer.open_named(0, name), again = peer.open_named(1, name);
    CHECK(opened.status == EMM_OK && opened.kind == EMM_KIND_IPC);
    CHECK(peer.open(2, exported.handle).number == opened.number && again.number == opened.number);
    exported.fill(7);
    CHECK(peer.holds(0, 7));
    peer.fill(1, 9);
    CHECK(exported.holds(9));
    for (uint8_t &byte : name.bytes) {
        byte ^= 0xff;
        CHECK(peer.open_named(3, name).status == EMM_E_INVALID_VALUE);
        byte ^= 0xff;
    }
    for (const uint32_t slot : {0u, 1u, 2u}) {
        peer.close(slot);
    }
    CHECK(peer.open_named(0, name).status == EMM_OK);
    exported.release();
    CHECK(peer.open_named(1, name).status == EMM_E_NOT_OWNED);
    peer.close(0);
    return "";
}

Outcome open_in_second_context() {
    const Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer;
    CHECK(peer.open(0, exported.handle).status == EMM_OK);
    const Answer refused = peer.open(1, exported.handle, 1);
    if (exported.handle.kind != EMM_IPC_FILE_DESCRIPTOR) {
        CHECK(refused.status == EMM_E_BUSY && std::strstr(refused.text, "one context"));
        peer.close(0);
        CHECK(peer.open(1, exported.handle, 1).status == EMM_OK);
        CHECK(peer.open(0, exported.handle).status == EMM_E_BUSY);
        peer.close(1);
    }
    return "";
}

// The exporter has a smaller block at the address of the first.
Outcome open_smaller_after_freed() {
    std::optional<Exported> first(std::in_place, 8 * MiB);
    if (first->status != EMM_OK) {
        return first->refusal;
    }
    const Peer peer;
    const Answer before = peer.open(0, first->handle);
    CHECK(before.status == EMM_OK);
    const emm_deviceptr address = address_of(first->memory);
    first.reset();
    CHECK(emm_trim(context_on(0), 0, nullptr) == EMM_OK);
    const Exported second(4 * MiB);
    if (address_of(second.memory) != address) {
        return "the next block lies elsewhere";
    }
    second.fill(7);
    const Answer beside = peer.open(1, second.handle);
    if (beside.status == EMM_OK) {
        CHECK(beside.number != before.number);
        peer.close(1);
    } else {
        CHECK(beside.status == EMM_E_BUSY && std::strstr(beside.text, "close that first"));
    }
    peer.close(0);
    CHECK(peer.open(1, second.handle).status == EMM_OK);
    CHECK(peer.holds(1, 7));
    peer.close(1);
    return "";
}

Outcome refuse_own() {
    const Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    emm_memory *none = nullptr;
    CHECK(emm_memory_open_ipc(exported.context, &exported.handle, &none) == EMM_E_INVALID_VALUE);
    CHECK(!none && std::strstr(emm_last_error()->text, "exported by this process"));
    emm_ipc_name name = {};
    emm_ipc_handle handle = {};
    CHECK(emm_ipc_handle_to_name(&exported.handle, &name) == EMM_OK);
    CHECK(emm_ipc_name_to_handle(&name, &handle) == EMM_E_INVALID_VALUE);
    CHECK(std::strstr(emm_last_error()->text, "by this process"));
    return "";
}

// Processes that start meanwhile have process ids of their own, as in another container.
class OtherProcessIds {
public:
    OtherProcessIds() : own_(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC)) {
        entered_ = own_ >= 0 && unshare(CLONE_NEWPID) == 0;
    }
    ~OtherProcessIds() {
        CHECK(!entered_ || setns(own_, CLONE_NEWPID) == 0);
        close(own_);
    }
    OtherProcessIds(const OtherProcessIds &) = delete;
    OtherProcessIds &operator=(const OtherProcessIds &) = delete;
    bool entered() const { return entered_; }

private:
    int own_;
    bool entered_;
};

Outcome share_with_container() {
    const Exported exported(5 * MiB);
    if (exported.status != EMM_OK || exported.handle.kind == EMM_IPC_LEGACY) {
        return exported.status != EMM_OK ? exported.refusal
                                         : "where a legacy handle goes is the driver's matter";
    }
    std::optional<Peer> peer;
    {
        const OtherProcessIds ids;
        if (!ids.entered()) {
            return "process ids of its own take privileges";
        }
        peer.emplace(0, std::vector<std::string>{"EMM_TEST_OWN_PROC=1"});
    }
    exported.fill(7);
    CHECK(peer->open(0, exported.handle).status == EMM_OK);
    CHECK(peer->holds(0, 7));
    peer->fill(0, 9);
    CHECK(exported.holds(9));
    peer->close(0);
    return "";
}

// The serving thread closes a connection soon after the importer has.
bool no_more_descriptors_than(uint64_t most) {
    for (int i = 0; i < 5000 && open_descriptors() > most; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return open_descriptors() <= most;
}

// The close waits for the work on the memory.
Outcome close_beside_a_capture() {
    const Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer;
    CHECK(peer.open(0, exported.handle).status == EMM_OK);
    CHECK(peer.ask({'k', 0, 0, 0, {}}).number);
    CHECK(exported.holds(5));
    return "";
}

// An import that was open in a context that died is closed, and a new one can be opened.
Outcome open_after_a_death() {
    const Exported exported(5 * MiB), other(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer;
    CHECK(peer.open(0, exported.handle, 1).status == EMM_OK);
    peer.ask({'d', 0, 1, 0, {}});
    CHECK(peer.open(1, other.handle, 2).status == EMM_OK);
    peer.close(1);
    CHECK(peer.open(1, exported.handle, 2).status == EMM_OK);
    peer.close(1);
    return "";
}

// Sharing gives back all that it takes of a process; a serving thread may stay for the next use.
Outcome leave_nothing() {
    const Peer peer;
    uint64_t before[2] = {}, threads[2] = {};
    for (int round = 0; round < 20; ++round) {
        {
            const Exported exported(5 * MiB), other(MiB);
            if (exported.status != EMM_OK) {
                return exported.refusal;
            }
            CHECK(peer.open(0, exported.handle).status == EMM_OK);
            CHECK(peer.open(1, other.handle).status == EMM_OK);
            CHECK(peer.open(2, other.handle).status == EMM_OK);
            for (const uint32_t slot : {0u, 1u, 2u}) {
                peer.close(slot);
            }
        }
        Answer held = peer.ask({'s', 0, 0, 0, {}});
        if (round < 2) { // the first rounds bring files and threads that stay
            before[0] = open_descriptors(), before[1] = held.number;
            threads[0] = live_threads(), threads[1] = held.threads;
        }
        CHECK(no_more_descriptors_than(before[0]));
        for (int i = 0; i < 500 && held.number > before[1]; ++i) {
            held = peer.ask({'s', 0, 0, 0, {}}); // its own connections soon end too
        }
        CHECK(held.number <= before[1]);
        CHECK(live_threads() == threads[0] && held.threads == threads[1]);
        CHECK(live_bytes(context_on(0)) == 0);
    }
    return "";
}

// --- devices

Outcome open_over_there(std::vector<std::string> environment) {
    Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer(1, std::move(environment));
    exported.fill(7);
    CHECK(peer.open(0, exported.handle).kind == EMM_KIND_IPC);
    CHECK(peer.holds(0, 7));
    peer.fill(0, 9);
    CHECK(exported.holds(9));
    const uint64_t openings = peer.openings();
    CHECK(peer.open(1, exported.handle).status == EMM_OK);
    CHECK(peer.openings() == openings);
    peer.close(1);
    peer.close(0);
    return "";
}

Outcome copy_over_there(std::vector<std::string> environment) {
    Exported exported(5 * MiB);
    if (exported.status != EMM_OK) {
        return exported.refusal;
    }
    const Peer peer(1, std::move(environment));
    emm_memory *view = nullptr;
    emm_ipc_handle part = {};
    CHECK(emm_memory_view(exported.memory, MiB, 2 * MiB, &view) == EMM_OK);
    CHECK(emm_memory_export(view, &part) == EMM_OK);
    exported.fill(7);
    fill(exported.context, address_of(view), MiB, 8);
    const Answer first = peer.open(0, exported.handle), second = peer.open(1, part);
    CHECK(first.kind == EMM_KIND_DEVICE && second.kind == EMM_KIND_DEVICE);
    CHECK(peer.holds(1, 8));
    peer.fill(1, 9);
    CHECK(holds(exported.context, address_of(view), MiB, 8));
    exported.fill(10);
    CHECK(peer.open(2, exported.handle).status == EMM_OK && peer.holds(2, 10));
    // The copies are the peer's, even after the originals are gone.
    CHECK(emm_release_ipc_handle(exported.context, &part) == EMM_OK);
    CHECK(emm_memory_release(view) == EMM_OK);
    exported.release();
    CHECK(peer.holds(1, 9) && peer.holds(2, 10));
    for (const uint32_t slot : {0u, 1u, 2u}) {
        peer.close(slot);
    }
    return "";
}

Outcome open_on_peer_device() {
    if (device_count() < 2) {
        return "there is one device only";
    }
    return can_reach(1, 0) ? open_over_there({"EMM_DRIVER_METER=1"})
                           : "the devices do not reach each other";
}

Outcome copy_when_forced() {
    return device_count() < 2 ? "there is one device only" : copy_over_there({"EMM_IPC_STAGED=1"});
}

Outcome copy_when_unreachable() {
    if (device_count() < 2) {
        return "there is one device only";
    }
    if (is_simulated()) {
        return copy_over_there({std::string("EMM_SIM=") + std::getenv("EMM_SIM") + ",peer=0"});
    }
    return can_reach(1, 0) ? "the devices reach each other" : copy_over_there({});
}

const Case cases[] = {
    {"smaller-after-freed", open_smaller_after_freed}, // while the device is empty
    {"whole", share_whole},
    {"part", share_part},
    {"huge", share_huge},
    {"hundred-times", open_hundred_times},
    {"by-name", open_by_name},
    {"second-context", open_in_second_context},
    {"own-process", refuse_own},
    {"container", share_with_container},
    {"beside-capture", close_beside_a_capture},
    {"after-death", open_after_a_death},
    {"nothing-left", leave_nothing},
    {"peer-device", open_on_peer_device},
    {"staged", copy_when_forced},
    {"unreachable", copy_when_unreachable},
};

} // namespace

int main(int argc, char *argv[]) {
    if (argc == 4 && std::strcmp(argv[1], "peer") == 0) {
        return be_peer(std::atoi(argv[2]), std::atoi(argv[3]));
    }
    const char *const must = std::getenv("EMM_TEST_MUST_SHARE");
    int passed = 0;
    for (const Case &each : cases) {
        if (!is_wanted(each, argc, argv)) {
            continue;
        }
        std::printf("%s ...\n", each.name);
        std::fflush(stdout);
        const bool has_passed = passes(each);
        passed += has_passed;
        CHECK(has_passed || !must || !std::strstr(must, each.name));
    }
    return passed > 0 ? 0 : 77;
}
