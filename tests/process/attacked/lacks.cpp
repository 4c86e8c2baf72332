// The means that a process may lack.
#include "cases.h"
#include "sockets.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

using namespace share;

namespace attacked {

Outcome lack_proc() {
    for (const bool has_cookie : {true, false}) {
        const Part exporter, importer;
        for (const Part *part : {&exporter, &importer}) {
            part->set('p', 1);
            part->set('c', !has_cookie);
        }
        exporter.allocate(4 * MiB);
        const Told shared = exporter.share(0, 4 * MiB);
        if (shared.status != EMM_OK) {
            return shared.text;
        }
        CHECK(importer.open(shared.handle).status == EMM_OK);
        importer.close_opened();
        CHECK(exporter.release(shared.handle).status == EMM_OK);
        CHECK(importer.open(shared.handle).status == EMM_E_NOT_OWNED);
    }
    return "";
}

Outcome lack_sockets() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    exporter.set('s', 1);
    const Told refused = exporter.share(0, 4 * MiB);
    if (refused.status == EMM_E_NOT_SUPPORTED) {
        return refused.text;
    }
    CHECK(refused.status == EMM_E_OUT_OF_HOST_MEMORY);
    CHECK(std::strstr(refused.text, "socket") && std::strstr(refused.text, std::strerror(EPERM)));
    exporter.set('s', 0);
    const Told shared = exporter.share(0, 4 * MiB);
    CHECK(shared.status == EMM_OK);
    importer.set('s', 1);
    const Told unasked = importer.open(shared.handle);
    CHECK(unasked.status == EMM_E_OUT_OF_HOST_MEMORY && std::strstr(unasked.text, "socket"));
    importer.set('s', 0);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

Outcome lack_permission() {
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    importer.set('o', 1);
    const Told refused = importer.open(shared.handle);
    CHECK(refused.status == EMM_E_NOT_SUPPORTED);
    CHECK(std::strstr(refused.text, std::strerror(EACCES)));
    importer.set('o', 0);
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

// A limit below the number of open descriptors: no connection can be accepted, and the serving
// thread waits for that.
Outcome lack_descriptors() {
    const Part silent([](int socket) { crowd(socket, 40, false); });
    const Part exporter, importer;
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK) {
        return shared.text;
    }
    hand(silent, shared.handle);
    exporter.set('n', 4);
    const uint64_t before = exporter.tell({'w', 0, 0, 0, {}}).number;
    usleep(500'000);
    const uint64_t after = exporter.tell({'w', 0, 0, 0, {}}).number;
    exporter.set('n', 1 << 10);
    std::printf("   it waited %llu times in half a second\n",
                static_cast<unsigned long long>(after - before));
    CHECK(after - before < 1000); // a thread that spins reaches a hundred thousand
    CHECK(importer.open(shared.handle).status == EMM_OK);
    return "";
}

// All users that a user namespace does not map have one id there.
Outcome be_an_unmapped_user() {
    if (geteuid() != 0 || !simulates()) {
        return geteuid() != 0 ? needs_root : "a real driver may not start in a user namespace";
    }
    const Part stranger([](int socket) {
        become_other_user();
        for_each_handle([](const emm_ipc_handle &handle, Told &answer) {
            const Asked request = request_for(handle);
            for (const std::string &name : names_of(handle)) {
                const int asking = connect_at(name);
                send(asking, &request, sizeof request, MSG_NOSIGNAL);
                pollfd waiting = {asking, POLLIN, 0};
                CHECK(kernel_poll(&waiting, 1, 5000) >= 0);
                emm::sharing::Reply reply;
                answer.number += recv(asking, &reply, sizeof reply, MSG_DONTWAIT) > 0;
                close(asking);
            }
        })(socket);
    });
    bool entered = false;
    const Part exporter([&](int socket) {
        entered = unshare(CLONE_NEWUSER) == 0;
        put(socket, Told{entered ? EMM_OK : EMM_E_NOT_SUPPORTED, 0, {}, ""});
        if (entered) {
            CHECK(geteuid() == other_user);
            use_memory(socket);
        }
    });
    if (exporter.hear().status != EMM_OK) {
        return "a user namespace cannot be had";
    }
    exporter.allocate(4 * MiB);
    const Told shared = exporter.share(0, 4 * MiB);
    if (shared.status != EMM_OK || shared.handle.kind == EMM_IPC_LEGACY) {
        return shared.status != EMM_OK ? shared.text : "nothing of this kind is handed out";
    }
    CHECK(hand(stranger, shared.handle).number == 0);
    return "";
}

} // namespace attacked
