// Importers in a crowd, beside processes that are silent or ask without end, and importers of a
// killed exporter.
#include "cases.h"
#include "sockets.h"

#include <poll.h>
#include <random>
#include <sys/resource.h>
#include <unistd.h>

using namespace share;

namespace attacked {

namespace {

// Views of one allocation, each with an export of its own; 0: refused.
std::vector<emm_ipc_handle> share_views(const Part &exporter, size_t size, size_t count,
                                        Outcome &ret_refused) {
    exporter.allocate(size);
    std::vector<emm_ipc_handle> handles;
    for (size_t i = 0; i < count; ++i) {
        const Told shared = exporter.share(i * 4 * KiB, size - i * 4 * KiB);
        if (shared.status != EMM_OK) {
            ret_refused = shared.text;
            return {};
        }
        handles.push_back(shared.handle);
    }
    return handles;
}

void open_at_once(const Part &importer, const std::vector<emm_ipc_handle> &handles) {
    put(importer.socket, Order{'m', 0, 0, handles.size(), {}});
    for (const emm_ipc_handle &each : handles) {
        put(importer.socket, each);
    }
    const Told failed = importer.hear();
    if (failed.number != 0) {
        std::fprintf(stderr, "%llu of %zu importers failed, the first with %d: %s\n",
                     static_cast<unsigned long long>(failed.number), handles.size(), failed.status,
                     failed.text);
    }
    CHECK(failed.number == 0);
}

} // namespace

// An import of pages takes eight requests.
Outcome import_in_a_crowd() {
    const Part exporter, importer;
    Outcome refused;
    const auto handles = share_views(exporter, 1024 * MiB, 48, refused);
    if (!refused.empty()) {
        return refused;
    }
    open_at_once(importer, handles);
    importer.close_opened();
    return "";
}

void crowd(int socket, size_t count, bool asks) {
    emm_ipc_handle handle;
    if (!get(socket, handle)) {
        return;
    }
    const rlimit enough = {count + 100, count + 100};
    CHECK(setrlimit(RLIMIT_NOFILE, &enough) == 0);
    const std::vector<std::string> names = names_of(handle);
    const Asked request = request_for(handle);
    std::vector<pollfd> all(count, pollfd{-1, POLLIN | POLLRDHUP, 0});
    all.push_back({socket, POLLIN, 0});
    for (bool reported = false; (all[count].revents & (POLLIN | POLLHUP)) == 0; reported = true) {
        for (size_t i = 0; i < count; ++i) {
            if (all[i].fd >= 0 && (all[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) {
                close(all[i].fd);
                all[i].fd = -1;
            }
            for (size_t k = 0; all[i].fd < 0 && k < names.size(); ++k) {
                all[i].fd = connect_at(names[(i + k) % names.size()]);
            }
            for (int k = 0; asks && all[i].fd >= 0 && k < 10; ++k) {
                send(all[i].fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
        if (!reported) {
            put(socket, Told{});
        }
        CHECK(kernel_poll(all.data(), all.size(), asks ? 0 : 1) >= 0);
    }
}

namespace {

Outcome import_beside(size_t count, bool asks) {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < count + 100) {
        return "a thousand sockets are more than this process may have";
    }
    const Part beside([=](int socket) { crowd(socket, count, asks); });
    const Part exporter, importer;
    Outcome refused;
    const auto handles = share_views(exporter, 260 * MiB, 30, refused);
    if (!refused.empty()) {
        return refused;
    }
    if (names_of(handles[0]).empty()) {
        return "/proc/net/unix does not say what there is to connect to";
    }
    hand(beside, handles[0]);
    open_at_once(importer, handles);
    importer.close_opened();
    return "";
}

} // namespace

Outcome import_beside_silent() {
    return import_beside(1000, false);
}

Outcome import_beside_impatient() {
    return import_beside(64, true);
}

Outcome import_from_killed() {
    std::mt19937 random(5);
    const Part importer;
    const int rounds = simulates() ? 60 : 5; // each makes a context
    for (int round = 0; round < rounds; ++round) {
        Part exporter;
        exporter.allocate(512 * MiB);
        const Told shared = exporter.share(0, 512 * MiB);
        if (shared.status != EMM_OK) {
            exporter.tell({'f', 0, 0, 0, {}});
            return shared.text;
        }
        put(importer.socket, Order{'q', 0, 0, 0, shared.handle});
        importer.hear();
        usleep(static_cast<useconds_t>(random() % 8000));
        exporter.kill();
        const Told opened = importer.hear();
        if (opened.status != EMM_OK && opened.status != EMM_E_NOT_OWNED) {
            std::fprintf(stderr, "round %d: %d: %s\n", round, opened.status, opened.text);
        }
        CHECK(opened.status == EMM_OK || opened.status == EMM_E_NOT_OWNED);
        importer.close_opened();
    }
    return "";
}

} // namespace attacked
