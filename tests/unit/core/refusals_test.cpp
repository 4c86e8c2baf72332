// Behaviour: the answers of each call for a context after its retirement, after emm_shutdown, and
// in a forked child.
#include "catch.h"
#include "recorder.h"

#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Call {
    const char *name;
    bool is_free; // a late free: there is nothing left to do
    emm_status (*make)(emm_context *context);
};

const Call calls[] = {
    {"emm_context_reset", false, [](emm_context *c) { return emm_context_reset(c); }},
    {"emm_memalloc", false,
     [](emm_context *c) {
         emm_deviceptr ptr = 0;
         return emm_memalloc(c, 64, EMM_STREAM_LEGACY, &ptr);
     }},
    {"emm_memfree", true,
     [](emm_context *c) { return emm_memfree(c, 0x1000, 64, EMM_STREAM_LEGACY); }},
    {"emm_memhostalloc", false,
     [](emm_context *c) {
         void *host = nullptr;
         return emm_memhostalloc(c, 64, 0, &host, nullptr);
     }},
    {"emm_memhostfree", true,
     [](emm_context *c) {
         static char host;
         return emm_memhostfree(c, &host, 64, 0, EMM_STREAM_LEGACY);
     }},
    {"emm_mempin", false,
     [](emm_context *c) {
         static char host[64];
         return emm_mempin(c, host, 64, 0, nullptr);
     }},
    {"emm_memunpin", true,
     [](emm_context *c) {
         static char host[64];
         return emm_memunpin(c, host, 64);
     }},
    {"emm_memallocmanaged", false,
     [](emm_context *c) {
         emm_deviceptr ptr = 0;
         return emm_memallocmanaged(c, 64, EMM_ATTACH_GLOBAL, &ptr);
     }},
    {"emm_memfreemanaged", true,
     [](emm_context *c) { return emm_memfreemanaged(c, 0x1000, 64, EMM_STREAM_LEGACY); }},
    {"emm_get_memory_info", false,
     [](emm_context *c) {
         size_t free = 0, total = 0;
         return emm_get_memory_info(c, &free, &total);
     }},
    {"emm_get_stats", false,
     [](emm_context *c) {
         auto stats = sized<emm_stats>();
         return emm_get_stats(c, &stats);
     }},
    {"emm_context_reset_peaks", false, [](emm_context *c) { return emm_context_reset_peaks(c); }},
    {"emm_trim", false, [](emm_context *c) { return emm_trim(c, 0, nullptr); }},
    {"emm_context_pause", false,
     [](emm_context *c) { return emm_context_pause(c, EMM_PAUSE_KEEP, nullptr); }},
    {"emm_context_resume", false, [](emm_context *c) { return emm_context_resume(c, 0); }},
    {"emm_context_read_paused", false,
     [](emm_context *c) {
         char host[64];
         return emm_context_read_paused(c, 0x1000, sizeof host, host);
     }},
    {"emm_query", false,
     [](emm_context *c) {
         auto info = sized<emm_block_info>();
         return emm_query(c, 0x1000, &info);
     }},
    {"emm_record_use", false,
     [](emm_context *c) { return emm_record_use(c, 0x1000, 64, EMM_STREAM_LEGACY); }},
    {"emm_set_peer_access", false, [](emm_context *c) { return emm_set_peer_access(c, 0, 1); }},
    {"emm_memory_alloc", false,
     [](emm_context *c) {
         emm_memory *memory = nullptr;
         return emm_memory_alloc(c, 64, EMM_STREAM_LEGACY, &memory);
     }},
    {"emm_memory_wrap", false,
     [](emm_context *c) {
         emm_memory *memory = nullptr;
         return emm_memory_wrap(c, 0x1000, nullptr, 64, nullptr, nullptr, &memory);
     }},
    {"emm_get_ipc_handle", false,
     [](emm_context *c) {
         emm_ipc_handle handle = {};
         return emm_get_ipc_handle(c, 0x1000, 64, &handle);
     }},
    {"emm_stream_register", false,
     [](emm_context *c) { return emm_stream_register(c, EMM_STREAM_LEGACY); }},
    {"emm_capture_begin", false,
     [](emm_context *c) { return emm_capture_begin(c, EMM_STREAM_LEGACY); }},
    {"emm_defer_cleanup_begin", false, [](emm_context *c) { return emm_defer_cleanup_begin(c); }},
};

void check_calls(emm_context *context, emm_status expected) {
    for (const Call &call : calls) {
        INFO(call.name);
        CHECK(call.make(context) == (call.is_free ? EMM_OK : expected));
    }
    CHECK(Recorder::the().count("memfree") == 0);
}

} // namespace

TEST_CASE("each call for a retired context is refused, and its frees are late ones") {
    emm_context *context = recorded_context();
    REQUIRE(emm_context_retire(context) == EMM_OK);
    check_calls(context, EMM_E_RETIRED);
}

TEST_CASE("after emm_shutdown each call for a context is refused, and frees are late ones") {
    emm_context *context = recorded_context();
    REQUIRE(emm_shutdown() == EMM_OK);
    check_calls(context, EMM_E_SHUT_DOWN);
}

TEST_CASE("each call for a context is refused in a forked child") {
    emm_context *context = recorded_context();
    const pid_t child = fork();
    if (child == 0) {
        int number = 0; // of the first one that is not
        for (const Call &call : calls) {
            number++;
            if (call.make(context) != EMM_E_FORKED) {
                _exit(number);
            }
        }
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
