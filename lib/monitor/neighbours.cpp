// Processes that share a budget (EMM_LIMIT_SHARED) ask each other for memory that they keep and do
// not use. The refused thread asks, and the other processes' server threads answer. So two
// processes that ask each other at the same time both get an answer. The wait for all answers
// together is bounded.
#include "monitor/neighbours.h"

#include "driver/copies.h"
#include "driver/shared_group.h"
#include "monitor/protocol.h"
#include "observe/descriptors.h"
#include "observe/log.h"
#include "observe/process.h"
#include "sockets/message.h"
#include "sockets/socket.h"
#include "sockets/user.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace emm::monitor {
namespace {

constexpr int64_t answer_timeout = plugin_timeout(RequestKind::trim) + 200'000'000; // nanoseconds

bool holds_any(const driver::SharedState &state, unsigned member) {
    return std::any_of(
        std::begin(state.devices), std::end(state.devices),
        [member](const driver::SharedDevice &device) { return units_held(device, member) != 0; });
}

// -1: the process cannot be asked.
int ask_to_trim(std::string_view name) {
    const sockets::Address address = sockets::address_of(name);
    const int made = observe::make_own(
        [] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    const Request request = {protocol_magic, protocol_version, uint32_t(RequestKind::trim), 0};
    uint32_t user = 0;
    if (made >= 0 &&
        (connect(made, address.get(), address.length) != 0 || !sockets::is_own_user(made, &user) ||
         !sockets::send_message(made, &request, sizeof request, nullptr, 0))) {
        observe::forget_and_close(made);
        return -1;
    }
    return made;
}

// A request without an answer. The slot may get another owner, with another ticket.
struct Unanswered {
    unsigned member = 0;
    uint64_t ticket = 0;
    int socket = -1;
    ino_t inode = 0; // the program may close a socket that it does not know, and reuse the number
};

// The requests that were not answered in time, by slot.
struct LateAnswers {
    std::mutex mutex;
    Unanswered of[driver::most_members];
};

constexpr auto &late_answers = observe::immortal<LateAnswers>;

ino_t inode_of(int socket) {
    struct stat status;
    return fstat(socket, &status) == 0 ? status.st_ino : 0;
}

// Whether the member has not answered an earlier request yet. If it has, or has ended, closes that
// connection. The mutex is held.
bool is_late(Unanswered &earlier, uint64_t ticket) {
    pollfd its = {earlier.socket, POLLIN, 0};
    if (earlier.socket < 0) {
        return false;
    }
    if (inode_of(earlier.socket) != earlier.inode) {
        observe::forget_descriptor(earlier.socket);
    } else if (earlier.ticket == ticket && poll(&its, 1, 0) == 0) {
        return true;
    } else {
        observe::forget_and_close(earlier.socket);
    }
    earlier.socket = -1;
    return false;
}

// Another thread's request may wait for the member already: one is enough.
void keep_open(const Unanswered &request) {
    const std::lock_guard lock(late_answers().mutex);
    Unanswered &place = late_answers().of[request.member];
    if (place.socket >= 0) {
        observe::forget_and_close(request.socket);
    } else {
        place = request;
        place.inode = inode_of(place.socket);
    }
}

struct Asked {
    std::vector<Unanswered> requests;
    std::vector<pollfd> sockets; // in the same order
};

Asked ask_all(const driver::GroupFile &group) {
    const driver::SharedState &state = group.state();
    const unsigned end = slots_in_use(state);
    Asked asked;
    asked.requests.reserve(end);
    asked.sockets.reserve(end);
    const std::lock_guard lock(late_answers().mutex);
    for (unsigned member = 0; member < end; member++) {
        const driver::SharedMember &its = state.members[member];
        const uint64_t ticket = its.ticket.load(), random = its.random.load();
        if (!is_late(late_answers().of[member], ticket) && member != group.member() &&
            random != 0 && ticket != 0 && holds_any(state, member)) {
            if (const int made = ask_to_trim(SocketName(its.pid.load(), random)); made >= 0) {
                asked.requests.push_back({member, ticket, made});
                asked.sockets.push_back({made, POLLIN, 0});
            }
        }
    }
    return asked;
}

// The number of processes that have answered, or ended. If a process has not, for example because
// it is stopped, it is asked again only after it has answered this request.
size_t wait_for(Asked asked) {
    const size_t count = asked.sockets.size();
    size_t answers = 0;
    const int64_t until = sockets::now() + answer_timeout;
    for (int64_t left = answer_timeout; answers < count && left > 0;
         left = until - sockets::now()) {
        poll(asked.sockets.data(), count, static_cast<int>(left / 1'000'000) + 1);
        for (pollfd &each : asked.sockets) {
            if (each.fd >= 0 && each.revents != 0) {
                observe::forget_and_close(std::exchange(each.fd, -1));
                ++answers;
            }
        }
    }
    for (size_t i = 0; i < count; ++i) {
        if (asked.sockets[i].fd >= 0) {
            keep_open(asked.requests[i]);
        }
    }
    return answers;
}

} // namespace

bool ask_own_group() noexcept {
    const driver::GroupFile *const group = driver::group_of_process.load(std::memory_order_acquire);
    try {
        return group && wait_for(ask_all(*group)) != 0;
    } catch (const std::exception &error) {
        observe::log(EMM_LOG_DEBUG, "the processes of the group are not asked: {}", error.what());
        return false;
    }
}

bool ask_neighbours() noexcept {
    const bool has_copy = driver::ask_copies();
    return driver::ask_group() || has_copy;
}

} // namespace emm::monitor
