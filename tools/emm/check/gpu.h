#pragma once

#include "driver.h"
#include "simcuda.h"

#include <cstdint>
#include <string>
#include <vector>

namespace emm::tool::check {

// The primary context of a device, made current on this thread and retained permanently.
CUcontext enter_device(int device = 0);
void enter(CUcontext context); // nullptr: none

// Another context of device 0; current afterwards.
CUcontext make_context();

// A non-blocking stream, destroyed with this object or by close().
class OwnedStream {
public:
    explicit OwnedStream(unsigned flags = CU_STREAM_NON_BLOCKING);
    ~OwnedStream() { close(); }
    OwnedStream(const OwnedStream &) = delete;
    OwnedStream &operator=(const OwnedStream &) = delete;
    CUstream get() const { return stream_; }
    void synchronize() const;
    void wait_for(const OwnedStream &other) const; // for its present work
    void close();

private:
    CUstream stream_ = nullptr;
};

// Writes `value` to the first and last bytes of a block, in the stream's order.
void mark(CUstream stream, emm_deviceptr ptr, size_t size, uint8_t value);

// Reads them back, in the stream's order, and waits.
bool is_marked(CUstream stream, emm_deviceptr ptr, size_t size, uint8_t value);

// A kernel that uses the block, on the simulated driver: unlike copies, it needs access to it.
void launch(CUstream stream, emm_deviceptr ptr, size_t size);

// Work that takes a while on a real device; the simulated driver keeps work pending by itself.
void stall(CUstream stream, bool simulated);

// The stream for the free of the `i`th block: in turn none and a stream. A cache may keep only one
// of the two kinds.
inline emm_stream either_way(size_t i) {
    return i % 2 ? EMM_STREAM_LEGACY : EMM_STREAM_UNORDERED;
}

// Allocates `count` blocks of one size, from a Hosted or a BareManager. The function below frees
// the first `count` blocks of a list.
template <class Memory>
std::vector<emm_deviceptr> take(const Memory &memory, size_t count, size_t size) {
    std::vector<emm_deviceptr> blocks(count);
    for (emm_deviceptr &ptr : blocks) {
        ptr = memory.alloc(size);
    }
    return blocks;
}
template <class Memory>
void free_first(const Memory &memory, size_t count, const std::vector<emm_deviceptr> &blocks,
                size_t size) {
    for (size_t i = 0; i < count; i++) {
        memory.free(blocks[i], size, either_way(i));
    }
}
template <class Memory>
void free_all(const Memory &memory, const std::vector<emm_deviceptr> &blocks, size_t size) {
    free_first(memory, blocks.size(), blocks, size);
}

// Finds the simulator's entries for the functions below; once.
void open_simulator();

// The simulated driver's counters, and the bytes that all processes hold.
simcuda_counters counters();
uint64_t held_bytes();
uint64_t calls_of(const char *name);
std::string latest_race(); // "": none

// A fault of the simulated driver, armed for this object's lifetime.
class Fault {
public:
    explicit Fault(const std::string &what);
    ~Fault();
    Fault(const Fault &) = delete;
    Fault &operator=(const Fault &) = delete;
    bool happened() const; // whether a call has failed since

private:
    uint64_t before_;
};

} // namespace emm::tool::check
