#include "top/metrics_server.h"

#include "print.h"
#include "problem.h"
#include "top/http.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <deque>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace emm::tool::top {
namespace {

constexpr size_t most_clients = 64;
constexpr double client_timeout = 3; // seconds, for all that it sends and takes
constexpr double page_age = 0.5;     // seconds: many clients do not make programs answer more often

double clock_now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

struct Client {
    int socket = -1;
    double since = 0;
    std::string received, answer;
    size_t sent = 0;
    bool is_done = false;
};

Failure cannot_serve(const Endpoint &endpoint, const std::string &why) {
    Problem problem;
    problem.stage = "top";
    problem.message = fmt::format("--serve: expected an address to listen at, found that {}:{} is "
                                  "none: {}",
                                  endpoint.address, endpoint.port, why);
    return Failure(problem);
}

// -1 with errno.
int listen_at(const addrinfo &address) {
    const int made =
        socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
    const int yes = 1;
    if (made >= 0) {
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(made, address.ai_addr, address.ai_addrlen) == 0 && listen(made, 64) == 0) {
            return made;
        }
        const int error = errno;
        close(made);
        errno = error;
    }
    return -1;
}

int listen_at(const Endpoint &endpoint) {
    addrinfo wanted = {}, *found = nullptr;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    const int error = getaddrinfo(endpoint.address.c_str(), endpoint.port.c_str(), &wanted, &found);
    if (error != 0) {
        throw cannot_serve(endpoint, gai_strerror(error));
    }
    int made = -1;
    for (const addrinfo *each = found; each && made < 0; each = each->ai_next) {
        made = listen_at(*each);
    }
    const int failure = errno;
    freeaddrinfo(found);
    if (made < 0) {
        throw cannot_serve(endpoint, std::strerror(failure));
    }
    return made;
}

// With the port that the kernel has chosen for 0.
std::string url_of(int listening) {
    sockaddr_storage address = {};
    socklen_t length = sizeof address;
    getsockname(listening, reinterpret_cast<sockaddr *>(&address), &length);
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
    getnameinfo(reinterpret_cast<const sockaddr *>(&address), length, host, sizeof host, port,
                sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    return address.ss_family == AF_INET6 ? fmt::format("http://[{}]:{}/metrics", host, port)
                                         : fmt::format("http://{}:{}/metrics", host, port);
}

class Server {
public:
    Server(int listening, const std::function<std::string()> &page)
        : listening_(listening), page_(page) {}
    void step();

private:
    void welcome();
    void hear(Client &client);
    void speak(Client &client);
    const std::string &page();

    const int listening_;
    const std::function<std::string()> &page_;
    std::deque<Client> clients_; // the oldest first
    std::string text_;
    double made_ = -1;
};

const std::string &Server::page() {
    if (made_ < 0 || clock_now() - made_ > page_age) {
        text_ = page_();
        made_ = clock_now();
    }
    return text_;
}

// When there is no room, the oldest client makes some.
void Server::welcome() {
    const int made = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (made < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            usleep(10'000);
        }
        return;
    }
    if (clients_.size() == most_clients) {
        close(clients_.front().socket);
        clients_.pop_front();
    }
    clients_.emplace_back();
    clients_.back().socket = made;
    clients_.back().since = clock_now();
}

void Server::hear(Client &client) {
    char bytes[2048];
    const ssize_t got = recv(client.socket, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        client.is_done = true;
        return;
    }
    client.received.append(bytes, static_cast<size_t>(got));
    const Verdict verdict = judge(client.received);
    if (verdict == Verdict::incomplete) {
        return;
    }
    const bool is_good = verdict == Verdict::metrics || verdict == Verdict::metrics_head;
    client.answer = response(verdict, is_good ? page() : std::string());
    speak(client);
}

void Server::speak(Client &client) {
    const ssize_t put = send(client.socket, client.answer.data() + client.sent,
                             client.answer.size() - client.sent, MSG_NOSIGNAL);
    if (put < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    client.sent += put > 0 ? static_cast<size_t>(put) : 0;
    if (put <= 0 || client.sent == client.answer.size()) {
        shutdown(client.socket, SHUT_WR);
        client.is_done = true;
    }
}

void Server::step() {
    std::vector<pollfd> waiting = {{listening_, POLLIN, 0}};
    for (const Client &client : clients_) {
        const short what = client.answer.empty() ? POLLIN : POLLOUT;
        waiting.push_back({client.socket, what, 0});
    }
    poll(waiting.data(), waiting.size(), clients_.empty() ? -1 : 1000);
    for (size_t i = 0; i < clients_.size(); ++i) {
        if (waiting[1 + i].revents != 0) {
            clients_[i].answer.empty() ? hear(clients_[i]) : speak(clients_[i]);
        }
    }
    for (auto client = clients_.begin(); client != clients_.end();) {
        const bool ends = client->is_done || clock_now() - client->since > client_timeout;
        if (ends) {
            close(client->socket);
        }
        client = ends ? clients_.erase(client) : client + 1;
    }
    if (waiting[0].revents != 0) {
        welcome();
    }
}

} // namespace

bool read_endpoint(const std::string &text, Endpoint &ret_endpoint) {
    const size_t colon = text.rfind(':');
    std::string address = colon == std::string::npos ? "" : text.substr(0, colon);
    const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
    if (!address.empty() && address.front() == '[' && address.back() == ']') {
        address = address.substr(1, address.size() - 2);
        if (address.empty()) {
            return false;
        }
    } else if (address.find_first_of("[]:") != std::string::npos) {
        return false; // one of IPv6 needs brackets
    }
    unsigned number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number > 65535) {
        return false;
    }
    ret_endpoint = {address.empty() ? "127.0.0.1" : address, port};
    return true;
}

void serve_metrics(const Endpoint &endpoint, const std::function<std::string()> &page) {
    const int listening = listen_at(endpoint);
    print(url_of(listening) + "\n");
    Server server(listening, page);
    for (;;) {
        server.step();
    }
}

} // namespace emm::tool::top
