// Behaviour: requests that run out of memory while another thread returns some.
#include "../recorder.h"
#include "catch.h"
#include "core/record/context.h"
#include "core/record/deferred.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

using emm::core::Returns;

namespace {

constexpr auto for_ever = std::chrono::hours(1); // a test that waits so long reaches its limit

std::atomic<bool> is_giving_back{false}, is_given_back{false};
std::atomic<int> attempts{0};

// Ends when the request beside it waits, or has been tried again without success.
void give_back_slowly(const emm_context &context) {
    is_giving_back = true;
    while (context.returns.waiting() == 0 && attempts < 2) {
        std::this_thread::yield();
    }
    is_given_back = true;
}

emm_status free_slowly(void *context, uint32_t) {
    give_back_slowly(*static_cast<emm_context *>(context));
    return EMM_OK;
}

emm_status memalloc_once_given_back(size_t) {
    ++attempts;
    return is_given_back ? EMM_OK : EMM_E_OUT_OF_MEMORY;
}

template <class Return> emm_status ask_beside(emm_context *context, const Return &give_back) {
    Recorder::the().on_memalloc = memalloc_once_given_back;
    std::thread other(give_back);
    while (!is_giving_back) {
        std::this_thread::yield();
    }
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
    other.join();
    return status;
}

void queue(emm_context *context, int entries, emm_deferred function, void *argument) {
    for (int i = 0; i < entries; ++i) {
        CHECK(Recorder::the().host->defer(context, function, argument, 1) == EMM_OK);
    }
}

emm_status free_nothing(void *, uint32_t) {
    return EMM_OK;
}

// Its plugin's first trim gives back slowly; later ones find nothing.
emm_context *context_that_trims_slowly() {
    static const emm_context *trimmed = nullptr;
    Recorder::the().table.trim = [](emm_manager *, size_t, size_t *ret_released) -> emm_status {
        if (!is_giving_back.exchange(true)) {
            give_back_slowly(*trimmed);
        }
        *ret_released = 0;
        return EMM_OK;
    };
    emm_context *const context = recorded_context();
    trimmed = context;
    return context;
}

} // namespace

TEST_CASE("a request waits for the frees that another thread's flush has taken") {
    emm_context *const context = recorded_context();
    const emm_status status = ask_beside(context, [context] {
        queue(context, 1, &free_slowly, context);
        queue(context, 10, &free_nothing, nullptr); // past the limit
    });
    CHECK(status == EMM_OK);
    CHECK(attempts == 2);
}

TEST_CASE("a request waits for what another thread's trim gives back") {
    emm_context *const context = context_that_trims_slowly();
    emm_status trimming = EMM_E_BUSY; // Catch2 counts on one thread
    const emm_status status =
        ask_beside(context, [context, &trimming] { trimming = emm_trim(context, 0, nullptr); });
    CHECK(status == EMM_OK);
    CHECK(trimming == EMM_OK);
    CHECK(attempts == 2);
}

TEST_CASE("a request waits for what another request's recovery gives back") {
    emm_context *const context = context_that_trims_slowly();
    Recorder::the().on_memalloc = [](size_t size) {
        return size == 1 ? EMM_E_OUT_OF_MEMORY : memalloc_once_given_back(size);
    };
    emm_status of_other = EMM_OK;
    std::thread other([context, &of_other] {
        emm_deviceptr ptr = 0;
        of_other = emm_memalloc(context, 1, EMM_STREAM_LEGACY, &ptr);
    });
    while (!is_giving_back) {
        std::this_thread::yield();
    }
    emm_deviceptr ptr = 0;
    const emm_status status = emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
    other.join();
    CHECK(of_other == EMM_E_OUT_OF_MEMORY);
    CHECK(status == EMM_OK);
}

TEST_CASE("a request from within a flush does not wait for that flush") {
    emm_context *const context = recorded_context();
    Recorder::the().on_memalloc = [](size_t) -> emm_status { return EMM_E_OUT_OF_MEMORY; };
    const auto ask = [](void *of, uint32_t) -> emm_status {
        emm_context *const flushed = static_cast<emm_context *>(of);
        CHECK_FALSE(flushed->returns.wait_for_others(for_ever));
        emm_deviceptr ptr = 0;
        CHECK(emm_memalloc(flushed, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_OUT_OF_MEMORY);
        Recorder::the().note("asked");
        return EMM_OK;
    };
    queue(context, 11, ask, context);
    CHECK(Recorder::the().count("asked") == 11);
    CHECK(context->returns.wait_for_others(for_ever));
}

TEST_CASE("a thread within a flush of one context does not wait for a flush of another") {
    Returns mine, another;
    std::optional<Returns::Scope> scope(mine);
    std::atomic<bool> is_within{false}, is_answered{false};
    std::thread other([&] {
        const Returns::Scope others(another);
        is_within = true;
        while (!is_answered) {
            std::this_thread::yield();
        }
    });
    while (!is_within) {
        std::this_thread::yield();
    }
    CHECK_FALSE(another.wait_for_others(for_ever));
    is_answered = true;
    other.join();
}

TEST_CASE("a request waits for the flushes before it, not for those that begin meanwhile") {
    Returns returns;
    std::optional<Returns::Scope> first(returns);
    std::atomic<bool> has_ended{false};
    std::thread waiting([&] { has_ended = returns.wait_for_others(for_ever); });
    while (returns.waiting() == 0) {
        std::this_thread::yield();
    }
    const Returns::Scope second(returns);
    CHECK_FALSE(has_ended);
    first.reset();
    waiting.join();
    CHECK(has_ended);
}

TEST_CASE("a wait for a flush that does not end is broken off") {
    Returns returns;
    const Returns::Scope scope(returns);
    std::thread waiting(
        [&] { CHECK_FALSE(returns.wait_for_others(std::chrono::milliseconds(1))); });
    waiting.join();
    CHECK(returns.waiting() == 0);
}
