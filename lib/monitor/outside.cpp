#include "monitor/outside.h"

#include "core/record/asleep.h"
#include "dl/load.h"
#include "driver/account.h"
#include "monitor/answer.h"
#include "observe/descriptors.h"
#include "observe/log.h"
#include "sockets/message.h"
#include "sockets/server.h"
#include "sockets/socket.h"

#include <emm/plugin.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::monitor {
namespace {

constinit std::atomic<bool> is_busy{false}, is_held_now{false};
constinit std::atomic<AskOutside> known_library{nullptr};

// A request's text, read (protocol.h).
struct Wanted {
    bool is_pause = false;
    uint32_t flags = 0;
    int64_t timeout = 0;
    std::string pool;
};

Wanted parse(bool is_pause, std::string_view rest) {
    const size_t zero = std::min(rest.find('\0'), rest.size());
    const std::string words(rest.substr(0, zero));
    Wanted wanted;
    wanted.is_pause = is_pause;
    wanted.pool = rest.substr(std::min(zero + 1, rest.size()));
    if (is_pause) {
        wanted.flags = words.starts_with("discard") ? EMM_PAUSE_DISCARD : EMM_PAUSE_KEEP;
        wanted.timeout = std::atoll(words.c_str() + std::min(words.find(' '), words.size())) *
                         INT64_C(1'000'000);
    } else if (words == "keep") {
        wanted.flags = EMM_RESUME_KEEP_COPY;
    }
    return wanted;
}

void add_pool(void *all, const OutsidePool &pool) {
    static_cast<std::vector<PausedPool> *>(all)->push_back(
        {pool.device, pool.context, pool.pool, pool.bytes, pool.stays});
}

OutsideDone ask(const Wanted &wanted) {
    OutsideDone done;
    find_library();
    const AskOutside ask_it = known_library.load();
    if (!ask_it) {
        done.problem = "its calls cannot be held: it was started without emm run --pausable";
        return done;
    }
    Outside outside = {wanted.is_pause,     wanted.flags,       wanted.timeout,
                       wanted.pool.c_str(), &add_pool,          &done.pools,
                       &core::fall_asleep,  is_held_now.load(), ""};
    const core::ForOperator for_operator(std::chrono::steady_clock::now() +
                                         std::chrono::nanoseconds(wanted.timeout));
    const int64_t since = sockets::now();
    const bool succeeded = ask_it(&outside);
    done.nanoseconds = sockets::now() - since;
    is_held_now = outside.is_held;
    driver::account().keep_reserves(!outside.is_held);
    if (!outside.is_held) {
        core::wake_up();
    }
    done.problem = succeeded ? "" : outside.problem;
    return done;
}

void send_answer(int socket, const std::string &text) noexcept {
    const int room = 2 * longest_answer;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    sockets::send_message(socket, text.data(), text.size(), nullptr, 0);
}

// The flag is cleared before the answer is sent, because the next question may follow at once.
void work(int socket, const Wanted &wanted) noexcept {
    std::string text;
    try {
        text = answer_to_outside(ask(wanted));
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_WARN, "emm pause gets no answer: {}", error.what());
    }
    is_busy = false;
    send_answer(socket, text);
    observe::forget_and_close(socket);
}

} // namespace

void answer_outside(int socket, bool is_pause, std::string_view rest) {
    OutsideDone refused;
    if (is_busy.exchange(true)) {
        refused.problem = "it is still busy with an earlier pause or resume; nothing has changed";
        return send_answer(socket, answer_to_outside(refused));
    }
    const Wanted wanted = parse(is_pause, rest);
    const int copy = observe::make_own([=] { return fcntl(socket, F_DUPFD_CLOEXEC, 0); });
    if (copy < 0 || !sockets::start_thread("emm-pause", [=] { work(copy, wanted); })) {
        observe::forget_and_close(copy);
        is_busy = false;
        refused.problem = "cannot start a thread to pause it";
        send_answer(socket, answer_to_outside(refused));
    }
}

void find_library() noexcept {
    if (!known_library.load()) {
        known_library = reinterpret_cast<AskOutside>(dl::find_in_process(outside_name));
    }
}

bool is_held() noexcept {
    return is_held_now;
}

void end_outside(int64_t timeout) noexcept {
    for (const int64_t until = sockets::now() + timeout; is_busy && sockets::now() < until;) {
        usleep(1000);
    }
}

} // namespace emm::monitor
