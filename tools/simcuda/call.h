#pragma once

#include "entries.h"
#include "simulator.h"

#include <cuda.h>
#include <string>

namespace simcuda {

// The driver's data of one thread. Trivial, so that calls still work while a thread, or the
// process, is being torn down.
struct Thread {
    static constexpr int deepest = 256;
    CUcontext stack[deepest];
    int depth;
    const char *call;       // the entry being served
    bool per_thread_stream; // in this variant stream 0 is the thread's own
    bool in_callback;       // in a host function or destructor, where CUDA may not be called
    bool spared;            // its calls get no injected faults
    CUstreamCaptureMode mode;
    uint32_t number; // 1, 2, ... in order of first calls
    char last_race[1024];
};

extern constinit thread_local Thread this_thread;

// Counts the call and records it for the thread. `refusal` gets the result if the call is refused.
class Call {
public:
    Call(Row row, bool per_thread_stream);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;
    CUresult refusal() const { return refusal_; }

private:
    CUresult check(Row row) const;

    const char *outer_call_;
    bool outer_variant_;
    CUresult refusal_;
};

void count_call(Row row);
uint64_t calls_of(std::string_view name);
uint64_t calls_of_all();

// Undefined behaviour: reports it and aborts, or with misuse=error returns an error.
CUresult misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

// An entry that returns has succeeded. To end with another result, it throws this, and the objects
// that it holds are given back on the way.
struct Refused {
    CUresult result;
};

[[noreturn]] inline void refuse(CUresult result) {
    throw Refused{result};
}

inline void expect_success(CUresult result) {
    if (result != CUDA_SUCCESS) {
        refuse(result);
    }
}

inline void expect(bool holds, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    expect_success(holds ? CUDA_SUCCESS : otherwise);
}

// The last step of an entry that answers a question.
template <class Value> void tell(Value *ret_value, std::type_identity_t<Value> value) {
    expect(ret_value);
    *ret_value = value;
}

// The object of a handle. An unknown or ended handle is misuse, and the report names its `kind`.
template <class Object, class Handle>
Object &find_object(const Handles<Object, Handle> &all, Handle handle, const char *kind,
                    CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    Object *const object = all.find(handle);
    if (!object) {
        misuse("%s 0x%llx %s", kind, (unsigned long long)handle,
               all.was(handle) ? "was destroyed" : "does not exist");
        refuse(otherwise);
    }
    return *object;
}

// The result of `body`, for an entry that reports the result of another entry.
template <class Body> CUresult result_of(const Body &body) {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return CUDA_SUCCESS;
        } else {
            return body();
        }
    } catch (const Refused &refused) {
        return refused.result;
    }
}

// Every entry runs through here: either refused, or served with the simulator locked.
template <typename Body>
CUresult enter(Row row, bool per_thread_stream, const Body &body) noexcept {
    const Call call(row, per_thread_stream);
    if (call.refusal() != CUDA_SUCCESS) {
        return call.refusal();
    }
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    simulator.work.toss();
    const CUresult result = result_of(body);
    simulator.do_due_work();
    return result;
}

} // namespace simcuda
