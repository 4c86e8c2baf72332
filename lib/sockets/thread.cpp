#include "sockets/thread.h"

#include "observe/log.h"

#include <emm/plugin.h>

#include <exception>
#include <pthread.h>
#include <signal.h>
#include <thread>

namespace emm::sockets {

bool start_thread(const char *name, std::function<void()> body) noexcept {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
        std::thread([name, body = std::move(body)] {
            pthread_setname_np(pthread_self(), name);
            body();
        }).detach();
    } catch (const std::exception &error) { // of the system, or std::bad_alloc
        observe::log(EMM_LOG_DEBUG, "no thread {}: {}", name, error.what());
        started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

} // namespace emm::sockets
