// The processes of a case. The first has no driver, so that it may fork the others, its parts.
#pragma once

#include "../share/pair.h"

#include <cstdint>
#include <functional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace attacked {

constexpr size_t KiB = 1 << 10, MiB = KiB << 10;
constexpr uid_t other_user = 65534;

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

// The kernel's poll, which `poll` here counts and this does not. The kernel of aarch64 has ppoll
// only.
inline long kernel_poll(pollfd *all, size_t count, int milliseconds) {
    const timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
    return syscall(SYS_ppoll, all, count, milliseconds < 0 ? nullptr : &limit, nullptr, 0);
}

// Exports and imports, as ordered.
void use_memory(int socket);

// Another process, forked before there was a driver.
class Part {
public:
    explicit Part(const std::function<void(int)> &what = use_memory);
    ~Part();
    Part(const Part &) = delete;
    Part &operator=(const Part &) = delete;

    Told tell(const Order &order) const;
    Told hear() const;
    void allocate(size_t size) const { tell({'a', 0, 0, size, {}}); }
    Told share(uint64_t at, size_t size) const { return tell({'e', 0, at, size, {}}); }
    Told release(const emm_ipc_handle &handle) const { return tell({'r', 0, 0, 0, handle}); }
    Told open(const emm_ipc_handle &handle) const { return tell({'o', 0, 0, 0, handle}); }
    void close_opened() const { tell({'c', 0, 0, 0, {}}); }
    void set(char which, uint64_t value) const { tell({'k', which, value, 0, {}}); }
    uint64_t descriptors() const { return tell({'d', 0, 0, 0, {}}).number; }
    void kill();

    int socket = -1;

private:
    pid_t process_ = 0;
    bool killed_ = false;
};

// A part that takes handles and reports each one when done.
template <class What> auto for_each_handle(What what) {
    return [what](int socket) {
        for (emm_ipc_handle handle; get(socket, handle);) {
            Told answer;
            what(handle, answer);
            put(socket, answer);
        }
    };
}

Told hand(const Part &part, const emm_ipc_handle &handle);

} // namespace attacked
