#include "asked.h"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace faults {
namespace {

// The name of the listening socket, from a table without torn lines. False: it is not there.
bool find_name(char (&ret_name)[64]) {
    static char table[1 << 20];
    char wanted[32];
    std::snprintf(wanted, sizeof wanted, "@emm-top-%d-", getpid());
    const int file = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    for (ssize_t got = 0; file >= 0 && size + 1 < sizeof table; size += static_cast<size_t>(got)) {
        got = read(file, table + size, sizeof table - 1 - size);
        if (got <= 0) {
            break;
        }
    }
    close(file);
    table[size] = 0;
    const char *const found = std::strstr(table, wanted);
    if (found) {
        const size_t length = std::strcspn(found + 1, "\n");
        std::snprintf(ret_name, sizeof ret_name, "%.*s", static_cast<int>(length), found + 1);
    }
    return found;
}

int connect_to(const char *name) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path + 1, name);
    const auto length =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + std::strlen(name));
    const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(made, reinterpret_cast<const sockaddr *>(&address), length) != 0) {
        close(made);
        return -1;
    }
    return made;
}

} // namespace

bool ask_this_process(int milliseconds) {
    char name[64];
    const int made = find_name(name) ? connect_to(name) : -1;
    if (made < 0) {
        return true;
    }
    const uint32_t request[4] = {0x746d6d65, 1, 1, 0};
    bool has_ended = send(made, request, sizeof request, MSG_NOSIGNAL) < 0;
    pollfd waiting = {made, POLLIN, 0};
    has_ended = has_ended || poll(&waiting, 1, milliseconds) == 1;
    close(made);
    return has_ended;
}

} // namespace faults
