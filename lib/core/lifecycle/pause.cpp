#include "core/lifecycle/lifecycle.h"
#include "core/memory/call.h"
#include "core/memory/memory.h"
#include "core/memory/recovery.h"
#include "core/record/asleep.h"
#include "core/record/context.h"
#include "driver/account.h"
#include "observe/error.h"
#include "observe/log.h"

#include <fmt/format.h>
#include <string>
#include <vector>

namespace emm::core {
namespace {

constexpr uint32_t contents = EMM_PAUSE_KEEP | EMM_PAUSE_DISCARD;

emm_status check_pause_flags(uint32_t flags) {
    const uint32_t content = flags & contents;
    if ((content == EMM_PAUSE_KEEP || content == EMM_PAUSE_DISCARD) &&
        (flags & ~(contents | EMM_PAUSE_UNSHARED)) == 0) {
        return EMM_OK;
    }
    return observe::refuse("flags: expected EMM_PAUSE_KEEP or EMM_PAUSE_DISCARD, perhaps with "
                           "EMM_PAUSE_UNSHARED, found {}",
                           flags);
}

// EMM_OK if the guard owns the pool's lock. Else `sentence` describes a second try by this thread.
emm_status expect_owned(const OwnerGuard &guard, const emm_context &pool, const char *sentence) {
    if (guard.owns() || !is_for_operator()) {
        return guard.expect_owned(sentence);
    }
    EMM_TRY(admit(pool)); // the owner may be retiring the pool
    return observe::fail(EMM_E_BUSY, 0,
                         "{} is busy: a thread of the program makes, pauses, resumes, resets or "
                         "retires it, and has not ended in time",
                         pool);
}

emm_status pause_one(emm_context &pool, const emm_context &context, uint32_t flags,
                     size_t &ret_released) {
    const OwnerGuard guard = own_for_pause(pool.manager_lock);
    EMM_TRY(expect_owned(guard, pool, "a plugin must not pause the context that it serves"));
    EMM_TRY(admit_alive(pool));
    const Returns::Scope returning(pool.returns);
    if (!pool.pending.in_section()) {
        flush(pool); // pending frees need no copy
    }
    const emm_status status = EMM_CALL(pool, pause, flags, &ret_released);
    if (status == EMM_OK) {
        pool.paused_by = &context;
        pool.paused_in = context.pauses + 1;
        observe::log(EMM_LOG_INFO, "{} is paused: {} bytes went back to the driver", pool,
                     ret_released);
    }
    return status;
}

uint64_t paused_bytes(emm_context &pool) noexcept {
    auto stats = observe::sized<emm_stats>();
    return get_stats(pool, &stats) >= EMM_OK ? stats.paused_bytes : 0;
}

// The pool's lock is held.
emm_status resume_owned(emm_context &pool, const emm_context &context, uint32_t flags,
                        const void *caller) {
    EMM_TRY(admit_alive(pool));
    const bool is_latest = pool.paused_by == &context && pool.paused_in == context.pauses;
    if ((flags & EMM_RESUME_UNDO) != 0 && !is_latest) {
        return EMM_OK;
    }
    const auto ask = [&] { return EMM_CALL(pool, resume, flags & ~EMM_RESUME_UNDO); };
    emm_status status = ask();
    if (status == EMM_E_OUT_OF_MEMORY) {
        const uint64_t size = paused_bytes(pool);
        status = recover(pool, size, status, ask);
        if (status == EMM_E_OUT_OF_MEMORY) {
            status = exhausted(pool, status, size, caller);
        }
    }
    if (status == EMM_OK) {
        observe::log(EMM_LOG_INFO, "{} is resumed", pool);
    }
    return status;
}

// The operator's pause holds until the operator's resume, even if the pause begins during this
// call.
emm_status resume_one(emm_context &pool, const emm_context &context, uint32_t flags,
                      const void *caller) {
    for (;;) {
        wait_while_asleep();
        const OwnerGuard guard = own_for_resume(pool.manager_lock);
        EMM_TRY(expect_owned(guard, pool, "a plugin must not resume the context that it serves"));
        if (!must_wait_asleep()) {
            return resume_owned(pool, context, flags, caller);
        }
    }
}

// After a failure, resumes the pools that were paused. The error's sentence also names those that
// stay paused.
void resume_those(const std::vector<emm_context *> &paused, const emm_context &context) {
    std::string stay;
    {
        const observe::Preserved said;
        for (emm_context *pool : paused) {
            if (resume_one(*pool, context, 0, nullptr) < EMM_OK) {
                observe::log(EMM_LOG_ERROR, "{} stays paused: {}", *pool,
                             observe::last_error()->text);
                observe::with_memory("no host memory for an error text", [&] {
                    stay += fmt::format("; {} stays paused", *pool);
                    return EMM_OK;
                });
            }
        }
    }
    if (!stay.empty()) {
        observe::ErrorDetail detail = observe::last_detail();
        detail.text += stay;
        observe::fail(std::move(detail));
    }
}

// A pool that is not being served has nothing to pause, unless the caller means that pool alone.
bool is_meant(const emm_context &pool, const emm_context &context) noexcept {
    return &pool == &context || is_served(pool);
}

} // namespace

// Pauses all pools or none, because a program whose call has failed goes on using them.
emm_status pause(emm_context &context, uint32_t flags, size_t *ret_released) {
    EMM_TRY(expect_outside("paused"));
    EMM_TRY(check_pause_flags(flags));
    wait_while_asleep();
    size_t all = 0;
    emm_status status = EMM_OK;
    std::vector<emm_context *> paused;
    size_t count = 0;
    for_each_affected(context, [&](emm_context &) { count++; });
    paused.reserve(count); // once a pool is paused, no lack of memory may fail the call
    for_each_affected(context, [&](emm_context &pool) {
        if (status < EMM_OK || !is_meant(pool, context)) {
            return;
        }
        size_t released = 0;
        status = pause_one(pool, context, flags, released);
        if (status == EMM_OK) {
            paused.push_back(&pool);
        }
        all += released;
    });
    if (status < EMM_OK) {
        resume_those(paused, context);
        return status;
    }
    if (ret_released) {
        *ret_released = all;
    }
    driver::account().give_back_reserves();
    context.pauses += paused.empty() ? 0 : 1;
    return paused.empty() ? EMM_S_IGNORED : EMM_OK;
}

emm_status resume(emm_context &context, uint32_t flags, const void *caller) {
    EMM_TRY(expect_outside("resumed"));
    if ((flags & ~(EMM_RESUME_KEEP_COPY | EMM_RESUME_UNDO)) != 0) {
        return observe::refuse("flags: expected 0, EMM_RESUME_KEEP_COPY, EMM_RESUME_UNDO or both, "
                               "found {}",
                               flags);
    }
    emm_status status = EMM_OK;
    for_each_affected(context, [&](emm_context &pool) {
        if (status >= EMM_OK && is_meant(pool, context)) {
            status = resume_one(pool, context, flags, caller);
        }
    });
    if (status >= EMM_OK && context.pauses > 0) {
        context.pauses = (flags & EMM_RESUME_UNDO) != 0 ? context.pauses - 1 : 0;
    }
    return status < EMM_OK ? status : EMM_OK;
}

emm_status read_paused(emm_context &pool, emm_deviceptr ptr, size_t size, void *host) {
    EMM_TRY(expect_outside("read"));
    const OwnerGuard guard(pool.manager_lock);
    EMM_TRY(guard.expect_owned("a plugin must not read the paused context that it serves"));
    EMM_TRY(admit_alive(pool));
    return size == 0 ? emm_status(EMM_OK) : EMM_CALL(pool, read_paused, ptr, size, host);
}

} // namespace emm::core
