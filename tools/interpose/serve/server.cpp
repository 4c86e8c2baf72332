#include "server.h"

#include <cstdio>
#include <cstdlib>
#include <pthread.h>

namespace emm::run {

Server *the_server = nullptr;

Entries driver_entries;

[[gnu::tls_model("initial-exec")]] constinit thread_local int Turn::depth_ = 0, Turn::locked_ = 0;
bool Turn::is_forked_child_ = false;

void Turn::watch_forks() {
    pthread_atfork(nullptr, nullptr, [] { is_forked_child_ = true; });
}

namespace {

// The sentence for the status of the last call.
bool fail(char *ret_problem, size_t size) {
    std::snprintf(ret_problem, size, "%s", emm_last_error()->text);
    return false;
}

bool start(const Entries *driver, Entries *ret_serving, const HoldCalls *hold, char *ret_problem,
           size_t size) {
    driver_entries = *driver;
    Options options;
    std::string problem;
    if (!read_options(std::getenv("EMM_RUN"), options, problem)) {
        std::snprintf(ret_problem, size, "%s", problem.c_str());
        return false;
    }
    auto info = sized<emm_driver_info>();
    auto plugin = sized<emm_plugin_info>();
    if (emm_get_driver(&info) < 0 || emm_get_plugin(&plugin) < 0) {
        return fail(ret_problem, size);
    }
    the_server = new Server(options, hold);
    if (const char *missing = the_server->driver.missing()) {
        std::snprintf(ret_problem, size,
                      "the driver %s has no %s; expected one for CUDA 12.0 or later", info.path,
                      missing);
        return false;
    }
    Turn::watch_forks();
    for (const auto serve_group :
         {serve_counted, serve_device_memory, serve_driver_addresses, serve_frees, serve_figures,
          serve_graph_figures, serve_graph_nodes, serve_graphs, serve_host_memory, serve_ipc,
          serve_questions, serve_lifetimes, serve_peers, serve_pools}) {
        serve_group(*ret_serving);
    }
    if (hold) {
        serve_physical(*ret_serving);
        std::atexit(hold->end); // for later pauses: each needs this handler
    }
    return true;
}

} // namespace

// A plugin's query does not know the managed memory that emm's default slot allocates. The search
// goes through all records, so the driver is asked first whether the memory is managed.
Allocation Server::managed_around(uint64_t address) {
    unsigned is_managed = 0;
    const CUresult known =
        driver.cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    return known == CUDA_SUCCESS && is_managed != 0
               ? allocations.find_around(address, uint32_t(Kind::managed))
               : Allocation();
}

Allocation Server::own_around(uint64_t address) {
    const Allocation there = allocations.find(address);
    if (there.address != 0) {
        return there.is_one_of(on_device) ? there : Allocation();
    }
    const auto kept = contexts.keep();
    std::vector<emm_context *> managers = own_pools.all_managers();
    for (emm_context *context : contexts.all()) {
        managers.push_back(context);
    }
    for (emm_context *manager : managers) {
        auto block = sized<emm_block_info>();
        const emm_status status = emm_query(manager, address, &block);
        const Allocation found = status == EMM_E_NOT_SUPPORTED
                                     ? allocations.find_around(address, on_device)
                                 : status >= 0 ? allocations.find(block.base)
                                               : Allocation();
        if (found.address != 0) {
            return found;
        }
    }
    const Allocation managed = managed_around(address);
    return managed.address != 0 ? managed : there; // the memory may have been freed
}

Allocation Server::pinned_around(uint64_t address, uint32_t kinds) {
    unsigned type = 0;
    const CUresult known =
        driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    return known == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST
               ? allocations.find_around(address, kinds)
               : Allocation();
}

Allocation Server::host_around(uint64_t address) {
    const Allocation there = allocations.find(address);
    constexpr uint32_t kinds = uint32_t(Kind::pinned) | uint32_t(Kind::registered);
    const Allocation found = there.address == 0 ? pinned_around(address, kinds) : there;
    return found.address != 0 ? found : there;
}

Allocation Server::around(uint64_t address) {
    const Allocation own = own_around(address);
    if (own.address != 0) {
        return own;
    }
    const Allocation open = sharing.around(address);
    if (open.address != 0) {
        return open;
    }
    const Allocation pinned = pinned_around(address, uint32_t(Kind::pinned));
    return pinned.address != 0 ? pinned : own;
}

void Server::driver_gave(uint64_t address) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const bool is_known = driver.cuMemGetAddressRange(&base, &size, address) == CUDA_SUCCESS;
    allocations.forget_within(address, is_known ? base + size - address : 1);
}

void Server::give_back_of_graphs(const std::vector<Allocation> &memory) {
    for (const Allocation &allocation : memory) {
        if (allocation.exported) {
            sharing.end_export(allocation);
        }
        const emm_status status = emm_memfree(allocation.context, allocation.address,
                                              allocation.size, EMM_STREAM_UNORDERED);
        if (status < 0 && !leaves_to_driver(status)) {
            graph_memory.put_back(allocation);
        }
    }
}

bool Server::end_context(CUcontext context) {
    // This is first: once the context's memory is given back, another thread may get it from the
    // driver.
    if (emm_context *ending = contexts.known(context)) {
        allocations.forget(ending);
        peers.forget(ending);
        own_pools.forget(ending);
    }
    end_peer_access(context);
    for (const PassedOn::Item &ended : passed_on.end(context)) {
        emm_give_driver_memory(ended.charge);
    }
    emm_context *const ended = contexts.end(context);
    if (ended) {
        streams.forget(ended);
        sharing.forget(ended);
    }
    return ended != nullptr;
}

} // namespace emm::run

extern "C" __attribute__((visibility("default"))) int emm_run_exchange_depth(int depth) {
    return emm::run::Turn::exchange_depth(depth);
}

extern "C" __attribute__((visibility("default"))) bool
emm_run_serve(const emm::run::Entries *driver, emm::run::Entries *ret_serving,
              const emm::run::HoldCalls *hold, char *ret_problem, size_t size) {
    try {
        return emm::run::start(driver, ret_serving, hold, ret_problem, size);
    } catch (const std::bad_alloc &) {
        std::snprintf(ret_problem, size, "no host memory to serve the program with");
        return false;
    }
}
