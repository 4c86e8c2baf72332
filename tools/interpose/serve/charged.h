// The memory that a call of the program is about to take from the driver itself. The device's
// account is charged with it while the call runs.
#pragma once

#include "server.h"

#include <atomic>

namespace emm::run {

class Charged {
public:
    // Charges nothing for calls that are not the program's, and for memory of no device. If the
    // bound has no room, the managers and the program's caches give back first.
    Charged(bool is_programs, const emm_driver_memory &memory)
        : memory_(memory), is_meant_(is_programs && memory.device >= 0),
          is_refused_(is_meant_ && !take()) {}
    ~Charged() {
        if (!is_kept_) {
            emm_give_driver_memory(id_);
        }
    }
    Charged(const Charged &) = delete;
    Charged &operator=(const Charged &) = delete;

    bool is_refused() const { return is_refused_; }
    // Has `call` take the memory from the driver, unless the bound has refused it. If the driver
    // has none, the managers and the program's caches give back here, too.
    template <class Call> CUresult call(Call call) const {
        return is_refused_ ? refuse(call)
               : is_meant_ ? with_room(device(), memory_.bytes, call)
                           : call();
    }
    uint64_t id() const { return id_; }
    // After an allocation from a pool. False: the pool has grown above the bound for it.
    bool may_stay() const { return emm_keep_driver_memory(id_, nullptr) != EMM_E_OUT_OF_MEMORY; }
    void keep(CUmemoryPool pool) {
        emm_keep_driver_memory(id_, pool);
        is_kept_ = true;
        is_any_kept_.store(true, std::memory_order_relaxed);
    }
    static bool is_any_kept() { return is_any_kept_.load(std::memory_order_relaxed); }

private:
    bool take() {
        const auto try_it = [&] { return emm_take_driver_memory(&memory_, &id_); };
        emm_status status = try_it();
        if (status == EMM_E_OUT_OF_MEMORY && ask_programs_caches(memory_.device, memory_.bytes)) {
            status = try_it();
        }
        return status != EMM_E_OUT_OF_MEMORY; // after other failures memory is not counted
    }
    // A request larger than the device goes to the driver, which refuses it and may have another
    // reason.
    template <class Call> CUresult refuse(Call call) const {
        size_t whole = 0;
        const bool is_beyond = !memory_.pool &&
                               ask_driver<&cuDeviceTotalMem>(served_cuDeviceTotalMem_v2, &whole,
                                                             memory_.device) == CUDA_SUCCESS &&
                               memory_.bytes > whole;
        return is_beyond ? call() : CUDA_ERROR_OUT_OF_MEMORY;
    }
    // Only the account knows the device of each pool.
    CUdevice device() const { return memory_.pool ? every_device : memory_.device; }

    static inline std::atomic<bool> is_any_kept_{false};
    const emm_driver_memory memory_;
    uint64_t id_ = 0;
    const bool is_meant_, is_refused_;
    bool is_kept_ = false;
};

} // namespace emm::run
