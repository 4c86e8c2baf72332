// A program that frees its memory far too late: in a static destructor, after main, on a thread
// that ends after main, and after emm_shutdown. Nothing is torn down before, and nothing crashes;
// the exit status says whether every free succeeded.
//
//     late_frees exit|shutdown|retire PLUGIN.so
#include <emm/emm.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

void require(bool good, const char *what) {
    if (!good) {
        std::fprintf(stderr, "%s: %s\n", what, emm_last_error()->text);
        _exit(1);
    }
}

struct Held {
    emm_context *context = nullptr;
    std::vector<emm_deviceptr> device;
    std::vector<void *> pinned;

    void fill() {
        for (size_t size = 256; size <= (size_t(8) << 20); size *= 8) {
            emm_deviceptr ptr = 0;
            require(emm_memalloc(context, size, EMM_STREAM_LEGACY, &ptr) == EMM_OK, "memalloc");
            device.push_back(ptr);
        }
        void *host = nullptr;
        require(emm_memhostalloc(context, 4096, 0, &host, nullptr) == EMM_OK, "memhostalloc");
        pinned.push_back(host);
    }

    ~Held() {
        for (const emm_deviceptr ptr : device) {
            require(emm_memfree(context, ptr, 0, EMM_STREAM_UNORDERED) >= EMM_OK, "memfree");
        }
        for (void *host : pinned) {
            require(emm_memhostfree(context, host, 0, 0, EMM_STREAM_UNORDERED) >= EMM_OK,
                    "memhostfree");
        }
    }
};

Held freed_by_a_static_destructor;
thread_local Held freed_by_a_thread;

void at_exit() {
    freed_by_a_static_destructor.fill();
}

} // namespace

int main(int argc, char *argv[]) {
    if (argc != 3) {
        return 2;
    }
    const char *how = argv[1];
    emm_context *context = nullptr;
    require(emm_set_plugin(argv[2]) == EMM_OK, "plugin");
    require(emm_context_for_device(0, &context) == EMM_OK, "context");
    freed_by_a_static_destructor.context = context;
    freed_by_a_static_destructor.fill();
    freed_by_a_thread.context = context;
    freed_by_a_thread.fill();
    std::thread([context] {
        freed_by_a_thread.context = context;
        freed_by_a_thread.fill();
    }).join();
    if (std::strcmp(how, "shutdown") == 0) {
        require(emm_shutdown() == EMM_OK, "shutdown");
    } else if (std::strcmp(how, "retire") == 0) {
        require(emm_context_retire(context) == EMM_OK, "retire");
    } else {
        std::atexit(at_exit); // allocations are still served while the process ends
    }
    return 0;
}
