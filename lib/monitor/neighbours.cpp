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
#include "sockets/message.h"
#include "sockets/socket.h"
#include "sockets/user.h"

#include <algorithm>
#include <exception>
#include <poll.h>
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

std::vector<pollfd> ask_all(const driver::GroupFile &group) {
    std::vector<pollfd> asked;
    const driver::SharedState &state = group.state();
    for (unsigned member = 0; member < slots_in_use(state); member++) {
        const driver::SharedMember &its = state.members[member];
        const uint64_t random = its.random.load();
        if (member != group.member() && random != 0 && its.ticket.load() != 0 &&
            holds_any(state, member)) {
            if (const int made = ask_to_trim(SocketName(its.pid.load(), random)); made >= 0) {
                asked.push_back({made, POLLIN, 0});
            }
        }
    }
    return asked;
}

// The number of processes that have answered, or ended.
size_t wait_for(std::vector<pollfd> asked) {
    const size_t count = asked.size();
    const int64_t until = sockets::now() + answer_timeout;
    for (int64_t left = answer_timeout; !asked.empty() && left > 0; left = until - sockets::now()) {
        poll(asked.data(), asked.size(), static_cast<int>(left / 1'000'000) + 1);
        const auto end = std::partition(asked.begin(), asked.end(),
                                        [](const pollfd &each) { return each.revents == 0; });
        std::for_each(end, asked.end(),
                      [](const pollfd &each) { observe::forget_and_close(each.fd); });
        asked.erase(end, asked.end());
    }
    for (const pollfd &each : asked) {
        observe::forget_and_close(each.fd);
    }
    return count - asked.size();
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
