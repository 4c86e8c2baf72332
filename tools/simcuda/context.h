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
    Context *root = nullptr;    // of a green context: the primary one, whose memory it uses
    std::set<Context *> greens; // of a primary one

    std::unique_ptr<Stream> legacy;
    std::map<uint32_t, std::unique_ptr<Stream>> per_thread; // by thread
    std::set<Stream *> streams;                             // all of them
    std::set<Event *> events;
    std::set<Context *> peers; // whose memory it may use

    // Work of destroyed streams, and what all later work must wait for.
    std::vector<OpRef> orphans;
    Clock orphan_clock;
    OpRef barrier;
    Clock barrier_clock;
};

// A CUDA array, with or without mipmaps: memory of the device without an address. Nothing here
// copies to it or from it.
struct Array {
    Context *context = nullptr;
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
    uint64_t offset = 0, size = 0; // in the device's store
};

// What was loaded: into a context, or as a library, which needs none. It has each function that it
// is asked for.
struct Module {
    Context *context = nullptr; // NULL: a library
    std::map<std::string, CUfunction> functions;
};

struct Function {};

// The calling thread's context, or why there is none. And that which has the memory: the same, or
// the primary one of a green one.
Context &current_context();
Context &current_root();
Context &find_context(CUcontext handle);
Context &context_or_current(CUcontext handle); // NULL: the current one
inline Context &root_of(Context &context) {
    return context.root ? *context.root : context;
}

Context *make_context(Device &device, unsigned flags, CUcontext handle);
// Waits for its work and frees all it holds.
void end_context(Context *context);
void end_arrays(Context &context);
void end_events(Context &context); // no handle is used again, so a later use is reported
void end_modules(const Context &context);

// All pending work of the context, with that of its green ones.
std::vector<OpRef> work_of(const Context &context);
Clock clock_of(const Context &context);
void wait_for(Context &context);

} // namespace simcuda
