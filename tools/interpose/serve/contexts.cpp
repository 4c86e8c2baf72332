#include "contexts.h"

#include "../say.h"
#include "result.h"
#include "second_driver.h"

#include <algorithm>
#include <set>

namespace emm::run {
namespace {

struct LastContext {
    CUcontext cuda = nullptr;
    emm_context *emm = nullptr;
    bool is_green = false;
    uint64_t epoch = 0;
};

thread_local LastContext last_context __attribute__((tls_model("initial-exec")));

// Complains once: later failures are the same.
void complain(emm_status status) {
    static std::atomic<bool> said{false};
    if (!leaves_to_driver(status) && !said.exchange(true)) {
        say("%s", emm_last_error()->text);
    }
}

} // namespace

CUcontext cuda_of(emm_context *context) {
    auto info = sized<emm_context_info>();
    return emm_context_get_info(context, &info) < 0 ? nullptr : info.cuda_context;
}

emm_context *Contexts::current(emm_status &ret_status, bool &ret_green) {
    CUcontext context = nullptr;
    ret_status = EMM_E_NO_CONTEXT;
    if (driver_.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context) {
        return nullptr;
    }
    const uint64_t now = epoch();
    if (last_context.cuda == context && last_context.epoch == now) {
        ret_status = EMM_OK;
        ret_green = last_context.is_green;
        return last_context.emm;
    }
    emm_context *const found = of(context, ret_status);
    if (found) {
        ret_green = cuda_of(found) != context;
        last_context = {context, found, ret_green, now};
    }
    return found;
}

emm_context *Contexts::of(CUcontext context, emm_status &ret_status) {
    if (emm_context *found = known(context)) {
        ret_status = EMM_OK;
        return found;
    }
    emm_context *made = nullptr;
    ret_status = emm_context_from(context, &made);
    if (ret_status < 0) {
        complain(ret_status);
        return nullptr;
    }
    try {
        const std::lock_guard lock(mutex_);
        known_.emplace(context, made);
    } catch (const std::bad_alloc &) {
        ret_status = EMM_E_OUT_OF_HOST_MEMORY;
        return nullptr;
    }
    context_begins(made);
    report_second_driver(); // programs open a second driver before they have a context there
    return made;
}

emm_context *Contexts::known(CUcontext context) {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(context);
    return found == known_.end() ? nullptr : found->second;
}

int32_t device_of_context(emm_context *context) {
    auto info = sized<emm_context_info>();
    return emm_context_get_info(context, &info) < 0 ? -1 : info.device;
}

emm_context *Contexts::known_on(CUdevice device) {
    const std::vector<emm_context *> found = all_on(device);
    return found.empty() ? nullptr : found.front();
}

emm_context *Contexts::lasting_on(CUdevice device) {
    emm_status status = EMM_OK;
    const CUcontext primary = retained_on(device).context;
    return primary ? of(primary, status) : known_on(device);
}

std::vector<emm_context *> Contexts::all_on(CUdevice device) {
    std::vector<emm_context *> found = all();
    std::erase_if(found, [&](emm_context *each) { return device_of_context(each) != device; });
    return found;
}

std::vector<emm_context *> Contexts::all() {
    std::vector<emm_context *> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[cuda, context] : known_) {
        // A green context has the record of its primary context.
        if (std::find(found.begin(), found.end(), context) == found.end()) {
            found.push_back(context);
        }
    }
    return found;
}

emm_context *Contexts::end(CUcontext context) {
    emm_context *const ending = known(context);
    {
        const std::lock_guard lock(mutex_);
        attached_.erase(context); // whatever the number of its attachments
    }
    if (!ending) {
        return nullptr;
    }
    wait_for_work_of(context);
    const std::unique_lock no_questions(ending_);
    const Turn::Locked locked;
    emm_context_retire(ending);
    begin_epoch();
    const std::lock_guard lock(mutex_);
    std::erase_if(known_,
                  [&](const auto &each) { return each.second == ending; }); // green ones too
    return ending;
}

void Contexts::wait_for_work_of(CUcontext context) const {
    const Current current(driver_, context);
    if (current.result() == CUDA_SUCCESS) {
        driver_.cuCtxSynchronize();
    }
}

void Contexts::count_attach(CUcontext context) {
    const std::lock_guard lock(mutex_);
    attached_[context]++;
}

bool Contexts::count_detach(CUcontext context) {
    const std::lock_guard lock(mutex_);
    const auto found = attached_.find(context);
    if (found == attached_.end()) {
        return true;
    }
    if (--found->second == 0) {
        attached_.erase(found);
    }
    return false;
}

std::mutex &Contexts::primary_mutex(CUdevice device) {
    const std::lock_guard lock(mutex_);
    return primary_mutexes_[device];
}

void Contexts::count_retain(CUdevice device, CUcontext context) {
    const std::lock_guard lock(mutex_);
    Retained &retained = retained_[device];
    retained.context = context;
    retained.count++;
    retained.latest = ++retains_;
}

bool Contexts::count_release(CUdevice device) {
    const std::lock_guard lock(mutex_);
    const auto found = retained_.find(device);
    if (found == retained_.end() || --found->second.count > 0) {
        return false;
    }
    retained_.erase(found);
    return true;
}

std::vector<CUcontext> Contexts::all_cuda() {
    const std::lock_guard lock(mutex_);
    std::set<CUcontext> found;
    for (const auto &[context, record] : known_) {
        found.insert(context);
    }
    for (const auto &[device, retained] : retained_) {
        found.insert(retained.context);
    }
    for (const auto &[handle, green] : greens_) {
        found.insert(green.context);
    }
    return {found.begin(), found.end()};
}

void Contexts::green_made(CUgreenCtx_st *handle, const Green &green) {
    const std::lock_guard lock(mutex_);
    greens_[handle] = green;
}

bool Contexts::find_green(CUgreenCtx_st *handle, Green &ret_green) {
    const std::lock_guard lock(mutex_);
    const auto found = greens_.find(handle);
    if (found == greens_.end()) {
        return false;
    }
    ret_green = found->second;
    return true;
}

void Contexts::green_ends(CUgreenCtx_st *handle) {
    {
        const std::lock_guard lock(mutex_);
        known_.erase(greens_[handle].context);
        greens_.erase(handle);
    }
    begin_epoch();
}

bool Contexts::is_retained(CUcontext context) {
    const std::lock_guard lock(mutex_);
    return std::any_of(retained_.begin(), retained_.end(),
                       [&](const auto &each) { return each.second.context == context; });
}

Contexts::Retained Contexts::retained_on(CUdevice device) {
    const std::lock_guard lock(mutex_);
    const auto found = retained_.find(device);
    return found == retained_.end() ? Retained() : found->second;
}

} // namespace emm::run
