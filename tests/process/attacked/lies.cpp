// An exporter that is not emm's, and handles with false claims.
#include "cases.h"
#include "sockets.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <unistd.h>

using namespace share;

namespace attacked {

namespace {

constexpr uint64_t TiB = uint64_t(1) << 40;

enum class Lie { empty, part_of, no_magic, no_result, fewer, junk, all };

void answer_with(int peer, Lie lie, uint64_t bytes) {
    emm::sharing::Reply reply = {};
    reply.magic = lie == Lie::no_magic ? 1 : emm::sharing::wire_magic;
    reply.status = lie == Lie::no_result ? -12345 : EMM_OK;
    reply.driver_result = lie == Lie::no_result ? INT32_MIN : 0;
    reply.count = lie == Lie::fewer ? 1 : emm::sharing::parts_at_once;
    reply.total = 1;
    reply.bytes = bytes;
    int sent[emm::sharing::parts_at_once];
    std::fill(std::begin(sent), std::end(sent), peer);
    union {
        cmsghdr header;
        char bytes[CMSG_SPACE(sizeof sent)];
    } control = {};
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof sent);
    std::memcpy(CMSG_DATA(&control.header), sent, sizeof sent);
    iovec part = {&reply, lie == Lie::empty ? 0 : lie == Lie::part_of ? 8 : sizeof reply};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    sendmsg(peer, &message, MSG_NOSIGNAL);
}

// Listens at every name of an exporter that has ended, and answers each request with one lie.
void lie_about(int socket) {
    emm_ipc_handle handle;
    if (!get(socket, handle)) {
        return;
    }
    const std::vector<std::string> names = names_of(handle);
    put(socket, Told{});
    Told lie;
    CHECK(get(socket, lie)); // fails, once the exporter has ended
    std::vector<pollfd> all = {{socket, POLLIN, 0}};
    for (const std::string &name : names) {
        all.push_back({listen_at(name, 100), POLLIN, 0});
        CHECK(all.back().fd >= 0);
    }
    put(socket, Told{});
    while (kernel_poll(all.data(), all.size(), -1) > 0 && all[0].revents == 0) {
        for (size_t i = 1; i < all.size(); ++i) {
            if (all[i].revents == 0) {
                continue;
            }
            const int peer = accept4(all[i].fd, nullptr, nullptr, SOCK_CLOEXEC);
            Asked request;
            if (recv(peer, &request, sizeof request, 0) > 0) {
                answer_with(peer, static_cast<Lie>(lie.number), handle.exported_size);
            }
            close(peer);
        }
    }
}

} // namespace

Outcome import_lies() {
    constexpr int openings = 20;
    const Part importer;
    for (int lie = 0; lie < static_cast<int>(Lie::all); ++lie) {
        const Part liar(lie_about);
        emm_ipc_handle handle;
        {
            const Part exporter;
            exporter.allocate(MiB);
            const Told shared = exporter.share(0, 4 * KiB);
            if (shared.status != EMM_OK || shared.handle.kind == EMM_IPC_LEGACY) {
                return shared.status != EMM_OK ? shared.text : "no exporter of these is asked";
            }
            handle = shared.handle;
            hand(liar, handle);
        }
        Told which;
        which.number = static_cast<uint64_t>(lie);
        put(liar.socket, which);
        liar.hear();
        CHECK(importer.open(handle).status < EMM_OK); // the driver may keep some memory
        const uint64_t before = importer.descriptors();
        for (int i = 0; i < openings; ++i) {
            const Told refused = importer.open(handle);
            CHECK(refused.status < EMM_OK && std::strlen(refused.text) > 0);
        }
        if (importer.descriptors() > before) {
            std::fprintf(stderr, "lie %d: %llu descriptors more\n", lie,
                         static_cast<unsigned long long>(importer.descriptors() - before));
        }
        CHECK(importer.descriptors() <= before);
    }
    return "";
}

Outcome claim_too_much() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    const auto whole = changed(shared.handle, [](emm_ipc_handle &handle) {
        handle.exported_size = handle.size = TiB;
        handle.offset = 0;
    });
    const auto beyond = changed(shared.handle, [](emm_ipc_handle &handle) {
        handle.exported_size = TiB;
        handle.offset = TiB - handle.size;
    });
    for (int round = 0; round < 2; ++round) { // the second beside a right opening
        for (const emm_ipc_handle &bad : {whole, beyond}) {
            const Told refused = importer.open(bad);
            CHECK(refused.status == EMM_E_INVALID_VALUE);
        }
        CHECK(importer.open(shared.handle).status == EMM_OK);
    }
    return "";
}

// More than a process can record; its exporter is asked before memory is taken.
Outcome claim_too_many_parts() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK || shared.handle.kind != EMM_IPC_FILE_DESCRIPTOR) {
        return shared.status != EMM_OK ? shared.text : "a handle of this kind has no parts";
    }
    const auto bad = changed(shared.handle, [](emm_ipc_handle &handle) {
        constexpr uint64_t parts = uint64_t(1) << 48;
        handle.exported_size = parts * 4096;
        std::memcpy(handle.handle + 32, &parts, sizeof parts);
    });
    CHECK(importer.open(bad).status == EMM_E_NOT_OWNED);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

} // namespace attacked
