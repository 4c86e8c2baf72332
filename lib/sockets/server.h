#pragma once

#include "sockets/socket.h"

#include <cstddef>
#include <functional>

namespace emm::sockets {

// Answers peers that connect to a listening socket, on the one thread that runs it.
//
// The server never waits for a peer. A connection carries one request, which a peer sends as
// soon as it has connected. So most connections are answered and closed when they are accepted.
// Only a silent peer keeps a place, for `silence` nanoseconds at most, or until a newer silent peer
// needs the place. Another user's connection is closed at once.
class Server {
public:
    static constexpr size_t longest_request = 4352; // bytes; a longer request is cut off
    // `size`: bytes of the request; 0 or less if the peer has left without a request.
    using Answer = void (*)(int socket, const void *request, long size) noexcept;

    // Called before the server waits. Returns the longest wait in nanoseconds; -1: for ever.
    using BeforeWait = int64_t (*)() noexcept;

    constexpr Server(Listener &listener, int64_t silence, Answer answer,
                     BeforeWait before_wait = nullptr)
        : listener_(listener), silence_(silence), answer_(answer), before_wait_(before_wait) {}

    // Runs until the listening socket is gone, or this process may have no descriptors.
    void run() noexcept;

private:
    struct WaitingPeer {
        int socket;
        int64_t since; // when it was accepted
    };
    static constexpr size_t most_silent = 32;

    bool step() noexcept;
    int timeout() const noexcept;
    void accept_peers(int listening) noexcept;
    bool receive_request(int socket) noexcept; // false: the peer has sent nothing yet
    void keep(int socket) noexcept;
    void hang_up(size_t index) noexcept;

    Listener &listener_;
    const int64_t silence_;
    const Answer answer_;
    const BeforeWait before_wait_; // NULL: nothing to do before a wait
    size_t count_ = 0;
    WaitingPeer waiting_[most_silent] = {}; // the oldest first
};

// Starts a detached thread that blocks all signals. False: no thread could be started; this is
// logged.
bool start_thread(const char *name, std::function<void()> body) noexcept;

} // namespace emm::sockets
