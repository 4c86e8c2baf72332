// An application in C++ that has no CUDA code of its own: threads take device memory from emm, and
// so from the plugin that EMM_PLUGIN names, on the driver that EMM_DRIVER names.
#include <emm/emm.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

void check(emm_status status) {
    if (status < EMM_OK) {
        throw std::runtime_error(emm_last_error()->text);
    }
}

// Device memory that any stream may use. Like sized delete, emm_memfree wants the size back.
class Buffer {
public:
    Buffer(emm_context *context, size_t size) : context_(context), size_(size) {
        check(emm_memalloc(context, size, EMM_STREAM_UNORDERED, &ptr_));
    }
    ~Buffer() { emm_memfree(context_, ptr_, size_, EMM_STREAM_UNORDERED); }
    Buffer(Buffer &&other) noexcept
        : context_(other.context_), size_(other.size_), ptr_(std::exchange(other.ptr_, 0)) {}
    Buffer &operator=(Buffer &&) = delete;

private:
    emm_context *context_;
    size_t size_;
    emm_deviceptr ptr_ = 0; // freeing 0 is a success that does nothing
};

class DeferredSection {
public:
    explicit DeferredSection(emm_context *context) : context_(context) {
        check(emm_defer_cleanup_begin(context));
    }
    ~DeferredSection() { emm_defer_cleanup_end(context_); }
    DeferredSection(const DeferredSection &) = delete;
    DeferredSection &operator=(const DeferredSection &) = delete;

private:
    emm_context *context_;
};

void say_who_serves() {
    emm_plugin_info plugin = {};
    plugin.struct_size = sizeof plugin;
    check(emm_get_plugin(&plugin));
    std::printf("plugin: %s\npath: %s\nselected by: %s\n", plugin.name, plugin.path,
                plugin.selected_by);
    emm_driver_info driver = {};
    driver.struct_size = sizeof driver;
    check(emm_get_driver(&driver));
    std::printf("driver: %s%s\n", driver.path, driver.simulated ? " (simulated)" : "");
}

// emm gives this program a chance to let go of what it keeps before it answers out of memory.
size_t give_back(emm_context *, size_t, void *user_data) {
    auto &kept = *static_cast<std::vector<Buffer> *>(user_data);
    const size_t count = kept.size();
    kept.clear();
    return count << 20;
}

void work(emm_context *context) {
    std::vector<Buffer> buffers;
    for (size_t size = 256; size <= size_t(1) << 22; size *= 2) {
        buffers.emplace_back(context, size);
    }
}

void run_out(emm_context *context) {
    const Buffer needed(context, size_t(1) << 20);
    std::vector<Buffer> kept;
    kept.emplace_back(context, size_t(1) << 20);
    check(emm_set_pressure_callback(&give_back, &kept));
    size_t free = 0, total = 0;
    check(emm_get_memory_info(context, &free, &total));
    emm_deviceptr ptr = 0;
    // All that the device has, of which a part is needed. A request for more than that fails at
    // once: nothing that is given back could meet it.
    const emm_status status = emm_memalloc(context, total, EMM_STREAM_UNORDERED, &ptr);
    check(emm_set_pressure_callback(nullptr, nullptr));
    if (status != EMM_E_OUT_OF_MEMORY || !kept.empty()) {
        throw std::runtime_error(
            "the whole device: expected to be asked to give back, and to run out");
    }
    std::printf("out of memory: handled\n");
}

void run() {
    say_who_serves();
    emm_context *context = nullptr;
    check(emm_context_for_device(0, &context));
    {
        const DeferredSection section(context);
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
    emm_stats stats = {};
    stats.struct_size = sizeof stats;
    check(emm_get_stats(context, &stats));
    std::printf("live bytes: %llu\n", static_cast<unsigned long long>(stats.live_bytes));
    check(emm_context_retire(context));
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
