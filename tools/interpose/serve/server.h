// What serves the process: one for all, made by the first cuInit and never destroyed.
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

    // The allocation of emm's that has `address` within it, device memory only; `address` 0 in the
    // answer: there is none, and `freed`: one that began there was freed. The program's own, and
    // with what it has open of other processes' and with pinned host memory.
    Allocation own_around(uint64_t address);
    Allocation around(uint64_t address);

    // The same of host memory, pinned or registered.
    Allocation host_around(uint64_t address);

    // The driver itself has given memory to the program at `address`, to its end as the driver
    // knows it: what was freed there is freed no more.
    void driver_gave(uint64_t address);

    // Gives back what no graph uses any more, and the program does not have. After the work that
    // the context holds now, which the graph's last launch is part of.
    void give_back_of_graphs(const std::vector<Allocation> &memory);
    void give_back_of_ended_graphs() {
        if (graph_memory.has_ended()) [[unlikely]] {
            give_back_of_graphs(graph_memory.take_ended());
        }
    }

    // What the program's own pools that have ended need no more, however much of it is in use.
    void give_back_of_ended_pools() {
        if (own_pools.has_leaving() && !streams.any_capture()) [[unlikely]] {
            own_pools.trim_leaving();
        }
    }

    // What holds the access is a context of the device, or the memory pool (`by` NULL). A plugin
    // that cannot give it has memory of cuMemAlloc, which the driver's own call covers.
    void set_peer_access(emm_context *memory, CUdevice device, CUcontext by, uint32_t access);

    // All that a CUDA context's end means here. Before the driver is told. False: emm did not serve
    // it.
    bool end_context(CUcontext context);

private:
    Allocation managed_around(uint64_t address);
    Allocation pinned_around(uint64_t address, uint32_t kinds);
    void tell(const std::vector<DeviceAccess> &changed);
    void end_peer_access(CUcontext context);
};

// Once `serve` has been called, which alone sets it.
extern Server *the_server;
inline Server &server() {
    return *the_server;
}

// The thread's own stream, for the entries whose stream 0 that is.
template <bool per_thread> CUstream meant(CUstream stream) {
    return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

// What the program gets; none: the driver answers instead. One int: to return a std::optional,
// whose two parts are stored apart and loaded as one, costs a stall of 5 ns.
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

// For a status of emm's that says why there is nothing: the driver answers where emm does not
// serve.
inline Answer unserved(emm_status status) {
    return status == EMM_E_NO_CONTEXT || leaves_to_driver(status) ? Answer() : result_of(status);
}

// What `work` answers in the calling thread's current context.
template <class Work> Answer in_current(Work work) {
    emm_status status = EMM_OK;
    emm_context *const context = server().contexts.current(status);
    return context ? work(context) : unserved(status);
}

// What `allocate` answers, and once more if memory has run out and caches of the program have been
// asked for some.
template <class Allocate>
emm_status allocate_with_release(emm_context *context, size_t bytes, Memory memory,
                                 Allocate allocate) {
    const emm_status status = allocate();
    const bool exhausted = status == EMM_E_OUT_OF_MEMORY || status == EMM_E_OUT_OF_HOST_MEMORY;
    return exhausted && server().release.ask(context, bytes, memory) ? allocate() : status;
}

// The groups of entries, each in a file of its own, with the entries that it puts into the table.
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
void serve_physical(Entries &entries); // in a program that can be paused, over those of counted

// An entry as the table has it: no exception leaves it. Lack of host memory is all that can happen.
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
// (nullptr: none) is told of the driver's success. Both take the program's arguments.
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
    const CUresult result =
        ask_driver<&serve_call<entry, answer, then, Arguments...>>(entry, arguments...);
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
