#include "observe/descriptors.h"

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

namespace emm::observe {
namespace {

constexpr time_t fork_waits = 2; // seconds

// A bit for each descriptor that the kernel gives, unless fs.nr_open was raised. Untouched pages
// take no memory.
constexpr int most = 1 << 20;
constinit std::atomic<uint64_t> owned[most / 64];
constinit std::atomic<size_t> words{0}; // words that have ever had a bit

// A thread may hold the mutex more than once, and fork meanwhile.
pthread_mutex_t mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

// Whether this thread's fork holds the mutex.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool held_for_fork = false;

} // namespace

NoFork::NoFork() noexcept {
    pthread_mutex_lock(&mutex);
}

NoFork::~NoFork() {
    pthread_mutex_unlock(&mutex);
}

bool own(int descriptor) noexcept {
    if (descriptor < 0 || descriptor >= most) {
        return false;
    }
    const auto word = static_cast<size_t>(descriptor) / 64;
    size_t before = words.load();
    while (before <= word && !words.compare_exchange_weak(before, word + 1)) {
    }
    owned[word].fetch_or(uint64_t(1) << descriptor % 64);
    return true;
}

int own_made(int made) noexcept {
    if (made >= 0 && !own(made)) {
        close(made);
        errno = EMFILE;
        return -1;
    }
    return made;
}

void forget_descriptor(int descriptor) noexcept {
    if (descriptor >= 0 && descriptor < most) {
        owned[descriptor / 64].fetch_and(~(uint64_t(1) << descriptor % 64));
    }
}

void forget_and_close(int descriptor) noexcept {
    const NoFork held;
    forget_descriptor(descriptor);
    close(descriptor);
}

std::string_view read_start(const char *path, char *bytes, size_t size) noexcept {
    const int file =
        make_own([path] { return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); });
    const ssize_t got = file < 0 ? -1 : read(file, bytes, size);
    if (file >= 0) {
        forget_and_close(file);
    }
    return {bytes, got > 0 ? static_cast<size_t>(got) : 0};
}

void hold_descriptors() noexcept {
    if (held_for_fork) {
        return;
    }
    timespec until = {};
    // The thread sanitizer only knows timed locks by this clock.
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += fork_waits;
    held_for_fork = pthread_mutex_timedlock(&mutex, &until) == 0;
}

void release_descriptors() noexcept {
    if (held_for_fork) {
        held_for_fork = false;
        pthread_mutex_unlock(&mutex);
    }
}

void leave_descriptors_to_parent(bool closing) noexcept {
    release_descriptors();                          // for sanitizers
    mutex = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; // because its owner may not exist here
    for (size_t word = 0; closing && word < words.load(); ++word) {
        for (uint64_t left = owned[word].exchange(0); left != 0; left &= left - 1) {
            close(static_cast<int>(word * 64) + std::countr_zero(left));
        }
    }
}

} // namespace emm::observe
