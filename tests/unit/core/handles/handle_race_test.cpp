// Behaviour: handles used by 16 threads while their contexts are reset and retired. The plugin
// checks that no call is inside it during a reset, and that each returned block was given out
// since.
#include "../driver_calls.h"
#include "catch.h"

#include <emm/emm.h>
#include <emm/plugin.hpp>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace {

std::atomic<uint64_t> faults{0}, finalized{0}, owned{0};
CUcontext unrelated = nullptr; // neither reset nor retired
decltype(&::cuCtxSetCurrent) set_current = nullptr;
decltype(&::cuMemHostGetFlags) get_flags = nullptr;

class Watcher {
public:
    Watcher(const emm_host &, const emm_context_info &, const char *const *) {}

    emm_status memalloc(size_t, emm_stream, emm_deviceptr *ret_ptr) {
        const Visit visit(*this);
        const uint64_t number = given_++;
        blocks_[number % room] = number;
        *ret_ptr = (number + 1) << 12;
        return EMM_OK;
    }
    emm_status memfree(emm_deviceptr ptr, size_t, emm_stream) {
        const Visit visit(*this);
        const uint64_t number = (ptr >> 12) - 1;
        uint64_t expected = number;
        // Not of this generation, or a second time.
        faults +=
            number < first_ || !blocks_[number % room].compare_exchange_strong(expected, gone);
        return EMM_OK;
    }
    emm_status reset() {
        faults += inside_ != 0;
        first_ = given_;
        std::this_thread::yield();
        faults += inside_ != 0;
        return EMM_OK;
    }

private:
    struct Visit {
        explicit Visit(Watcher &watcher) : inside(watcher.inside_) { ++inside; }
        ~Visit() { --inside; }
        std::atomic<int> &inside;
    };
    static constexpr size_t room = size_t(1) << 20;
    static constexpr uint64_t gone = ~uint64_t(0);

    uint64_t first_ =
        0; // plain: the thread sanitizer sees a reset that is not kept apart from calls
    std::atomic<int> inside_{0};
    std::atomic<uint64_t> given_{0};
    std::vector<std::atomic<uint64_t>> blocks_ = std::vector<std::atomic<uint64_t>>(room);
};

const emm_plugin *watcher_entry(const emm_host *) {
    static const emm_plugin table = emm::make_plugin<Watcher>("watcher", "1", "watches resets");
    return &table;
}

// Handles that every thread refers to and replaces.
class SharedHandles {
public:
    ~SharedHandles() {
        for (Place &place : places_) {
            emm_memory_release(place.memory);
        }
    }
    // Another reference to the handle at that place; NULL: it is empty.
    emm_memory *borrow(size_t where) {
        std::lock_guard lock(places_[where].mutex);
        if (places_[where].memory) {
            faults += emm_memory_retain(places_[where].memory) != EMM_OK;
        }
        return places_[where].memory;
    }
    emm_memory *swap(size_t where, emm_memory *memory) {
        std::lock_guard lock(places_[where].mutex);
        return std::exchange(places_[where].memory, memory);
    }
    static constexpr size_t size = 8;

private:
    struct Place {
        std::mutex mutex;
        emm_memory *memory = nullptr;
    };
    std::array<Place, size> places_;
};

void expect(bool truth) {
    faults += !truth;
}

// A page that the driver still has registered must not go back to malloc.
void free_page(void *page) {
    unsigned flags = 0;
    set_current(unrelated);
    faults += get_flags(&flags, page) == CUDA_SUCCESS;
    std::free(page);
    ++finalized;
}

emm_memory *make(emm_context *context, unsigned how) {
    emm_memory *memory = nullptr;
    if (how == 0) {
        const emm_status status = emm_memory_wrap(
            context, 0x1000, nullptr, 64, nullptr, [](void *) { ++finalized; }, &memory);
        owned += status == EMM_OK;
    } else if (how == 1) {
        void *const page = std::aligned_alloc(4096, 4096);
        const emm_status status = emm_memory_pin(context, page, 64, 0, page, &free_page, &memory);
        expect(status == EMM_OK || status == EMM_E_RETIRED);
        owned += status == EMM_OK;
        if (status != EMM_OK) {
            std::free(page);
        }
    } else {
        const emm_status status = emm_memory_alloc(context, 64, EMM_STREAM_LEGACY, &memory);
        expect(status == EMM_OK || status == EMM_E_RETIRED);
    }
    return memory;
}

void look_at(emm_memory *memory) {
    emm_memory_info info = {};
    info.struct_size = sizeof info;
    expect(emm_memory_get_info(memory, &info) == EMM_OK);
    expect(info.size == 64 || info.parent != nullptr);
}

void act(emm_context *context, SharedHandles &handles, std::minstd_rand &random) {
    const size_t where = random() % SharedHandles::size;
    switch (random() % 4) {
    case 0:
        expect(emm_memory_release(handles.swap(where, make(context, random() % 4))) == EMM_OK);
        return;
    case 1:
        if (emm_memory *memory = handles.borrow(where)) {
            const emm_status status = emm_memory_free(memory);
            expect(status == EMM_OK || status == EMM_E_ALREADY_FREED);
            expect(emm_memory_release(memory) == EMM_OK);
        }
        return;
    case 2:
        if (emm_memory *memory = handles.borrow(where)) {
            emm_memory *view = nullptr;
            const emm_status status = emm_memory_view(memory, 16, 32, &view);
            expect(status == EMM_OK || status == EMM_E_ALREADY_FREED);
            expect(emm_memory_release(memory) == EMM_OK);
            if (view) {
                look_at(view);
            }
            expect(emm_memory_release(view) == EMM_OK);
        }
        return;
    default:
        if (emm_memory *memory = handles.borrow(where)) {
            look_at(memory);
            emm_memory_set_stream(memory, EMM_STREAM_UNORDERED);
            expect(emm_memory_release(memory) == EMM_OK);
        }
    }
}

// 16 threads at work on their shelves until they are told to stop.
class Traffic {
public:
    explicit Traffic(std::vector<emm_context *> served) : contexts_(std::move(served)) {
        for (size_t i = 0; i < contexts_.size(); ++i) {
            handles_.push_back(std::make_unique<SharedHandles>());
        }
        for (unsigned i = 0; i < 16; ++i) {
            threads_.emplace_back([this, i] { work(i); });
        }
    }
    // Until all threads together have done so much more.
    void wait(uint64_t acts) const {
        for (const uint64_t enough = acts_ + acts; acts_ < enough;) {
            std::this_thread::yield();
        }
    }
    // Afterwards every handle has gone.
    void stop() {
        stopping_ = true;
        for (std::thread &thread : threads_) {
            thread.join();
        }
        handles_.clear();
    }

private:
    void work(unsigned seed) {
        std::minstd_rand random(seed + 1);
        while (!stopping_) {
            const size_t which = random() % contexts_.size();
            act(contexts_[which], *handles_[which], random);
            ++acts_;
        }
    }

    const std::vector<emm_context *> contexts_;
    std::vector<std::unique_ptr<SharedHandles>> handles_;
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> acts_{0};
    std::vector<std::thread> threads_;
};

void serve_by_watcher() {
    REQUIRE(emm_set_plugin_entry(&watcher_entry, nullptr) == EMM_OK);
    unrelated = new_context();
    set_current = CU(cuCtxSetCurrent);
    get_flags = CU(cuMemHostGetFlags);
}

emm_context *served(CUcontext cuda_context) {
    emm_context *context = nullptr;
    REQUIRE(emm_context_from(cuda_context, &context) == EMM_OK);
    return context;
}

} // namespace

TEST_CASE("16 threads use the same handles while their contexts are reset") {
    serve_by_watcher();
    emm_context *contexts[2] = {};
    REQUIRE(emm_context_for_device(0, &contexts[0]) == EMM_OK);
    contexts[1] = served(new_context());
    Traffic traffic({contexts[0], contexts[1]});
    for (int i = 0; i < 100; ++i) {
        traffic.wait(200);
        CHECK(emm_context_reset(contexts[i % 2]) == EMM_OK);
    }
    traffic.stop();
    CHECK(faults == 0);
    CHECK(owned != 0);
    CHECK(finalized == owned);
}

TEST_CASE("16 threads use the same handles while their context is retired") {
    serve_by_watcher();
    emm_context *context = served(new_context());
    Traffic traffic({context});
    traffic.wait(2000);
    CHECK(emm_context_retire(context) == EMM_OK);
    traffic.wait(2000);
    traffic.stop();
    CHECK(faults == 0);
    CHECK(finalized == owned);
}

TEST_CASE("two threads that reset the same context take turns") {
    serve_by_watcher();
    emm_context *context = served(new_context());
    Traffic traffic({context});
    const auto reset_often = [&] {
        for (int i = 0; i < 50; ++i) {
            traffic.wait(100);
            expect(emm_context_reset(context) == EMM_OK);
        }
    };
    std::thread other(reset_often);
    reset_often();
    other.join();
    traffic.stop();
    CHECK(faults == 0);
    CHECK(finalized == owned);
}
