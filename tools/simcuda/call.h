#pragma once

#include "entries.h"
#include "simulator.h"
#include "thread.h"

#include <string>

namespace simcuda {

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

// Ends an entry with this result; what it holds is given back on the way.
struct Refused {
    CUresult result;
};

inline void expect_success(CUresult result) {
    if (result != CUDA_SUCCESS) {
        throw Refused{result};
    }
}

inline void expect(bool holds, CUresult otherwise = CUDA_ERROR_INVALID_VALUE) {
    expect_success(holds ? CUDA_SUCCESS : otherwise);
}

// What `find` finds; the entry ends with its result if that is no success.
template <class Object> Object &expect_found(CUresult (*find)(Object *&)) {
    Object *object = nullptr;
    expect_success(find(object));
    return *object;
}

template <class Object, class Handle>
Object &expect_found(CUresult (*find)(Handle, Object *&), Handle handle) {
    Object *object = nullptr;
    expect_success(find(handle, object));
    return *object;
}

// Every entry runs through here: it is refused, or served with the simulator locked.
template <typename Body>
CUresult enter(Row row, bool per_thread_stream, const Body &body) noexcept {
    const Call call(row, per_thread_stream);
    if (call.refusal() != CUDA_SUCCESS) {
        return call.refusal();
    }
    Simulator &simulator = sim();
    const std::lock_guard lock(simulator.mutex);
    simulator.work.toss();
    CUresult result;
    try {
        result = body();
    } catch (const Refused &refused) {
        result = refused.result;
    }
    simulator.settle();
    return result;
}

// Undefined behaviour: reports it and aborts, or with misuse=error returns an error.
CUresult misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace simcuda
