// A process with one context, of one device, that obeys requests. A slot's number names memory that
// it has allocated or opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <string>
#include <sys/types.h>
#include <vector>

namespace sharing {

enum class How : int { unordered, ordered, managed };

// 'a' allocate `size`; 'x' free; 'g' handle of the address at `size`; 'o' open, with `value` as
// flags; 'c' close; 'f' fill with `value`; 'h' holds it?; 'r' the range around the address at
// `size`; 'd' descriptors; 'z' reset the context; 'G' handles of the slot and 'O' openings and
// closings of a handle, by several threads at once; 'p' does the device reach the device `value`?
// 's' is it said to be shareable? 'e' the device `size` may use this one's memory from now on; 'u'
// it fills the slot with `value`.
struct Request {
    char what = 0;
    unsigned slot = 0;
    size_t size = 0;
    unsigned value = 0;
    How how = How::unordered;
    CUipcMemHandle handle = {};
};

struct Answer {
    CUresult result = CUDA_SUCCESS;
    bool matches = false; // 'h', 'G', 'O', 'p'; 'g', 's' the driver says that it can; 'r' the range
                          // begins where the slot does
    CUdeviceptr address = 0;
    size_t size = 0; // of the range
    uint64_t id = 0; // of the buffer; 'd' the count
    CUipcMemHandle handle = {};
};

int be_peer(int socket, int device);

class Peer {
public:
    // `environment`: NAME=value, instead of this process's.
    explicit Peer(std::vector<std::string> environment, int device = 0);
    ~Peer(); // waits for its exit with status 0
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;

    Answer ask(const Request &request) const;
    Answer allocate(unsigned slot, size_t size, How how) const {
        return ask({'a', slot, size, 0, how, {}});
    }
    Answer free(unsigned slot, How how) const { return ask({'x', slot, 0, 0, how, {}}); }
    Answer get_handle(unsigned slot, size_t offset) const {
        return ask({'g', slot, offset, 0, {}, {}});
    }
    Answer open(unsigned slot, const CUipcMemHandle &handle, size_t size,
                unsigned flags = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) const {
        return ask({'o', slot, size, flags, {}, handle});
    }
    Answer close(unsigned slot) const { return ask({'c', slot, 0, 0, {}, {}}); }
    Answer range(unsigned slot, size_t offset) const { return ask({'r', slot, offset, 0, {}, {}}); }
    bool get_handles_at_once(unsigned slot) const { return ask({'G', slot, 0, 0, {}, {}}).matches; }
    bool open_and_close_at_once(const CUipcMemHandle &handle) const {
        return ask({'O', 0, 0, 0, {}, handle}).matches;
    }
    Answer reset() const { return ask({'z', 0, 0, 0, {}, {}}); }
    void fill(unsigned slot, unsigned value) const { ask({'f', slot, 0, value, {}, {}}); }
    bool holds(unsigned slot, unsigned value) const {
        return ask({'h', slot, 0, value, {}, {}}).matches;
    }
    void enable(unsigned device) const { ask({'e', 0, device, 0, {}, {}}); }
    void fill_from(unsigned device, unsigned slot, unsigned value) const {
        ask({'u', slot, device, value, {}, {}});
    }
    bool reaches(unsigned device) const { return ask({'p', 0, 0, device, {}, {}}).matches; }
    bool is_said_to_be_shareable(unsigned slot) const {
        return ask({'s', slot, 0, 0, {}, {}}).matches;
    }
    uint64_t descriptors() const { return ask({'d', 0, 0, 0, {}, {}}).id; }

private:
    int socket_ = -1;
    pid_t process_ = 0;
};

} // namespace sharing
