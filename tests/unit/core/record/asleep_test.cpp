// Calls of the program that find a pool asleep by emm pause.
#include "core/record/asleep.h"

#include "../recorder.h"
#include "catch.h"
#include "core/memory/recovery.h"
#include "core/record/context.h"
#include "observe/log.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace {

using namespace emm::core;

// Puts the process to sleep for a while.
class Operator {
public:
    ~Operator() {
        if (thread_.joinable()) {
            thread_.join();
        }
    }
    void pause() {
        fall_asleep();
        thread_ = std::thread([] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            wake_up();
        });
        has_paused_ = true;
    }
    bool has_paused() const { return has_paused_; }

private:
    std::thread thread_;
    std::atomic<bool> has_paused_{false};
};

emm_status allocate(emm_context *context) {
    emm_deviceptr ptr = 0;
    return emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr);
}

// A thread that owns the lock while this lives.
class OtherOwner {
public:
    explicit OtherOwner(OwnerLock &lock) {
        std::atomic<bool> owns{false};
        thread_ = std::thread([&] {
            const OwnerGuard guard(lock);
            owns = true;
            owns.notify_one();
            ends_.wait(false);
        });
        owns.wait(false);
    }
    ~OtherOwner() {
        ends_ = true;
        ends_.notify_one();
        thread_.join();
    }

private:
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

int calls_of_program = 0;

emm_status count_deferred(void *, uint32_t) {
    calls_of_program++;
    return EMM_OK;
}

} // namespace

TEST_CASE("an allocation that finds its pool asleep waits, also where memory has run out before") {
    emm_context *const context = recorded_context();
    Operator its_operator;
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *, size_t, void *user_data) -> size_t {
                    static_cast<Operator *>(user_data)->pause();
                    return 1;
                },
                &its_operator) == EMM_OK);
    Recorder::the().on_memalloc = [&](size_t) -> emm_status {
        return !its_operator.has_paused() ? EMM_E_OUT_OF_MEMORY
               : must_wait_asleep()       ? EMM_E_PAUSED
                                          : EMM_OK;
    };
    CHECK(allocate(context) == EMM_OK);
    CHECK(its_operator.has_paused());
    REQUIRE(emm_set_pressure_callback(nullptr, nullptr) == EMM_OK);
}

TEST_CASE("a pool that wakes behind its answer is asked once more, and no more than once") {
    emm_context *const context = recorded_context();
    Recorder::the().clear();
    Recorder::the().on_memalloc = [](size_t) {
        return Recorder::the().count("memalloc") == 1 ? EMM_E_PAUSED : EMM_OK;
    };
    CHECK(allocate(context) == EMM_OK);
    Recorder::the().clear();
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_PAUSED; };
    CHECK(allocate(context) == EMM_E_PAUSED);
    CHECK(Recorder::the().count("memalloc") == 2);
}

TEST_CASE("an export that finds its pool asleep waits") {
    Recorder::the().table.get_ipc_handle = [](emm_manager *, emm_deviceptr, size_t,
                                              emm_ipc_handle *) -> emm_status {
        return must_wait_asleep() ? EMM_E_PAUSED : EMM_E_NOT_SUPPORTED;
    };
    Recorder::the().table.release_ipc_handle =
        [](emm_manager *, const emm_ipc_handle *) -> emm_status { return EMM_OK; };
    emm_context *const context = recorded_context();
    Operator its_operator;
    its_operator.pause();
    emm_ipc_handle handle = {};
    CHECK(emm_get_ipc_handle(context, 0x1000, 64, &handle) == EMM_E_NOT_SUPPORTED);
    CHECK_FALSE(must_wait_asleep());
}

TEST_CASE("a pool that a thread of the program keeps busy is neither paused nor resumed by the "
          "operator") {
    emm_context *const context = recorded_context();
    const OtherOwner owner(context->manager_lock);
    const ForOperator for_operator(std::chrono::steady_clock::now());
    CHECK(emm_context_pause(context, EMM_PAUSE_KEEP, nullptr) == EMM_E_BUSY);
    CHECK(emm_last_error()->text ==
          fmt::format("{} is busy: a thread of the program makes, pauses, resumes, resets or "
                      "retires it, and has not ended in time",
                      *context));
    CHECK(emm_context_resume(context, 0) == EMM_E_BUSY);
}

TEST_CASE("the operator's thread runs no code of the program") {
    emm_context *const context = recorded_context();
    calls_of_program = 0;
    REQUIRE(emm_set_pressure_callback(
                [](emm_context *, size_t, void *) -> size_t { return size_t(calls_of_program++); },
                nullptr) == EMM_OK);
    REQUIRE(emm_set_log_callback(
                EMM_LOG_ERROR, [](int32_t, const char *, void *) { calls_of_program++; },
                nullptr) == EMM_OK);
    REQUIRE(defer(*context, &count_deferred, nullptr, 1) == EMM_OK);
    Recorder::the().on_memalloc = [](size_t) { return EMM_E_OUT_OF_MEMORY; };
    {
        const ForOperator for_operator(std::chrono::steady_clock::now());
        CHECK(allocate(context) == EMM_E_OUT_OF_MEMORY);
        CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
        emm::observe::log(EMM_LOG_ERROR, "a line of a test");
    }
    CHECK(calls_of_program == 0);
    CHECK(emm_trim(context, 0, nullptr) == EMM_OK);
    CHECK(calls_of_program == 1);
    REQUIRE(emm_set_pressure_callback(nullptr, nullptr) == EMM_OK);
    REQUIRE(emm_set_log_callback(EMM_LOG_ERROR, nullptr, nullptr) == EMM_OK);
}

TEST_CASE("while the process sleeps, pending frees stay where other processes ask for memory") {
    emm_context *const context = recorded_context();
    calls_of_program = 0;
    REQUIRE(defer(*context, &count_deferred, nullptr, 1) == EMM_OK);
    fall_asleep();
    give_back_idle();
    wake_up();
    CHECK(calls_of_program == 0);
    give_back_idle();
    CHECK(calls_of_program == 1);
}
