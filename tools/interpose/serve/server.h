// The server of the process: one for all threads, made by the first cuInit and never destroyed.
#pragma once

#include "allocations.h"
#include "call.h"
#include "contexts.h"
#include "graph_memory.h"
#include "options.h"
#include "outside.h"
#include "own_pools.h"
#include "passed_on.h"
#include "peer_access.h"
#include "physical.h"
#include "pools.h"
#include "release.h"
#include "result.h"
#include "room.h"
#include "sharing.h"
#include "streams.h"

#include <new>
#include <type_traits>

namespace emm::run {

struct Server {
    Server(const Options &its_options, const HoldCalls *hold)
        : options(its_options), outside(hold) {}

    const Options options;
    const Driver driver;
    Contexts contexts{driver};
    Streams streams{driver, contexts};
    Pools pools{driver};
    OwnPools own_pools{contexts};
    PeerAccess peers;
    PassedOn passed_on;
    Allocations allocations;
    GraphMemory graph_memory{driver, allocations};
    Sharing sharing{allocations};
    Release release{driver, streams, options.release};
    PhysicalMemory physical{contexts};
    Outside outside;

    // The allocation of emm's that has `address` within it. `address` 0 in the answer: no such
    // allocation; `freed`: an allocation that began there was freed. own_around searches the
    // program's own device memory, around also open imports and pinned host memory.
    Allocation own_around(uint64_t address);
    Allocation around(uint64_t address);

    // Whether memory there has no handle, because it is emm's, or was before its free: the driver
    // would give the handle of its own larger piece of memory behind the allocation.
    bool refuses_handle_at(uint64_t address) {
        const Allocation found = around(address);
        return found.address != 0 || found.freed;
    }

    // Like own_around, for pinned and registered host memory.
    Allocation host_around(uint64_t address);

    // The driver itself has given memory to the program at `address`, up to its end as the driver
    // knows it. Freed addresses within no longer count as freed.
    void driver_gave(uint64_t address);

    // Gives back memory that no graph uses any longer and the program does not have. The plugin
    // waits for the work that the context has now, which the graph's last launch is part of.
    void give_back_of_graphs(const std::vector<Allocation> &memory);
    void give_back_of_ended_graphs() {
        if (graph_memory.has_ended()) [[unlikely]] {
            give_back_of_graphs(graph_memory.take_ended());
        }
    }

    // Gives back idle memory of own pools that have ended or are served no longer. Does nothing
    // during a capture.
    void give_back_of_ended_pools() {
        if (own_pools.has_leaving() && !streams.any_capture()) [[unlikely]] {
            own_pools.trim_leaving();
        }
    }

    // The holder of the access (`by`) is a context of the device, or NULL for the memory pool. A
    // plugin that cannot give access has memory of cuMemAlloc, which the driver's own call covers.
    void set_peer_access(emm_context *memory, CUdevice device, CUcontext by, uint32_t access);

    // Ends emm's part of a CUDA context, before the driver is told. False: emm did not serve it.
    bool end_context(CUcontext context);

private:
    Allocation managed_around(uint64_t address);
    Allocation pinned_around(uint64_t address, uint32_t kinds);
    void tell(const std::vector<DeviceAccess> &changed);
    void end_peer_access(CUcontext context);
};

// Only `serve` sets it.
extern Server *the_server;
inline Server &server() {
    return *the_server;
}

// The stream that the program means: for per-thread entries, stream 0 is the thread's own.
template <bool per_thread> CUstream meant(CUstream stream) {
    return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

// The program's result. Without one, the driver answers instead. It is one int: returning a
// std::optional, whose two parts are stored apart and loaded as one, costs a stall of 5 ns.
class Answer {
public:
    constexpr Answer() = default;
    constexpr Answer(CUresult result) : result_(result) {}
    constexpr explicit operator bool() const { return result_ != none; }
    constexpr CUresult operator*() const { return CUresult(result_); }

private:
    static constexpr int none = -1;
    int result_ = none;
};

// The answer for a status of emm's that gives no object: the driver answers where emm does not
// serve.
inline Answer unserved(emm_status status) {
    return status == EMM_E_NO_CONTEXT || leaves_to_driver(status) ? Answer() : result_of(status);
}

// Calls `work` with the calling thread's current context. Gives its answer.
template <class Work> Answer in_current(Work work) {
    emm_status status = EMM_OK;
    emm_context *const context = server().contexts.current(status);
    return context ? work(context) : unserved(status);
}

// Calls `allocate`. If memory has run out and caches of the program were asked for some, calls it
// once more. Gives the last answer.
template <class Allocate>
emm_status allocate_with_release(emm_context *context, size_t bytes, Memory memory,
                                 Allocate allocate) {
    const emm_status status = allocate();
    const bool exhausted = status == EMM_E_OUT_OF_MEMORY || status == EMM_E_OUT_OF_HOST_MEMORY;
    return exhausted && server().release.ask(context, bytes, memory) ? allocate() : status;
}

// The groups of entries, each in a file of its own. Each function puts its entries into the table.
void serve_counted(Entries &entries);
void serve_device_memory(Entries &entries);
void serve_driver_addresses(Entries &entries);
void serve_frees(Entries &entries);
void serve_figures(Entries &entries);
void serve_graph_figures(Entries &entries);
void serve_graph_nodes(Entries &entries);
void serve_graphs(Entries &entries);
void serve_host_memory(Entries &entries);
void serve_ipc(Entries &entries);
void serve_questions(Entries &entries);
void serve_lifetimes(Entries &entries);
void serve_peers(Entries &entries);
void serve_pools(Entries &entries);
void serve_physical(Entries &entries); // if pausable; replaces some of counted

// An entry for the table: exceptions do not leave it. Only lack of host memory throws.
template <auto function> struct Guarded;
template <class... Arguments, CUresult (*function)(Arguments...)> struct Guarded<function> {
    static CUresult call(Arguments... arguments) noexcept {
        try {
            return function(arguments...);
        } catch (const std::bad_alloc &) {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
};
template <auto function> Entry entry_of() {
    return reinterpret_cast<Entry>(&Guarded<function>::call);
}

// Most entries: `answer` (nullptr: none) answers the program, else the driver does; `then`
// (nullptr: none) runs after the driver's success. Both take the program's arguments.
template <auto function> constexpr bool is_there = !std::is_null_pointer_v<decltype(function)>;

template <Served entry, auto answer, auto then, class... Arguments>
CUresult serve_call(Arguments... arguments) {
    const Turn turn;
    if constexpr (is_there<answer>) {
        const Answer own = turn.is_programs() ? answer(arguments...) : Answer();
        if (own) {
            return *own;
        }
    }
    const auto ask = [&] {
        return ask_driver<&serve_call<entry, answer, then, Arguments...>>(entry, arguments...);
    };
    const CUresult result = turn.is_programs() ? with_room(every_device, 0, ask) : ask();
    if constexpr (is_there<then>) {
        if (turn.is_programs() && result == CUDA_SUCCESS) {
            then(arguments...);
        }
    }
    return result;
}

template <Served entry, auto answer, auto then, class Result, class... Arguments>
void put_entry(Entries &entries, Result (*)(Arguments...)) {
    entries.at[entry] = entry_of<&serve_call<entry, answer, then, Arguments...>>();
}

template <Served entry, auto answer, auto then = nullptr> void serve(Entries &entries) {
    put_entry<entry, answer, then>(entries, answer);
}
template <Served entry, auto then> void watch(Entries &entries) {
    put_entry<entry, nullptr, then>(entries, then);
}

} // namespace emm::run
