// The memory that a call of the program is about to take from the driver itself. The device's
// account is charged with it while the call runs.
#pragma once

#include "server.h"

namespace emm::run {

class Charged {
public:
    // Charges nothing for calls that are not the program's, and for memory of no device. If the
    // bound has no room, the managers and the program's caches give back first.
    Charged(bool is_programs, const emm_driver_memory &memory) {
        if (is_programs && memory.device >= 0) {
            is_refused_ = !take(memory);
        }
    }
    ~Charged() {
        if (!is_kept_) {
            emm_give_driver_memory(id_);
        }
    }
    Charged(const Charged &) = delete;
    Charged &operator=(const Charged &) = delete;

    bool is_refused() const { return is_refused_; }
    // A request larger than the device goes to the driver, which refuses it and may have another
    // reason.
    template <class Call> static CUresult refuse(const emm_driver_memory &memory, Call call) {
        size_t whole = 0;
        const bool is_beyond = ask_driver<&cuDeviceTotalMem>(served_cuDeviceTotalMem_v2, &whole,
                                                             memory.device) == CUDA_SUCCESS &&
                               memory.bytes > whole;
        return is_beyond ? call() : CUDA_ERROR_OUT_OF_MEMORY;
    }
    uint64_t id() const { return id_; }
    void keep(CUmemoryPool pool) {
        emm_keep_driver_memory(id_, pool);
        is_kept_ = true;
    }

private:
    bool take(const emm_driver_memory &memory) {
        const auto try_it = [&] { return emm_take_driver_memory(&memory, &id_); };
        emm_status status = try_it();
        if (status == EMM_E_OUT_OF_MEMORY) {
            emm_context *const context = server().contexts.known_on(memory.device);
            if (context && server().release.ask(context, memory.bytes, Memory::device)) {
                status = try_it();
            }
        }
        return status != EMM_E_OUT_OF_MEMORY; // after other failures memory is not counted
    }

    uint64_t id_ = 0;
    bool is_refused_ = false, is_kept_ = false;
};

} // namespace emm::run
