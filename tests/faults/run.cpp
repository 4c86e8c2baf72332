#include "run.h"

#include <cstdlib>
#include <cstring>
#include <memory>

namespace faults {
namespace {

constexpr emm_deviceptr untouched = 0x5a5a5a5a5a5a;
void *const untouched_host = reinterpret_cast<void *>(0x5a5a5a5a);

// Whether emm has no part of it left.
bool is_gone(emm_status status) {
    return status >= EMM_OK || status == EMM_E_NOT_OWNED || status == EMM_E_ALREADY_FREED;
}

} // namespace

bool Run::fails(const char *what, emm_status status) {
    const emm_error &error = *emm_last_error();
    status_ = status;
    failed_at_ = std::string(what) + " answered " + std::to_string(status) + ", " + error.text;
    if (error.code != status || !error.text || !*error.text) {
        complain(std::string(what) + " failed with " + std::to_string(status) +
                 " and described another failure: " + std::to_string(error.code) + ", " +
                 error.text);
    }
    return false;
}

bool Run::alloc(size_t size, emm_stream stream) {
    emm_context *const of = context();
    emm_deviceptr ptr = untouched;
    if (call("memalloc", [&] { return emm_memalloc(of, size, stream, &ptr); })) {
        hold("memfree", ptr, [=] { return emm_memfree(of, ptr, size, stream); });
        return true;
    }
    left_alone("memalloc", ptr, untouched);
    return false;
}

bool Run::hostalloc(size_t size, uint32_t flags, emm_stream stream) {
    emm_context *const of = context();
    void *host = untouched_host;
    emm_deviceptr device = untouched;
    if (call("memhostalloc", [&] { return emm_memhostalloc(of, size, flags, &host, &device); })) {
        std::memset(host, 1, 16);
        hold("memhostfree", device, [=] { return emm_memhostfree(of, host, size, flags, stream); });
        return true;
    }
    left_alone("memhostalloc", host, untouched_host);
    left_alone("memhostalloc", device, untouched);
    return false;
}

bool Run::pin(size_t size, uint32_t flags) {
    emm_context *const of = context();
    const std::shared_ptr<void> bytes(std::aligned_alloc(4096, size), &std::free);
    emm_deviceptr device = untouched;
    if (call("mempin", [&] { return emm_mempin(of, bytes.get(), size, flags, &device); })) {
        hold("memunpin", device, [=] { return emm_memunpin(of, bytes.get(), size); });
        return true;
    }
    // If the undo failed, the driver still has these pinned, and they must not be used again.
    static std::vector<std::shared_ptr<void>> kept;
    kept.push_back(bytes);
    left_alone("mempin", device, untouched);
    return false;
}

bool Run::managed(size_t size, emm_stream stream) {
    emm_context *const of = context();
    emm_deviceptr ptr = untouched;
    if (call("memallocmanaged",
             [&] { return emm_memallocmanaged(of, size, EMM_ATTACH_GLOBAL, &ptr); })) {
        hold("memfreemanaged", ptr, [=] { return emm_memfreemanaged(of, ptr, size, stream); });
        return true;
    }
    left_alone("memallocmanaged", ptr, untouched);
    return false;
}

emm_memory *Run::handle(const char *what, const std::function<emm_status(emm_memory **)> &make) {
    auto *const none = reinterpret_cast<emm_memory *>(untouched_host);
    emm_memory *memory = none;
    if (call(what, [&] { return make(&memory); })) {
        hold(
            "releasing a handle", 0, [=] { return emm_memory_release(memory); }, true);
        return memory;
    }
    left_alone(what, memory, none);
    return nullptr;
}

void Run::undo_later(const char *what, std::function<emm_status()> undo, bool done_anyway) {
    hold(what, 0, std::move(undo), done_anyway, false);
}

// Whether it is gone.
bool Run::give_back(size_t index) {
    const Held held = held_[index];
    const emm_status status = inside(held.give_back);
    const bool is_lost = status == EMM_E_DEVICE_LOST && !held.is_free;
    if (status < EMM_OK && is_gone(status) && held.refused && !held.dropped) {
        complain(std::string(held.what) + " failed, and had been done all the same");
    }
    if (is_gone(status) || held.gone_anyway || is_lost) {
        held_.erase(held_.begin() + static_cast<ptrdiff_t>(index));
    } else {
        held_[index].refused = true;
    }
    const bool is_graphs = status == EMM_E_CAPTURING; // a plugin may answer this
    if (status < EMM_OK && !is_graphs && !has_failed()) {
        fails(held.what, status);
    }
    return status >= EMM_OK || is_graphs;
}

bool Run::free_oldest() {
    return !has_failed() && give_back(0);
}

bool Run::free_latest(size_t count) {
    for (size_t i = held_.size(); !has_failed() && count-- > 0;) {
        give_back(--i);
    }
    return !has_failed();
}

bool Run::free_all() {
    while (!has_failed() && !held_.empty()) {
        give_back(held_.size() - 1);
    }
    return !has_failed();
}

bool Run::free_every_second() {
    for (size_t i = 0; !has_failed() && i < held_.size(); i++) {
        give_back(i);
    }
    return !has_failed();
}

void Run::forgive() {
    for (Held &each : held_) {
        each.dropped = true;
    }
}

void Run::clean_up() {
    for (size_t i = held_.size(); i-- > 0;) {
        give_back(i);
    }
}

} // namespace faults
