#include "parts.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace share;

// --- calls of the C library on the way, for a part that counts them

namespace {

std::atomic<bool> has_no_sockets{false}, may_not_connect{false}, has_no_proc{false},
    has_no_cookie{false};
std::atomic<uint64_t> repeated_random{0}; // is given out once
std::atomic<uint64_t> waits{0};           // of the serving thread

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
    return static_cast<int>(attacked::kernel_poll(all, count, timeout));
}

[[gnu::visibility("default")]] int epoll_wait(int epoll, epoll_event *events, int most,
                                              int timeout) {
    count_wait();
    return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, most, timeout, nullptr, 0));
}
}

namespace attacked {

// --- the steps of a part

namespace {

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

// The report of the first open that failed, and how many failed.
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

} // namespace

void use_memory(int socket) {
    Holdings held;
    held.context = context_on(0);
    for (Order order; get(socket, order);) {
        put(socket, obey(held, socket, order));
    }
    close_all(held);
}

// --- the process

Part::Part(const std::function<void(int)> &what) {
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

Part::~Part() {
    close(socket);
    int status = 0;
    CHECK(waitpid(process_, &status, 0) == process_);
    CHECK(killed_ ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Told Part::tell(const Order &order) const {
    put(socket, order);
    return hear();
}

Told Part::hear() const {
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

void Part::kill() {
    killed_ = true;
    ::kill(process_, SIGKILL);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOWAIT);
}

Told hand(const Part &part, const emm_ipc_handle &handle) {
    put(part.socket, handle);
    return part.hear();
}

} // namespace attacked
