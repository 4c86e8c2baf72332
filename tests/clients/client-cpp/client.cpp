// An application in C++ that has no CUDA code of its own: threads take device memory from emm, and
// so from the plugin that EMM_PLUGIN names, on the driver that EMM_DRIVER names.
#include <emm/emm.hpp>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

void say_who_serves() {
    emm_plugin_info plugin = {};
    plugin.struct_size = sizeof plugin;
    emm::check(emm_get_plugin(&plugin));
    std::printf("plugin: %s\npath: %s\nselected by: %s\n", plugin.name, plugin.path,
                plugin.selected_by);
    emm_driver_info driver = {};
    driver.struct_size = sizeof driver;
    emm::check(emm_get_driver(&driver));
    std::printf("driver: %s%s\n", driver.path, driver.simulated ? " (simulated)" : "");
}

void work(emm_context *context) {
    std::vector<emm::MemoryPointer> buffers;
    for (size_t size = 256; size <= size_t(1) << 22; size *= 2) {
        buffers.emplace_back(context, size);
    }
}

// Before emm answers out of memory, it lets this program free memory that it keeps.
void run_out(emm_context *context) {
    const emm::MemoryPointer needed(context, size_t(1) << 20);
    emm::MemoryPointer kept(context, size_t(1) << 20);
    const auto give_back = [&](emm_context *, size_t) {
        const size_t size = kept.size();
        kept = {};
        return size;
    };
    const emm::PressureCallback callback(give_back);
    size_t free = 0, total = 0;
    emm::check(emm_get_memory_info(context, &free, &total));
    bool is_out = false;
    try {
        // All of the device's memory, with a part of it needed. A larger request fails at once: no
        // memory that is given back could meet it.
        const emm::MemoryPointer all(context, total);
    } catch (const emm::OutOfMemory &) {
        is_out = true;
    }
    if (!is_out || kept) {
        throw std::runtime_error(
            "the whole device: expected to be asked to give back, and to run out");
    }
    std::printf("out of memory: handled\n");
}

void run() {
    say_who_serves();
    emm_context *const context = emm::context_for_device(0);
    {
        const emm::DeferCleanup section(context);
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++) {
            threads.emplace_back(work, context);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    std::printf("allocated: on 4 threads\n");
    run_out(context);
    std::printf("live bytes: %llu\n",
                static_cast<unsigned long long>(emm::stats(context).live_bytes));
    emm::check(emm_context_retire(context));
    std::printf("done\n");
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
