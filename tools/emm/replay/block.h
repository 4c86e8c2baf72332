#pragma once

#include <emm/emm.h>

#include <atomic>
#include <cstdint>

namespace emm::tool {

// One allocation of the trace while it is replayed. The thread that allocates publishes the address
// after it has put its write on the stream; the thread that frees may have to wait for that.
class Block {
public:
    static constexpr emm_deviceptr pending = 0, failed = ~emm_deviceptr(0);

    void publish(emm_deviceptr address) {
        address_.store(address, std::memory_order_release);
        address_.notify_all();
    }
    emm_deviceptr wait() const {
        address_.wait(pending, std::memory_order_acquire);
        return address_.load(std::memory_order_acquire);
    }
    // What the trace never frees is found by what is left here.
    void forget() { address_.store(failed, std::memory_order_relaxed); }
    void renew() { address_.store(pending, std::memory_order_relaxed); } // to be allocated again
    emm_deviceptr address() const { return address_.load(std::memory_order_acquire); }

    uint64_t size = 0;
    uint32_t number = 0;
    uint16_t stream = 0;

private:
    std::atomic<emm_deviceptr> address_{pending};
};

} // namespace emm::tool
