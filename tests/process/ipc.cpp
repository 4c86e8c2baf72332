// Memory between two processes: ipc [ROUNDS [DEVICE [no-copy-after-kill]]]. This program starts
// itself as its own peer, on that device, and in each round one of the two exports and the peer is
// killed at some step. With the third word an exporter is not killed while its memory is open: what
// it had in a memory pool of CUDA's is lost to other devices (error 226).
#include "share/pair.h"

#include <cstring>
#include <cuda.h>
#include <fcntl.h>
#include <poll.h>
#include <random>
#include <signal.h>
#include <simcuda.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

using share::address_of, share::changed, share::fill, share::holds, share::live_bytes,
    share::open_descriptors;

namespace {

constexpr size_t whole = 1 << 20, start = 1 << 18, part = 1 << 18;

struct Message {
    char what = 0;
    int32_t status = 0;
    emm_ipc_handle handle = {};
};

void send(int socket, const Message &message) {
    CHECK(::send(socket, &message, sizeof message, MSG_NOSIGNAL) == sizeof message);
}

// False: the other process has ended.
bool receive(int socket, Message &message) {
    pollfd waiting = {socket, POLLIN, 0};
    CHECK(poll(&waiting, 1, 30000) == 1);
    return recv(socket, &message, sizeof message, 0) == sizeof message;
}

void expect(int socket, char what) {
    Message message;
    CHECK(receive(socket, message) && message.what == what);
}

int peer_device = 0;
bool copies_after_kill = true;

emm_context *device_context(int device) {
    emm_context *context = nullptr;
    CHECK(emm_context_for_device(device, &context) == EMM_OK);
    auto info = sized<emm_context_info>();
    CHECK(emm_context_get_info(context, &info) == EMM_OK);
    const auto set_current =
        reinterpret_cast<decltype(&cuCtxSetCurrent)>(emm_driver_entry("cuCtxSetCurrent", 12000));
    CHECK(set_current(info.cuda_context) == CUDA_SUCCESS);
    return context;
}

uint64_t driver_calls() {
    // Once: looking it up is a driver call.
    static const auto get = reinterpret_cast<decltype(&simcuda_get_counters)>(
        emm_driver_entry("simcuda_get_counters", 12000));
    auto counters = sized<simcuda_counters>();
    if (get) {
        get(&counters);
    }
    return counters.calls;
}

uint64_t openings() {
    const auto count = reinterpret_cast<decltype(&simcuda_call_count)>(
        emm_driver_entry("simcuda_call_count", 12000));
    return count ? count("cuIpcOpenMemHandle") + count("cuMemAddressReserve") : 1;
}

// --- memory with a part that is exported

struct Exported {
    emm_context *const context;
    emm_memory *memory = nullptr, *view = nullptr;
    emm_ipc_handle handle = {};

    Exported(emm_context *its_context, int value) : context(its_context) {
        CHECK(emm_memory_alloc(context, whole, EMM_STREAM_LEGACY, &memory) == EMM_OK);
        CHECK(emm_memory_view(memory, start, start + part, &view) == EMM_OK);
        fill(context, address_of(memory), whole, value);
        CHECK(emm_memory_export(view, &handle) == EMM_OK);
    }
    void check_rest(int value) const {
        CHECK(holds(context, address_of(memory), start, value));
        CHECK(holds(context, address_of(memory) + start + part, whole - start - part, value));
    }
    void give_up() const {
        CHECK(emm_memory_free(memory) == EMM_E_BUSY);
        CHECK(emm_release_ipc_handle(context, &handle) == EMM_OK);
        CHECK(emm_release_ipc_handle(context, &handle) == EMM_E_NOT_OWNED);
        CHECK(emm_memory_release(view) == EMM_OK);
        CHECK(emm_memory_release(memory) == EMM_OK);
    }
};

// --- handles that are to be refused

void expect_refusal(emm_context *context, const emm_ipc_handle &handle, const char *text) {
    emm_memory *memory = nullptr;
    CHECK(emm_memory_open_ipc(context, &handle, &memory) < EMM_OK);
    CHECK(!memory && std::strstr(emm_last_error()->text, text));
}

template <class Change>
void refuse_changed(emm_context *context, const emm_ipc_handle &handle, const char *text,
                    Change change) {
    expect_refusal(context, changed(handle, change), text);
}

// Noise, and noise between the parts that every handle has.
void refuse_random(emm_context *context, const emm_ipc_handle &good) {
    std::mt19937 random(1);
    for (int i = 0; i < 1000; ++i) {
        emm_ipc_handle bad;
        for (size_t at = 0; at < sizeof bad; ++at) {
            reinterpret_cast<unsigned char *>(&bad)[at] = static_cast<unsigned char>(random());
        }
        expect_refusal(context, bad, "expected");
        refuse_changed(context, bad, "", [&](emm_ipc_handle &noise) {
            noise.magic = good.magic, noise.version = good.version;
            noise.kind = i % 2 ? good.kind : noise.kind;
        });
    }
}

void refuse_damaged(emm_context *context, const emm_ipc_handle &good) {
    // When the first handle of another device comes, the devices are listed, once.
    refuse_changed(context, good, "device", [](emm_ipc_handle &bad) { ++bad.device_uuid[3]; });
    const uint64_t before = driver_calls();
    for (size_t i = 0; i < sizeof good; ++i) {
        emm_ipc_handle bad = good;
        reinterpret_cast<unsigned char *>(&bad)[i] ^= 0xff;
        expect_refusal(context, bad, "expected");
    }
    using Handle = emm_ipc_handle;
    refuse_changed(context, good, "magic", [](Handle &bad) { ++bad.magic; });
    refuse_changed(context, good, "version", [](Handle &bad) { ++bad.version; });
    refuse_changed(context, good, "kind", [](Handle &bad) { bad.kind = EMM_IPC_FABRIC; });
    refuse_changed(context, good, "kind", [](Handle &bad) { bad.kind = 99; });
    refuse_changed(context, good, "part", [](Handle &bad) { bad.offset = ~0ull; });
    refuse_changed(context, good, "part", [](Handle &bad) { bad.size = 0; });
    refuse_changed(context, good, "device", [](Handle &bad) { ++bad.device_uuid[3]; });
    refuse_changed(context, good, "PCI", [](Handle &bad) { ++bad.pci_bus; });
    refuse_changed(context, good, "was released, or the exporter has ended",
                   [](Handle &bad) { ++bad.nonce[7]; });
    refuse_changed(context, good, "was released, or the exporter has ended",
                   [](Handle &bad) { bad.generation += 1000; });
    refuse_random(context, good);
    CHECK(driver_calls() == before);
}

void open_often(emm_context *context, const emm_ipc_handle &handle) {
    const uint64_t before = openings();
    emm_memory *opened[100];
    for (emm_memory *&each : opened) {
        CHECK(emm_memory_open_ipc(context, &handle, &each) == EMM_OK);
        CHECK(address_of(each) == address_of(opened[0]));
    }
    CHECK(openings() - before <= 1);
    emm_ipc_handle none;
    CHECK(emm_memory_export(opened[0], &none) == EMM_E_NOT_SUPPORTED);
    for (emm_memory *each : opened) {
        CHECK(emm_memory_release(each) == EMM_OK);
    }
}

// --- the peer

void serve_import(int socket, emm_context *context, const emm_ipc_handle &handle) {
    emm_memory *opened = nullptr;
    CHECK(emm_memory_open_ipc(context, &handle, &opened) == EMM_OK);
    send(socket, {'o', 0, {}});
    CHECK(holds(context, address_of(opened), part, 7));
    fill(context, address_of(opened), part, 9);
    send(socket, {'u', 0, {}});
    CHECK(emm_memory_release(opened) == EMM_OK);
    send(socket, {'c', 0, {}});
}

int be_peer(int socket, int device) {
    share::situation = ", the peer";
    emm_context *context = device_context(device);
    for (Message message; receive(socket, message);) {
        emm_memory *stale = nullptr;
        switch (message.what) {
        case 'i':
            serve_import(socket, context, message.handle);
            break;
        case 'd':
            open_often(context, message.handle);
            refuse_damaged(context, message.handle);
            send(socket, {'d', 0, {}});
            break;
        case 's':
            send(socket, {'s', emm_memory_open_ipc(context, &message.handle, &stale), {}});
            break;
        case 'e': {
            const Exported exported(context, 5);
            send(socket, {'e', 0, exported.handle});
            if (receive(socket, message)) {
                CHECK(message.what == 'r' && holds(context, address_of(exported.view), part, 6));
                exported.check_rest(5);
                exported.give_up();
                send(socket, {'r', 0, {}});
            }
            break;
        }
        }
    }
    return 0;
}

class Peer {
public:
    Peer() {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        CHECK(fcntl(ends[1], F_SETFD, 0) == 0);
        std::string number = std::to_string(ends[1]), device = std::to_string(peer_device);
        char program[] = "ipc", role[] = "peer";
        char *arguments[] = {program, role, number.data(), device.data(), nullptr};
        CHECK(posix_spawn(&process, "/proc/self/exe", nullptr, nullptr, arguments, environ) == 0);
        close(ends[1]);
        socket = ends[0];
    }
    ~Peer() {
        close(socket);
        int status = 0;
        waitpid(process, &status, 0);
        CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
              (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;
    void kill() {
        killed = true;
        ::kill(process, SIGKILL);
        siginfo_t info;
        waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOWAIT);
    }

    int socket = -1;
    pid_t process = 0;
    bool killed = false;
};

// --- this process's side

void keep_rules(emm_context *context) {
    const Peer peer;
    const Exported exported(context, 7);
    emm_memory *own = nullptr;
    CHECK(emm_memory_open_ipc(context, &exported.handle, &own) == EMM_E_INVALID_VALUE);
    CHECK(std::strstr(emm_last_error()->text, "exported by this process"));
    send(peer.socket, {'d', 0, exported.handle});
    expect(peer.socket, 'd');
    exported.give_up();
    send(peer.socket, {'s', 0, exported.handle});
    Message answer;
    CHECK(receive(peer.socket, answer) && answer.status == EMM_E_NOT_OWNED);
    // The address may be in use again, and exported; the old handle stays invalid.
    const Exported again(context, 7);
    send(peer.socket, {'s', 0, exported.handle});
    CHECK(receive(peer.socket, answer) && answer.status == EMM_E_NOT_OWNED);
    again.give_up();
}

// Steps: 0 exported, 1 opened, 2 in use, 3 closed, 4 no process is killed.
void export_to_victim(emm_context *context, int step, int delay) {
    Peer peer;
    const Exported exported(context, 7);
    send(peer.socket, {'i', 0, exported.handle});
    const char *const answers = "ouc";
    for (int i = 0; i < step && i < 3; ++i) {
        expect(peer.socket, answers[i]);
    }
    if (step < 4) {
        usleep(static_cast<useconds_t>(delay));
        peer.kill();
    }
    exported.check_rest(7);
    CHECK(step < 2 || holds(context, address_of(exported.view), part, 9));
    exported.give_up();
}

void import_from_victim(emm_context *context, int step) {
    if ((step == 1 || step == 2) && !copies_after_kill) {
        step = 3;
    }
    Peer peer;
    Message message;
    send(peer.socket, {'e', 0, {}});
    CHECK(receive(peer.socket, message) && message.what == 'e');
    emm_memory *opened = nullptr;
    if (step == 0) {
        peer.kill();
        CHECK(emm_memory_open_ipc(context, &message.handle, &opened) == EMM_E_NOT_OWNED);
        return;
    }
    CHECK(emm_memory_open_ipc(context, &message.handle, &opened) == EMM_OK);
    if (step == 1) {
        peer.kill();
    }
    CHECK(holds(context, address_of(opened), part, 5));
    fill(context, address_of(opened), part, 6);
    if (step == 2) {
        peer.kill();
    }
    CHECK(holds(context, address_of(opened), part, 6));
    CHECK(emm_memory_release(opened) == EMM_OK);
    if (step == 4) {
        send(peer.socket, {'r', 0, {}});
        expect(peer.socket, 'r');
    } else if (step == 3) {
        peer.kill();
    }
    CHECK(emm_memory_open_ipc(context, &message.handle, &opened) == EMM_E_NOT_OWNED);
}

// Whether the peer's device and that of this process reach each other's memory.
bool reaches(int device) {
    const auto ask = reinterpret_cast<decltype(&cuDeviceCanAccessPeer)>(
        emm_driver_entry("cuDeviceCanAccessPeer", 12000));
    int there = device == 0, back = there;
    const bool asked = device == 0 || (ask(&there, 0, device) == CUDA_SUCCESS &&
                                       ask(&back, device, 0) == CUDA_SUCCESS);
    if (!asked || !there || !back) {
        std::printf("skipped: devices 0 and %d are not both there, or do not reach each other\n",
                    device);
    }
    return asked && there && back;
}

void play(emm_context *context, int rounds) {
    std::mt19937 random(20240521);
    uint64_t descriptors = 0;
    for (int round = 0; round < rounds; ++round) {
        const int step = static_cast<int>(random() % 5);
        const bool exports = random() % 2 != 0;
        share::situation = ", round " + std::to_string(round) + ", step " + std::to_string(step) +
                           (exports ? " of the importer's" : " of the exporter's");
        if (exports) {
            export_to_victim(context, step, static_cast<int>(random() % 2000));
        } else {
            import_from_victim(context, step);
        }
        CHECK(live_bytes(context) == 0);
        if (round == 9) {
            descriptors = open_descriptors();
        }
    }
    // The simulator keeps a descriptor for each exporter's memory file.
    CHECK(driver_calls() != 0 || rounds < 10 || open_descriptors() == descriptors);
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc == 4 && std::strcmp(argv[1], "peer") == 0) {
        return be_peer(std::atoi(argv[2]), std::atoi(argv[3]));
    }
    share::situation = ", before the rounds";
    peer_device = argc > 2 ? std::atoi(argv[2]) : 0;
    if (argc > 3) {
        if (std::strcmp(argv[3], "no-copy-after-kill") != 0) {
            std::fprintf(stderr, "ipc: expected no-copy-after-kill, found %s\n", argv[3]);
            return 2;
        }
        copies_after_kill = false;
        std::puts("skipped: copies from what a killed process has exported");
    }
    emm_context *context = device_context(0);
    if (!reaches(peer_device)) {
        return 77;
    }
    keep_rules(context);
    play(context, argc > 1 ? std::atoi(argv[1]) : 20);
    return 0;
}
