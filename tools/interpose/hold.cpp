#include "hold.h"

#include "fence/asymmetric_fence.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace emm::run::hold {

constinit std::atomic<State> state{State::open};
constinit thread_local Place *own_place __attribute__((tls_model("initial-exec"))) = nullptr;

namespace {

constexpr int out_of_memory = 2, deinitialized = 4; // CUresult

constinit std::atomic<bool> is_ending{false}; // the process is ending: calls are no longer held
constinit std::atomic<Place *> places{nullptr};
constinit std::atomic<bool (*)()> is_spared{nullptr};
pthread_key_t key;

// A cancelled thread that ends within a call has left the call.
void give_place(void *place) {
    own_place = nullptr;
    unmark(*static_cast<Place *>(place));
    static_cast<Place *>(place)->is_taken.store(false, std::memory_order_release);
}

Place *find_left_place() {
    for (Place *place = places.load(std::memory_order_acquire); place; place = place->next) {
        if (!place->is_taken.load(std::memory_order_relaxed) &&
            !place->is_taken.exchange(true, std::memory_order_acquire)) {
            return place;
        }
    }
    return nullptr;
}

// Makes one page of places. The places beside the returned one are free to take.
Place *make_places() {
    constexpr size_t bytes = 4096, count = bytes / sizeof(Place);
    void *const page =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return nullptr;
    }
    Place *const made = static_cast<Place *>(page);
    for (size_t i = 0; i < count; i++) {
        Place *const place = new (made + i) Place;
        place->is_taken.store(i == 0, std::memory_order_relaxed);
        place->next = i + 1 < count ? made + i + 1 : nullptr;
    }
    Place *&last_next = made[count - 1].next;
    last_next = places.load(std::memory_order_relaxed);
    while (!places.compare_exchange_weak(last_next, made, std::memory_order_release,
                                         std::memory_order_relaxed)) {
    }
    return made;
}

// Changes the state, but only from `closed`.
void change_state(State to) {
    State from = State::closed;
    if (!state.compare_exchange_strong(from, to)) {
        return;
    }
    syscall(SYS_futex, &state, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

int64_t now() {
    timespec time = {};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1'000'000'000) + time.tv_nsec;
}

Place *take_place() {
    Place *const left = find_left_place();
    Place *const place = left ? left : make_places();
    if (place) {
        own_place = place;
        pthread_setspecific(key, place);
    }
    return place;
}

bool begin_own() {
    Place *const place = own_place ? own_place : take_place();
    if (place) {
        mark(*place);
    }
    return place != nullptr;
}

void end_own() {
    unmark(*own_place);
}

void fence() {
    if (asymmetric_fence() != 0) {
        slow_asymmetric_fence();
    }
}

void open() {
    change_state(State::open);
}

// False: calls that had begun still run after `timeout`, or the process ends; no calls are held.
bool close(int64_t timeout) {
    const int64_t until = now() + timeout;
    State from = State::open;
    if (!state.compare_exchange_strong(from, State::closed)) {
        return false;
    }
    if (is_ending.load()) { // set before or after the read of `state`: one side sees it
        open();
        return false;
    }
    fence();
    for (Place *place = places.load(std::memory_order_acquire); place; place = place->next) {
        while (place != own_place && place->is_inside.load(std::memory_order_acquire)) {
            if (now() >= until) {
                open();
                return false;
            }
            usleep(50);
        }
    }
    return true;
}

void end() {
    is_ending.store(true);
    change_state(State::ended);
}

void spare(bool (*is)()) {
    is_spared.store(is, std::memory_order_release);
}

} // namespace

const HoldCalls calls = {&begin_own, &end_own, &close, &open, &end, &spare};

// A forked child has no thread that would open the hold, and CUDA no longer works there.
bool start() {
    register_asymmetric_fence();
    return pthread_key_create(&key, &give_place) == 0 &&
           pthread_atfork(nullptr, nullptr, [] { state.store(State::open); }) == 0;
}

Call enter_otherwise() {
    if (own_place && own_place->is_inside.load(std::memory_order_relaxed)) {
        return {};
    }
    Place *const place = own_place ? own_place : take_place();
    if (!place) {
        return {nullptr, out_of_memory};
    }
    mark(*place);
    for (State found = state.load(); found != State::open; found = state.load()) {
        unmark(*place);
        if (found == State::ended) {
            return {nullptr, deinitialized};
        }
        bool (*const spares)() = is_spared.load(std::memory_order_acquire);
        if (spares && spares()) {
            return {};
        }
        syscall(SYS_futex, &state, FUTEX_WAIT_PRIVATE, found, nullptr, nullptr, 0);
        mark(*place);
    }
    return {place, 0};
}

} // namespace emm::run::hold
