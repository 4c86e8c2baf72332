/* A timed wait of std::condition_variable: glibc's, which exists since 2.30, else by functions of
 * 2.28. Only C++ calls it. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

#pragma GCC visibility push(hidden)

typedef int Wait(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static Wait *of_glibc;

/* Runs as the library is loaded: later the dynamic linker's lock might belong to a thread that
 * waits for this one. */
__attribute__((constructor)) static void find(void) {
    *(void **)&of_glibc = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
}

enum { SECOND = 1000000000 };

/* Converts `until` from one clock to the other. If a clock is set meanwhile, the wait lasts longer
 * or shorter, as it did in libstdc++ before GCC 10. */
static struct timespec converted(struct timespec until, clockid_t from, clockid_t to) {
    struct timespec now_from, now_to;
    clock_gettime(from, &now_from);
    clock_gettime(to, &now_to);
    struct timespec result = {.tv_sec = until.tv_sec - now_from.tv_sec + now_to.tv_sec,
                              .tv_nsec = until.tv_nsec - now_from.tv_nsec + now_to.tv_nsec};
    while (result.tv_nsec < 0) {
        result.tv_nsec += SECOND;
        result.tv_sec--;
    }
    while (result.tv_nsec >= SECOND) {
        result.tv_nsec -= SECOND;
        result.tv_sec++;
    }
    return result;
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    if (of_glibc != NULL) {
        return of_glibc(condition, mutex, clock, until);
    }
    if (clock == CLOCK_REALTIME) {
        return pthread_cond_timedwait(condition, mutex, until);
    }
    const struct timespec other = converted(*until, clock, CLOCK_REALTIME);
    return other.tv_sec < 0 ? ETIMEDOUT : pthread_cond_timedwait(condition, mutex, &other);
}
