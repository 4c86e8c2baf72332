#pragma once

#include "clock.h"
#include "schedule.h"

#include <cuda.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace simcuda {

struct Device;
struct Event;
struct Stream;

struct Context {
    CUcontext handle = nullptr;
    uint64_t id = 0;
    Device *device = nullptr;
    unsigned flags = 0;
    unsigned users = 1; // cuCtxCreate and each cuCtxAttach
    bool primary = false;
    Context *root = nullptr;    // of a green context: its primary context, whose memory it uses
    std::set<Context *> greens; // of a primary context

    std::unique_ptr<Stream> legacy;
    std::map<uint32_t, std::unique_ptr<Stream>> per_thread; // by thread
    std::set<Stream *> streams;                             // all of them
    std::set<Event *> events;
    std::set<Context *> peers; // the contexts whose memory it may use

    // Work of destroyed streams, for which all later work must wait.
    std::vector<OpRef> orphans;
    Clock orphan_clock;
    OpRef barrier;
    Clock barrier_clock;
};

// A CUDA array, with or without mipmaps: memory of the device without an address. Copies to and
// from arrays do not exist here.
struct Array {
    Context *context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    uint64_t offset = 0, size = 0; // in the device's store
};

// A loaded module: of a context, or a library, which needs none. Each function that the program
// asks for exists in it.
struct Module {
    Context *context = nullptr; // NULL: a library
    std::map<std::string, CUfunction> functions;
};

struct Function {};

// The calling thread's context; throws the reason if the thread has none. current_root(): the
// context that has the memory, which is the same one, or the primary context of a green context.
Context &current_context();
Context &current_root();
Context &find_context(CUcontext handle);
Context &context_or_current(CUcontext handle); // NULL: the calling thread's current context
inline Context &root_of(Context &context) {
    return context.root ? *context.root : context;
}

Context *make_context(Device &device, unsigned flags, CUcontext handle);
// Waits for the context's work and frees all its memory.
void end_context(Context *context);
void end_arrays(Context &context);
void end_events(Context &context); // no handle is used again, so a later use is reported
void end_modules(const Context &context);

// All pending work of the context and of its green contexts.
std::vector<OpRef> work_of(const Context &context);
Clock clock_of(const Context &context);
void wait_for(Context &context);

} // namespace simcuda
