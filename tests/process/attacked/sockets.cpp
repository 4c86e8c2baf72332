#include "sockets.h"

#include "parts.h"
#include "sockets/address.h"

#include <cstring>
#include <fstream>
#include <unistd.h>

namespace attacked {
namespace {

std::string prefix_of(const emm_ipc_handle &handle) {
    std::string text = "emm-ipc-";
    for (size_t i = 0; i < 8; ++i) {
        char two[4];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(handle.nonce[i]));
        text += two;
    }
    return text;
}

} // namespace

std::vector<std::string> names_of(const emm_ipc_handle &handle) {
    std::vector<std::string> names;
    std::ifstream all("/proc/net/unix");
    for (std::string line; std::getline(all, line);) {
        const size_t at = line.find('@' + prefix_of(handle));
        if (at != line.npos && line.find(" 00010000 ") != line.npos) { // it listens
            names.push_back(line.substr(at + 1));
        }
    }
    return names;
}

int listen_at(const std::string &name, int backlog) {
    const emm::sockets::Address address = emm::sockets::address_of(name);
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(made, address.get(), address.length) != 0 || listen(made, backlog) != 0) {
        close(made);
        return -1;
    }
    return made;
}

int connect_at(const std::string &name) {
    const emm::sockets::Address address = emm::sockets::address_of(name);
    const int made = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made >= 0 && connect(made, address.get(), address.length) != 0) {
        close(made);
        return -1;
    }
    return made;
}

void become_other_user() {
    CHECK(setresgid(other_user, other_user, other_user) == 0 &&
          setresuid(other_user, other_user, other_user) == 0);
}

Asked request_for(const emm_ipc_handle &handle) {
    Asked request = {};
    request.magic = emm::sharing::wire_magic;
    request.most = emm::sharing::parts_at_once;
    std::memcpy(request.nonce, handle.nonce, sizeof request.nonce);
    request.generation = handle.generation;
    std::memcpy(request.handle, handle.handle, sizeof request.handle);
    return request;
}

} // namespace attacked
