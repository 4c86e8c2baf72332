#include "sharing/exporter/exporter.h"

#include "observe/descriptors.h"
#include "observe/error.h"
#include "observe/process.h"
#include "sockets/message.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <unistd.h>
#include <utility>
#include <vector>

namespace emm::sharing {

struct ServedExport {
    const emm_context *context;
    emm_ipc_handle handle;
    std::vector<emm_ipc_part> parts;
    bool ended = false;
    uint32_t batches = 0; // batches that are under way
};

namespace {

using ServedByGeneration = std::multimap<uint64_t, ServedExport>;

struct ServedExports {
    std::mutex mutex;
    std::condition_variable has_rest;
    ServedByGeneration all; // at 0 until publish_export
};

constexpr auto &served_exports = observe::immortal<ServedExports>;

// The result is the end of the map if no export matches. The caller holds the mutex.
ServedByGeneration::iterator find(const uint8_t (&handle)[64], uint64_t generation) noexcept {
    const auto [begin, end] = served_exports().all.equal_range(generation);
    const auto found = std::find_if(begin, end, [&](const auto &each) {
        return !each.second.ended && is_same(each.second.handle.handle, handle);
    });
    return found != end ? found : served_exports().all.end();
}

bool is_of(const emm_context &context, ServedByGeneration::iterator served) noexcept {
    return served != served_exports().all.end() && served->second.context == &context;
}

// Returns the element behind it.
ServedByGeneration::iterator remove(std::unique_lock<std::mutex> &lock,
                                    ServedByGeneration::iterator its) noexcept {
    its->second.ended = true;
    served_exports().has_rest.wait(lock, [&] { return its->second.batches == 0; });
    return served_exports().all.erase(its);
}

emm_status refuse_source(const char *expected) {
    return observe::refuse("serve_ipc: expected {}, found none", expected);
}

emm_status check(const emm_ipc_source &source, uint64_t &ret_total) {
    const bool is_pool = source.kind == EMM_IPC_POOL;
    if (source.struct_size < sizeof source || !source.parts || source.part_count == 0) {
        return refuse_source("a whole emm_ipc_source with parts");
    }
    if (!is_pool && source.kind != EMM_IPC_FILE_DESCRIPTOR) {
        return refuse_source("a kind that is served by descriptor");
    }
    if (is_pool) {
        ret_total = source.offset + source.size;
        return source.part_count == 1 && source.pointer && source.size > 0 &&
                       source.size <= UINT64_MAX - source.offset
                   ? EMM_OK
                   : refuse_source("one memory pool and the export data of a pointer");
    }
    uint64_t total = 0;
    for (uint64_t i = 0; i < source.part_count; ++i) {
        if (source.parts[i].size == 0 || source.parts[i].size > UINT64_MAX - total) {
            return refuse_source("parts with a size");
        }
        total += source.parts[i].size;
    }
    ret_total = total;
    return source.size > 0 && source.size <= total && source.offset <= total - source.size
               ? EMM_OK
               : refuse_source("an allocation inside of its parts");
}

// The number of parts follows the secret, because importers want to know it before they ask.
emm_status make_handle(const emm_ipc_source &source, uint8_t (&ret_handle)[64]) {
    if (source.kind == EMM_IPC_POOL) {
        std::memcpy(ret_handle, source.pointer, sizeof ret_handle);
        return EMM_OK;
    }
    DescriptorHandle made = {};
    made.parts = source.part_count;
    EMM_TRY(get_random(made.secret, sizeof made.secret));
    std::memcpy(ret_handle, &made, sizeof ret_handle);
    return EMM_OK;
}

CUresult export_part(const driver::Driver &driver, uint32_t kind, const emm_ipc_part &part,
                     int *ret_descriptor) noexcept {
    if (kind == EMM_IPC_POOL) {
        return driver.cuMemPoolExportToShareableHandle(
            ret_descriptor, reinterpret_cast<CUmemoryPool>(static_cast<uintptr_t>(part.handle)),
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    }
    return driver.cuMemExportToShareableHandle(ret_descriptor, part.handle,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

// CUDA cannot make a descriptor close-on-exec. A program that is started by posix_spawn or vfork at
// this moment inherits it.
CUresult export_own_part(const driver::Driver &driver, uint32_t kind, const emm_ipc_part &part,
                         int *ret_descriptor) noexcept {
    const observe::NoFork held;
    const CUresult result = export_part(driver, kind, part, ret_descriptor);
    if (result == CUDA_SUCCESS) {
        fcntl(*ret_descriptor, F_SETFD, FD_CLOEXEC);
        observe::own(*ret_descriptor);
    }
    return result;
}

} // namespace

emm_status serve_export(emm_context &context, const emm_ipc_source &source,
                        emm_ipc_handle *ret_handle) {
    emm_ipc_handle made = {};
    EMM_TRY(check(source, made.exported_size));
    EMM_TRY(make_handle(source, made.handle));
    made.kind = source.kind;
    made.offset = source.offset;
    made.size = source.size;
    const std::lock_guard lock(served_exports().mutex);
    served_exports().all.emplace(
        0, ServedExport{&context, made, {source.parts, source.parts + source.part_count}});
    *ret_handle = made;
    return EMM_OK;
}

emm_status withdraw_export(const emm_context &context, const emm_ipc_handle &handle) noexcept {
    std::unique_lock lock(served_exports().mutex);
    const auto served = find(handle.handle, handle.generation);
    if (!is_of(context, served)) {
        lock.unlock();
        return observe::fail(EMM_E_NOT_OWNED, 0,
                             "withdraw_ipc: {} does not serve this handle, or no longer does",
                             context);
    }
    remove(lock, served);
    return EMM_OK;
}

emm_status publish_export(const emm_context &context, const emm_ipc_handle &handle) {
    const std::lock_guard lock(served_exports().mutex);
    const auto served = find(handle.handle, 0);
    if (!is_of(context, served)) {
        return observe::fail(EMM_E_PLUGIN_FAILED, 0,
                             "the plugin returned an IPC handle to serve by descriptor, but "
                             "serve_ipc did not make it");
    }
    auto node = served_exports().all.extract(served);
    node.key() = handle.generation;
    served_exports().all.insert(std::move(node));
    return EMM_OK;
}

void withdraw_exports(const emm_context &context) noexcept {
    std::unique_lock lock(served_exports().mutex);
    auto &all = served_exports().all;
    for (auto each = all.begin(); each != all.end();) {
        const bool is_its = each->second.context == &context && !each->second.ended;
        each = is_its ? remove(lock, each) : std::next(each);
    }
}

ServedReply::ServedReply(const Request &request) noexcept {
    uint8_t own[8];
    reply_.magic = wire_magic;
    const bool is_ours =
        get_nonce(own) == EMM_OK && std::memcmp(own, request.nonce, sizeof own) == 0;
    std::unique_lock lock(served_exports().mutex);
    const auto found = is_ours && request.generation != 0 ? find(request.handle, request.generation)
                                                          : served_exports().all.end();
    ServedExport *const served = found != served_exports().all.end() ? &found->second : nullptr;
    if (!served || request.first >= served->parts.size()) {
        refuse(served ? EMM_E_INVALID_VALUE : EMM_E_NOT_OWNED, 0);
        return;
    }
    const uint64_t left = served->parts.size() - request.first;
    reply_.total = served->parts.size();
    reply_.bytes = served->handle.exported_size;
    reply_.count = static_cast<uint32_t>(
        std::min<uint64_t>({left, parts_at_once, std::max(request.most, 1u)}));
    std::copy_n(served->parts.begin() + static_cast<std::ptrdiff_t>(request.first), reply_.count,
                parts_);
    ++served->batches;
    export_ = served;
    lock.unlock();
    fill(*served->context, served->handle.kind);
}

ServedReply::~ServedReply() {
    for (uint32_t i = 0; i < reply_.count; ++i) {
        observe::forget_and_close(descriptors_[i]);
    }
    if (export_) {
        const std::lock_guard lock(served_exports().mutex);
        --export_->batches;
        served_exports().has_rest.notify_all();
    }
}

void ServedReply::refuse(emm_status status, int32_t driver_result) noexcept {
    reply_.status = status;
    reply_.driver_result = driver_result;
    reply_.count = 0;
}

// If descriptors run out, the reply has fewer parts.
void ServedReply::fill(const emm_context &context, uint32_t kind) noexcept {
    const uint32_t wanted = reply_.count;
    reply_.count = 0;
    const driver::Current current(context.driver, context.cuda_context, context.id);
    CUresult result = current.result();
    while (reply_.count < wanted && result == CUDA_SUCCESS) {
        const emm_ipc_part &part = parts_[reply_.count];
        int descriptor = -1;
        result = export_own_part(context.driver, kind, part, &descriptor);
        if (result == CUDA_SUCCESS) {
            descriptors_[reply_.count] = descriptor;
            reply_.sizes[reply_.count++] = part.size;
        }
    }
    if (reply_.count == 0) {
        refuse(cuda::status_of(result), result);
    }
}

// The thread that hands out descriptors, and handles to importers that know their names.
//
// A process has one such thread, from its first export on, and one listening socket
// (sockets/server.h). Both stay until the process ends: another export may come at any time, and a
// waiting thread costs nothing. No thread joins it, and no exit handler stops it. A forked child
// has neither the thread nor, once the fork handler has run, the socket. An importer whose
// connection closes unanswered tries again.

namespace {

constexpr int backlog = 64;

void answer_with_parts(int socket, const Request &request) noexcept {
    const ServedReply batch(request);
    const Reply &reply = batch.reply();
    sockets::send_message(socket, &reply, sizeof reply, batch.descriptors(), reply.count);
}

void answer_with_handle(int socket, const HandleRequest &request) noexcept {
    HandleReply reply = {};
    reply.magic = handle_magic;
    reply.status = find_export(request.name, &reply.handle) ? EMM_OK : EMM_E_NOT_OWNED;
    sockets::send_message(socket, &reply, sizeof reply, nullptr, 0);
}

void answer(int socket, const void *request, long size) noexcept {
    switch (what_is_asked(request, size)) {
    case Asked::parts:
        return answer_with_parts(socket, *static_cast<const Request *>(request));
    case Asked::handle:
        return answer_with_handle(socket, *static_cast<const HandleRequest *>(request));
    case Asked::nothing:
        break;
    }
}

emm_status fail_serving(const char *what, const char *why) noexcept {
    return observe::fail(EMM_E_OUT_OF_HOST_MEMORY, 0, "no {} to serve exports: {}", what, why);
}

constinit sockets::Listener listener;
constinit sockets::Server server(listener, answer_timeout, &answer);

emm_status listen() {
    uint8_t nonce[8];
    EMM_TRY(get_nonce(nonce));
    const int error = listener.open(socket_name(nonce), backlog);
    return error == 0 ? EMM_OK : fail_serving("socket", std::strerror(error));
}

// After a failure this may be called again. If the process may have no descriptor, the thread
// pauses for a moment between tries.
emm_status start_once() {
    static std::mutex mutex;
    static bool started = false;
    const std::lock_guard lock(mutex);
    if (started) {
        return listener.number() >= 0 ? EMM_OK
                                      : fail_serving("socket", "the program has closed it");
    }
    EMM_TRY(listen());
    started = sockets::start_thread("emm-ipc", [] {
        while (listener.number() >= 0) {
            server.run();
            usleep(10'000);
        }
    });
    if (!started) {
        listener.close();
        return fail_serving("thread", "the system refuses it");
    }
    return EMM_OK;
}

} // namespace

emm_status start_serving() noexcept {
    return observe::with_memory("no host memory to serve exports", &start_once);
}

} // namespace emm::sharing
