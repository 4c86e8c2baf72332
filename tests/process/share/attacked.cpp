// Exporters and importers that others attack, crowd or kill, on the simulated driver or a real one:
// attacked CASE...
//
// EMM_PLUGIN says whose memory. This process has no driver, so that it may fork the parts of each
// case; what a part is told to do stands beside `Order`. A case that the machine or the plugin
// cannot serve is skipped by name.
#include "ipc/wire.h"
#include "pair.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <poll.h>
#include <random>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace share;
using emm::ipc::parts_at_once;
using emm::ipc::Reply;
using Asked = emm::ipc::Request;

// --- what the C library is asked for on the way, for a part that says so

namespace {

std::atomic<bool> has_no_sockets{false}, may_not_connect{false}, has_no_proc{false},
    has_no_cookie{false};
std::atomic<uint64_t> repeated_random{0}; // is given out once
std::atomic<uint64_t> waits{0};           // of the thread that serves

void count_wait() {
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    waits += std::strcmp(name, "emm-ipc") == 0;
}

} // namespace

extern "C" {

[[gnu::visibility("default")]] int socket(int domain, int type, int protocol) noexcept {
    if (has_no_sockets) {
        errno = EPERM;
        return -1;
    }
    return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
}

[[gnu::visibility("default")]] int connect(int socket, const sockaddr *name, socklen_t length) {
    if (may_not_connect) {
        errno = EACCES;
        return -1;
    }
    return static_cast<int>(syscall(SYS_connect, socket, name, length));
}

[[gnu::visibility("default")]] int stat(const char *path, struct stat *it) noexcept {
    if (has_no_proc && std::strncmp(path, "/proc/self/ns/", 14) == 0) {
        errno = ENOENT;
        return -1;
    }
    return fstatat(AT_FDCWD, path, it, 0);
}

[[gnu::visibility("default")]] int getsockopt(int socket, int level, int option, void *value,
                                              socklen_t *length) noexcept {
    constexpr int so_netns_cookie = 71;
    if (has_no_cookie && level == SOL_SOCKET && option == so_netns_cookie) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return static_cast<int>(syscall(SYS_getsockopt, socket, level, option, value, length));
}

[[gnu::visibility("default")]] ssize_t getrandom(void *bytes, size_t size, unsigned flags) {
    if (size == sizeof(uint64_t)) {
        if (const uint64_t again = repeated_random.exchange(0)) {
            std::memcpy(bytes, &again, size);
            return static_cast<ssize_t>(size);
        }
    }
    return syscall(SYS_getrandom, bytes, size, flags);
}

[[gnu::visibility("default")]] int poll(pollfd *all, nfds_t count, int timeout) {
    count_wait();
    return static_cast<int>(syscall(SYS_poll, all, count, timeout));
}

[[gnu::visibility("default")]] int epoll_wait(int epoll, epoll_event *events, int most,
                                              int timeout) {
    count_wait();
    return static_cast<int>(syscall(SYS_epoll_wait, epoll, events, most, timeout));
}
}

namespace {

constexpr size_t KiB = 1 << 10, MiB = KiB << 10;
constexpr uint64_t TiB = uint64_t(1) << 40;
constexpr uid_t other_user = 65534;

// Why a case is skipped; empty: it went through.
using Outcome = std::string;

// --- the parts

// 'a' allocate `size` bytes anew; 'e' export `size` bytes at `at` of them; 'r' release the export;
// 'f' release that memory; 'o' open, and keep it open; 'm' open at once what comes behind, `size`
// times; 'c' close all; 'k' change what the part has, by `which` and `at`; 'd' open descriptors;
// 'w' how often the serving thread has waited; 'q' open and tell when it begins
struct Order {
    char what = 0;
    char which = 0;
    uint64_t at = 0, size = 0;
    emm_ipc_handle handle = {};
};

struct Told {
    int32_t status = 0;
    uint64_t number = 0;
    emm_ipc_handle handle = {};
    char text[400] = "";
};

template <class Type> void put(int socket, const Type &it) {
    CHECK(send(socket, &it, sizeof it, MSG_NOSIGNAL) == sizeof it);
}

// False: the other side has ended.
template <class Type> bool get(int socket, Type &it) {
    pollfd waiting = {socket, POLLIN, 0};
    CHECK(::poll(&waiting, 1, 120'000) == 1);
    return recv(socket, &it, sizeof it, 0) == sizeof it;
}

struct Holdings {
    emm_context *context = nullptr;
    emm_memory *memory = nullptr;
    std::vector<emm_memory *> views, opened;
};

Told told(emm_status status) {
    Told answer;
    answer.status = status;
    std::snprintf(answer.text, sizeof answer.text, "%s",
                  status < EMM_OK ? emm_last_error()->text : "");
    return answer;
}

Told export_part(Holdings &held, const Order &order) {
    emm_memory *view = nullptr;
    CHECK(emm_memory_view(held.memory, order.at, order.at + order.size, &view) == EMM_OK);
    held.views.push_back(view);
    emm_ipc_handle handle = {};
    Told answer = told(emm_memory_export(view, &handle));
    answer.handle = handle;
    return answer;
}

Told open_one(Holdings &held, const emm_ipc_handle &handle) {
    emm_memory *memory = nullptr;
    const Told answer = told(emm_memory_open_ipc(held.context, &handle, &memory));
    if (answer.status == EMM_OK) {
        held.opened.push_back(memory);
    }
    return answer;
}

void close_all(Holdings &held) {
    for (emm_memory *each : held.opened) {
        CHECK(emm_memory_release(each) == EMM_OK);
    }
    held.opened.clear();
}

// What the first of those that failed has to say, and how many there were.
Told open_at_once(Holdings &held, int socket, uint64_t count) {
    std::vector<emm_ipc_handle> handles(count);
    for (emm_ipc_handle &each : handles) {
        CHECK(get(socket, each));
    }
    std::vector<Told> answers(count);
    std::vector<emm_memory *> opened(count);
    std::vector<std::thread> threads;
    std::atomic<uint64_t> ready{0};
    for (uint64_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
            for (++ready; ready < count;) {
                std::this_thread::yield();
            }
            answers[i] = told(emm_memory_open_ipc(held.context, &handles[i], &opened[i]));
        });
    }
    Told first;
    for (uint64_t i = 0; i < count; ++i) {
        threads[i].join();
        if (answers[i].status == EMM_OK) {
            held.opened.push_back(opened[i]);
            continue;
        }
        const uint64_t failed = first.number + 1;
        first = first.number == 0 ? answers[i] : first;
        first.number = failed;
    }
    return first;
}

void change(const Order &order) {
    switch (order.which) {
    case 's':
        has_no_sockets = order.at != 0;
        break;
    case 'o':
        may_not_connect = order.at != 0;
        break;
    case 'p':
        has_no_proc = order.at != 0;
        break;
    case 'c':
        has_no_cookie = order.at != 0;
        break;
    case 'r':
        repeated_random = order.at;
        break;
    case 'n': {
        rlimit limit = {};
        CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
        limit.rlim_cur = std::min<rlim_t>(order.at, limit.rlim_max);
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        break;
    }
    }
}

Told obey(Holdings &held, int socket, const Order &order) {
    Told answer;
    switch (order.what) {
    case 'a':
        CHECK(emm_memory_alloc(held.context, order.size, EMM_STREAM_LEGACY, &held.memory) ==
              EMM_OK);
        answer.number = address_of(held.memory);
        return answer;
    case 'e':
        return export_part(held, order);
    case 'r':
        return told(emm_release_ipc_handle(held.context, &order.handle));
    case 'f':
        for (emm_memory *view : held.views) {
            CHECK(emm_memory_release(view) == EMM_OK);
        }
        held.views.clear();
        CHECK(emm_memory_release(held.memory) == EMM_OK);
        return answer;
    case 'o':
        return open_one(held, order.handle);
    case 'q':
        put(socket, answer);
        return open_one(held, order.handle);
    case 'm':
        return open_at_once(held, socket, order.size);
    case 'c':
        close_all(held);
        return answer;
    case 'k':
        change(order);
        return answer;
    case 'd':
        answer.number = open_descriptors();
        return answer;
    case 'w':
        answer.number = waits;
        return answer;
    }
    return answer;
}

// Exports and imports, as it is told.
void use_memory(int socket) {
    Holdings held;
    held.context = context_on(0);
    for (Order order; get(socket, order);) {
        put(socket, obey(held, socket, order));
    }
    close_all(held);
}

// Another process, from before there was a driver.
class Part {
public:
    explicit Part(const std::function<void(int)> &what = use_memory) {
        int ends[2];
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        process_ = fork();
        CHECK(process_ >= 0);
        if (process_ == 0) {
            close(ends[0]);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            what(ends[1]);
            std::_Exit(0);
        }
        close(ends[1]);
        socket = ends[0];
    }
    ~Part() {
        close(socket);
        int status = 0;
        CHECK(waitpid(process_, &status, 0) == process_);
        CHECK(killed_ ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    Part(const Part &) = delete;
    Part &operator=(const Part &) = delete;

    Told tell(const Order &order) const {
        put(socket, order);
        return hear();
    }
    Told hear() const {
        Told answer;
        if (!get(socket, answer)) {
            int status = 0;
            waitpid(process_, &status, 0);
            std::fprintf(stderr, "a part has ended: exit status %d, signal %d\n",
                         WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                         WIFSIGNALED(status) ? WTERMSIG(status) : 0);
            std::_Exit(1);
        }
        return answer;
    }
    void allocate(size_t size) const { tell({'a', 0, 0, size, {}}); }
    Told share(uint64_t at, size_t size) const { return tell({'e', 0, at, size, {}}); }
    Told release(const emm_ipc_handle &handle) const { return tell({'r', 0, 0, 0, handle}); }
    Told open(const emm_ipc_handle &handle) const { return tell({'o', 0, 0, 0, handle}); }
    void close_opened() const { tell({'c', 0, 0, 0, {}}); }
    void set(char which, uint64_t value) const { tell({'k', which, value, 0, {}}); }
    uint64_t descriptors() const { return tell({'d', 0, 0, 0, {}}).number; }
    void kill() {
        killed_ = true;
        ::kill(process_, SIGKILL);
        siginfo_t info;
        waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
    }

    int socket = -1;

private:
    pid_t process_ = 0;
    bool killed_ = false;
};

// A part that takes handles and says when it has done with one.
template <class What> auto for_each_handle(What what) {
    return [what](int socket) {
        for (emm_ipc_handle handle; get(socket, handle);) {
            Told answer;
            what(handle, answer);
            put(socket, answer);
        }
    };
}

Told hand(const Part &part, const emm_ipc_handle &handle) {
    put(part.socket, handle);
    return part.hear();
}

// --- sockets, as any program can use them

std::string prefix_of(const emm_ipc_handle &handle) {
    std::string text = "emm-ipc-";
    for (size_t i = 0; i < 8; ++i) {
        char two[4];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(handle.nonce[i]));
        text += two;
    }
    return text;
}

// Without asking a driver, which this process does not have.
bool simulates() {
    const char *const driver = std::getenv("EMM_DRIVER");
    return driver && std::strstr(driver, "sim");
}

// What the exporter listens at, as every user can read it.
std::vector<std::string> names_of(const emm_ipc_handle &handle) {
    std::vector<std::string> names;
    std::ifstream all("/proc/net/unix");
    for (std::string line; std::getline(all, line);) {
        const size_t at = line.find('@' + prefix_of(handle));
        if (at != line.npos && line.find(" 00010000 ") != line.npos) { // it listens
            names.push_back(line.substr(at + 1));
        }
    }
    return names;
}

sockaddr_un address_for(const std::string &name, socklen_t &ret_length) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    ret_length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

int listen_at(const std::string &name, int backlog) {
    socklen_t length = 0;
    const sockaddr_un address = address_for(name, length);
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(made, reinterpret_cast<const sockaddr *>(&address), length) != 0 ||
        listen(made, backlog) != 0) {
        close(made);
        return -1;
    }
    return made;
}

// -1: there is no room just now.
int connect_at(const std::string &name) {
    socklen_t length = 0;
    const sockaddr_un address = address_for(name, length);
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 && connect(made, reinterpret_cast<const sockaddr *>(&address), length) != 0) {
        close(made);
        return -1;
    }
    return made;
}

void become_other_user() {
    CHECK(setresgid(other_user, other_user, other_user) == 0 &&
          setresuid(other_user, other_user, other_user) == 0);
}

const char *const needs_root = "only root can become another user";

uint32_t checksum_of(const emm_ipc_handle &handle) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(&handle);
    uint32_t sum = ~0u;
    for (size_t i = 0; i < offsetof(emm_ipc_handle, checksum); ++i) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; ++bit) {
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        }
    }
    return ~sum;
}

template <class Change> emm_ipc_handle changed(emm_ipc_handle handle, Change change) {
    change(handle);
    handle.checksum = checksum_of(handle);
    return handle;
}

// --- cases

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

// With a queue that is full: the exporter's while the export lives, and one of its name afterwards.
Outcome revive_ended() {
    if (geteuid() != 0) {
        return needs_root;
    }
    const Part stranger([](int socket) {
        become_other_user();
        std::vector<std::string> names;
        for_each_handle([&names](const emm_ipc_handle &handle, Told &) {
            const bool lives = names.empty();
            names = lives ? names_of(handle) : names;
            for (const std::string &name : names) {
                CHECK(lives || listen_at(name, 0) >= 0);
                for (int i = 0; i < 200 && connect_at(name) >= 0; ++i) {
                }
            }
        })(socket);
    });
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    hand(stranger, shared.handle);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    importer.close_opened();
    CHECK(exporter.release(shared.handle).status == EMM_OK);
    hand(stranger, shared.handle);
    const Told refused = importer.open(shared.handle);
    CHECK(refused.status == EMM_E_BUSY || refused.status == EMM_E_NOT_OWNED ||
          refused.status == EMM_E_INVALID_VALUE);
    return "";
}

// Views of one allocation, each an export of its own; 0: refused.
std::vector<emm_ipc_handle> share_views(const Part &exporter, size_t size, size_t count,
                                        Outcome &ret_refused) {
    exporter.allocate(size);
    std::vector<emm_ipc_handle> handles;
    for (size_t i = 0; i < count; ++i) {
        const Told shared = exporter.share(i * 4 * KiB, size - i * 4 * KiB);
        if (shared.status != EMM_OK) {
            ret_refused = shared.text;
            return {};
        }
        handles.push_back(shared.handle);
    }
    return handles;
}

void open_at_once(const Part &importer, const std::vector<emm_ipc_handle> &handles) {
    put(importer.socket, Order{'m', 0, 0, handles.size(), {}});
    for (const emm_ipc_handle &each : handles) {
        put(importer.socket, each);
    }
    const Told failed = importer.hear();
    if (failed.number != 0) {
        std::fprintf(stderr, "%llu of %zu importers failed, the first with %d: %s\n",
                     static_cast<unsigned long long>(failed.number), handles.size(), failed.status,
                     failed.text);
    }
    CHECK(failed.number == 0);
}

// Of pages, each takes eight requests.
Outcome import_in_a_crowd() {
    const Part exporter, importer;
    Outcome refused;
    const auto handles = share_views(exporter, 1024 * MiB, 48, refused);
    if (!refused.empty()) {
        return refused;
    }
    open_at_once(importer, handles);
    importer.close_opened();
    return "";
}

// Each connection that is hung up on comes again, until the part is ended.
void crowd(int socket, size_t count, bool asks) {
    emm_ipc_handle handle;
    if (!get(socket, handle)) {
        return;
    }
    const rlimit enough = {count + 100, count + 100};
    CHECK(setrlimit(RLIMIT_NOFILE, &enough) == 0);
    const std::vector<std::string> names = names_of(handle);
    Asked request = {};
    request.magic = emm::ipc::wire_magic;
    request.most = parts_at_once;
    std::memcpy(request.nonce, handle.nonce, sizeof request.nonce);
    request.generation = handle.generation;
    std::memcpy(request.handle, handle.handle, sizeof request.handle);
    std::vector<pollfd> all(count, pollfd{-1, POLLIN | POLLRDHUP, 0});
    all.push_back({socket, POLLIN, 0});
    for (bool reported = false; (all[count].revents & (POLLIN | POLLHUP)) == 0; reported = true) {
        for (size_t i = 0; i < count; ++i) {
            if (all[i].fd >= 0 && (all[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
                close(all[i].fd);
                all[i].fd = -1;
            }
            for (size_t k = 0; all[i].fd < 0 && k < names.size(); ++k) {
                all[i].fd = connect_at(names[(i + k) % names.size()]);
            }
            for (int k = 0; asks && all[i].fd >= 0 && k < 10; ++k) {
                send(all[i].fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
        if (!reported) {
            put(socket, Told{});
        }
        CHECK(syscall(SYS_poll, all.data(), all.size(), asks ? 0 : 1) >= 0);
    }
}

Outcome import_beside(size_t count, bool asks) {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < count + 100) {
        return "a thousand sockets are more than this process may have";
    }
    const Part beside([=](int socket) { crowd(socket, count, asks); });
    const Part exporter, importer;
    Outcome refused;
    const auto handles = share_views(exporter, 260 * MiB, 30, refused);
    if (!refused.empty()) {
        return refused;
    }
    if (names_of(handles[0]).empty()) {
        return "/proc/net/unix does not say what there is to connect to";
    }
    hand(beside, handles[0]);
    open_at_once(importer, handles);
    importer.close_opened();
    return "";
}

Outcome import_beside_silent() {
    return import_beside(1000, false);
}

Outcome import_beside_impatient() {
    return import_beside(64, true);
}

Outcome import_from_killed() {
    std::mt19937 random(5);
    const Part importer;
    const int rounds = simulates() ? 60 : 5; // each makes a context
    for (int round = 0; round < rounds; ++round) {
        Part exporter;
        exporter.allocate(512 * MiB);
        const Told shared = exporter.share(0, 512 * MiB);
        if (shared.status != EMM_OK) {
            exporter.tell({'f', 0, 0, 0, {}});
            return shared.text;
        }
        put(importer.socket, Order{'q', 0, 0, 0, shared.handle});
        importer.hear();
        usleep(static_cast<useconds_t>(random() % 8000));
        exporter.kill();
        const Told opened = importer.hear();
        if (opened.status != EMM_OK && opened.status != EMM_E_NOT_OWNED) {
            std::fprintf(stderr, "round %d: %d: %s\n", round, opened.status, opened.text);
        }
        CHECK(opened.status == EMM_OK || opened.status == EMM_E_NOT_OWNED);
        importer.close_opened();
    }
    return "";
}

// --- an exporter that is none of emm's

enum class Lie { empty, part_of, no_magic, no_result, fewer, junk, all };

void answer_with(int peer, Lie lie, uint64_t bytes) {
    Reply reply = {};
    reply.magic = lie == Lie::no_magic ? 1 : emm::ipc::wire_magic;
    reply.status = lie == Lie::no_result ? -12345 : EMM_OK;
    reply.driver_result = lie == Lie::no_result ? INT32_MIN : 0;
    reply.count = lie == Lie::fewer ? 1 : parts_at_once;
    reply.total = 1;
    reply.bytes = bytes;
    int sent[parts_at_once];
    std::fill(std::begin(sent), std::end(sent), peer);
    union {
        cmsghdr header;
        char bytes[CMSG_SPACE(sizeof sent)];
    } control = {};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof sent);
    std::memcpy(CMSG_DATA(&control.header), sent, sizeof sent);
    iovec part = {&reply, lie == Lie::empty ? 0 : lie == Lie::part_of ? 8 : sizeof reply};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    sendmsg(peer, &message, MSG_NOSIGNAL);
}

// Listens at every name of an exporter that has ended, and answers each request with one lie.
void lie_about(int socket) {
    emm_ipc_handle handle;
    if (!get(socket, handle)) {
        return;
    }
    const std::vector<std::string> names = names_of(handle);
    put(socket, Told{});
    Told lie;
    CHECK(get(socket, lie)); // which, once the exporter has ended
    std::vector<pollfd> all = {{socket, POLLIN, 0}};
    for (const std::string &name : names) {
        all.push_back({listen_at(name, 100), POLLIN, 0});
        CHECK(all.back().fd >= 0);
    }
    put(socket, Told{});
    while (syscall(SYS_poll, all.data(), all.size(), -1) > 0 && all[0].revents == 0) {
        for (size_t i = 1; i < all.size(); ++i) {
            if (all[i].revents == 0) {
                continue;
            }
            const int peer = accept4(all[i].fd, nullptr, nullptr, SOCK_CLOEXEC);
            Asked request;
            if (recv(peer, &request, sizeof request, 0) > 0) {
                answer_with(peer, static_cast<Lie>(lie.number), handle.exported_size);
            }
            close(peer);
        }
    }
}

Outcome import_lies() {
    constexpr int openings = 20;
    const Part importer;
    for (int lie = 0; lie < static_cast<int>(Lie::all); ++lie) {
        const Part liar(lie_about);
        emm_ipc_handle handle;
        {
            const Part exporter;
            exporter.allocate(MiB);
            const Told shared = exporter.share(0, 4 * KiB);
            if (shared.status != EMM_OK || shared.handle.kind == EMM_IPC_LEGACY) {
                return shared.status != EMM_OK ? shared.text : "no exporter of these is asked";
            }
            handle = shared.handle;
            hand(liar, handle);
        }
        Told which;
        which.number = static_cast<uint64_t>(lie);
        put(liar.socket, which);
        liar.hear();
        CHECK(importer.open(handle).status < EMM_OK); // the driver may keep what it needs once
        const uint64_t before = importer.descriptors();
        for (int i = 0; i < openings; ++i) {
            const Told refused = importer.open(handle);
            CHECK(refused.status < EMM_OK && std::strlen(refused.text) > 0);
        }
        if (importer.descriptors() > before) {
            std::fprintf(stderr, "lie %d: %llu descriptors more\n", lie,
                         static_cast<unsigned long long>(importer.descriptors() - before));
        }
        CHECK(importer.descriptors() <= before);
    }
    return "";
}

Outcome claim_too_much() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    const auto whole = changed(shared.handle, [](emm_ipc_handle &handle) {
        handle.exported_size = handle.size = TiB;
        handle.offset = 0;
    });
    const auto beyond = changed(shared.handle, [](emm_ipc_handle &handle) {
        handle.exported_size = TiB;
        handle.offset = TiB - handle.size;
    });
    for (int round = 0; round < 2; ++round) { // the second beside an opening that is right
        for (const emm_ipc_handle &bad : {whole, beyond}) {
            const Told refused = importer.open(bad);
            CHECK(refused.status == EMM_E_INVALID_VALUE);
        }
        CHECK(importer.open(shared.handle).status == EMM_OK);
    }
    return "";
}

// More than a process can note; its exporter is asked before any memory is.
Outcome claim_too_many_parts() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK || shared.handle.kind != EMM_IPC_FILE_DESCRIPTOR) {
        return shared.status != EMM_OK ? shared.text : "a handle of this kind has no parts";
    }
    const auto bad = changed(shared.handle, [](emm_ipc_handle &handle) {
        constexpr uint64_t parts = uint64_t(1) << 48;
        handle.exported_size = parts * 4096;
        std::memcpy(handle.handle + 32, &parts, sizeof parts);
    });
    CHECK(importer.open(bad).status == EMM_E_NOT_OWNED);
    CHECK(importer.open(shared.handle).status == EMM_OK);
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

// --- what a process may lack

Outcome lack_proc() {
    for (const bool has_cookie : {true, false}) {
        const Part exporter, importer;
        for (const Part *part : {&exporter, &importer}) {
            part->set('p', 1);
            part->set('c', !has_cookie);
        }
        exporter.allocate(4 * MiB);
        const Told shared = exporter.share(0, 4 * MiB);
        if (shared.status != EMM_OK) {
            return shared.text;
        }
        CHECK(importer.open(shared.handle).status == EMM_OK);
        importer.close_opened();
        CHECK(exporter.release(shared.handle).status == EMM_OK);
        CHECK(importer.open(shared.handle).status == EMM_E_NOT_OWNED);
    }
    return "";
}

Outcome lack_sockets() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    exporter.set('s', 1);
    const Told refused = exporter.share(0, 4 * MiB);
    if (refused.status == EMM_E_NOT_SUPPORTED) {
        return refused.text;
    }
    CHECK(refused.status == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(std::strstr(refused.text, "socket") && std::strstr(refused.text, std::strerror(EPERM)));
    exporter.set('s', 0);
    const Told shared = exporter.share(0, 4 * MiB);
    CHECK(shared.status == EMM_OK);
    importer.set('s', 1);
    const Told unasked = importer.open(shared.handle);
    CHECK(unasked.status == EMM_E_OUT_OF_HOST_MEMORY && std::strstr(unasked.text, "socket"));
    importer.set('s', 0);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

Outcome lack_permission() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    importer.set('o', 1);
    const Told refused = importer.open(shared.handle);
    CHECK(refused.status == EMM_E_NOT_SUPPORTED);
    CHECK(std::strstr(refused.text, std::strerror(EACCES)));
    importer.set('o', 0);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

// A limit below what is open: nothing can be accepted, and the thread that serves waits for that.
Outcome lack_descriptors() {
    const Part silent([](int socket) { crowd(socket, 40, false); });
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    hand(silent, shared.handle);
    exporter.set('n', 4);
    const uint64_t before = exporter.tell({'w', 0, 0, 0, {}}).number;
    usleep(500'000);
    const uint64_t after = exporter.tell({'w', 0, 0, 0, {}}).number;
    exporter.set('n', 1 << 10);
    std::printf("   it waited %llu times in half a second\n",
                static_cast<unsigned long long>(after - before));
    CHECK(after - before < 1000); // a thread that spins comes to a hundred thousand
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

// Users that a user namespace does not map are all the same one there.
Outcome be_another_nobody() {
    if (geteuid() != 0 || !simulates()) {
        return geteuid() != 0 ? needs_root : "a real driver may not start in a user namespace";
    }
    const Part stranger([](int socket) {
        become_other_user();
        for_each_handle([](const emm_ipc_handle &handle, Told &answer) {
            Asked request = {};
            request.magic = emm::ipc::wire_magic;
            request.most = parts_at_once;
            std::memcpy(request.nonce, handle.nonce, sizeof request.nonce);
            request.generation = handle.generation;
            std::memcpy(request.handle, handle.handle, sizeof request.handle);
            for (const std::string &name : names_of(handle)) {
                const int asking = connect_at(name);
                send(asking, &request, sizeof request, MSG_NOSIGNAL);
                pollfd waiting = {asking, POLLIN, 0};
                CHECK(syscall(SYS_poll, &waiting, 1, 5000) >= 0);
                Reply reply;
                answer.number += recv(asking, &reply, sizeof reply, MSG_DONTWAIT) > 0;
                close(asking);
            }
        })(socket);
    });
    bool entered = false;
    const Part exporter([&](int socket) {
        entered = unshare(CLONE_NEWUSER) == 0;
        put(socket, Told{entered ? EMM_OK : EMM_E_NOT_SUPPORTED, 0, {}, ""});
        if (entered) {
            CHECK(geteuid() == other_user);
            use_memory(socket);
        }
    });
    if (exporter.hear().status != EMM_OK) {
        return "a user namespace cannot be had";
    }
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK || shared.handle.kind == EMM_IPC_LEGACY) {
        return shared.status != EMM_OK ? shared.text : "nothing of this kind is handed out";
    }
    CHECK(hand(stranger, shared.handle).number == 0);
    return "";
}

struct Case {
    const char *name;
    Outcome (*run)();
};

const Case cases[] = {
    {"next-name", guess_next_name},
    {"taken-name", take_another_name},
    {"ended-name", revive_ended},
    {"crowd", import_in_a_crowd},
    {"silent", import_beside_silent},
    {"impatient", import_beside_impatient},
    {"killed", import_from_killed},
    {"lies", import_lies},
    {"sizes", claim_too_much},
    {"parts", claim_too_many_parts},
    {"freed-name", open_freed_name},
    {"no-proc", lack_proc},
    {"no-sockets", lack_sockets},
    {"no-permission", lack_permission},
    {"no-descriptors", lack_descriptors},
    {"unmapped-user", be_another_nobody},
};

} // namespace

int main(int argc, char *argv[]) {
    int passed = 0;
    for (const Case &each : cases) {
        const bool named = std::any_of(argv + 1, argv + argc, [&](const char *name) {
            return std::strcmp(name, each.name) == 0;
        });
        if (argc > 1 && !named) {
            continue;
        }
        std::printf("%s ...\n", each.name);
        std::fflush(stdout);
        const Outcome skipped = each.run();
        passed += skipped.empty();
        std::printf("%s %s%s\n", each.name,
                    skipped.empty() ? "passed" : "skipped: ", skipped.c_str());
    }
    return passed > 0 ? 0 : 77;
}
