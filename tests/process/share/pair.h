// Two processes that share memory: the program and, as its peer, itself once more. The peer obeys
// requests, and numbers name the memory that it has open.
#pragma once

#include "../../parts/sized.h"

#include <emm/emm.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

namespace share {

#define CHECK(condition)                                                                           \
    if (!(condition)) {                                                                            \
        std::fprintf(stderr, "%d%s: %s:%d: not so: %s (%s)\n", getpid(), share::situation.c_str(), \
                     __FILE__, __LINE__, #condition, emm_last_error()->text);                      \
        std::_Exit(1);                                                                             \
    }

// A failed check names it behind the process. It begins with a comma; empty: there is nothing to
// name.
inline std::string situation;

// 'o' open as `slot`, in the context `which` of its device; 'N' the same by its name; 'h' holds
// `value`?; 'f' fill with `value`; 'c' close; 'k' close beside a capture, which stays valid?; 'n'
// how often the driver was asked to open; 's' what the process holds; 'd'
// destroy the context
struct Request {
    char what = 0;
    uint32_t slot = 0;
    uint32_t which = 0;
    int32_t value = 0;
    emm_ipc_handle handle = {};
    emm_ipc_name name = {};
};

struct Answer {
    int32_t status = 0;
    uint32_t kind = 0;
    uint64_t number = 0; // 'o' the address, 'n' the count, 's' descriptors, and live bytes
    uint64_t threads = 0;
    char text[200] = "";
};

// --- both sides
emm_context *context_on(int32_t device, uint32_t which = 0); // 0: primary; else a further one
emm_deviceptr address_of(emm_memory *memory);
uint32_t kind_of(emm_memory *memory);
// Fills the first, the middle and the last megabyte: the bytes between could not be mistaken for
// others.
void fill(emm_context *context, emm_deviceptr address, size_t size, int value);
bool holds(emm_context *context, emm_deviceptr address, size_t size, int value);
uint64_t open_descriptors();
uint64_t live_threads();
uint64_t live_bytes(emm_context *context);
uint32_t checksum_of(const emm_ipc_handle &handle);
// With a checksum that is right.
template <class Change> emm_ipc_handle changed(emm_ipc_handle handle, Change change) {
    change(handle);
    handle.checksum = checksum_of(handle);
    return handle;
}
bool is_simulated();
int device_count();
bool can_reach(int from, int to);

int be_peer(int socket, int device);

class Peer {
public:
    // `environment`: NAME=value, beside this process's own.
    explicit Peer(int device = 0, std::vector<std::string> environment = {});
    ~Peer();
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    Answer ask(const Request &request) const;
    Answer open(uint32_t slot, const emm_ipc_handle &handle, uint32_t which = 0) const {
        return ask({'o', slot, which, 0, handle});
    }
    Answer open_named(uint32_t slot, const emm_ipc_name &name) const {
        return ask({'N', slot, 0, 0, {}, name});
    }
    bool holds(uint32_t slot, int value) const { return ask({'h', slot, 0, value, {}}).number; }
    void fill(uint32_t slot, int value) const { ask({'f', slot, 0, value, {}}); }
    void close(uint32_t slot) const { ask({'c', slot, 0, 0, {}}); }
    uint64_t openings() const { return ask({'n', 0, 0, 0, {}}).number; }
    void end(); // waits for its exit

private:
    int socket_ = -1;
    pid_t process_ = 0;
};

} // namespace share
