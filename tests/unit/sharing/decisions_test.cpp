// Behaviour: decisions about sharing memory that need no other process.
#include "../core/recorder.h"
#include "catch.h"
#include "driver/driver.h"
#include "sharing/exporter/exporter.h"
#include "sharing/handle/wire.h"
#include "sharing/importer/connection.h"
#include "sockets/user.h"

#include <climits>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace emm::sharing;
using namespace emm::sockets;

TEST_CASE("the overflow id of a user namespace is no user's own") {
    constexpr uint32_t overflow = 65534;
    CHECK(is_same_user(1000, 1000, overflow, false));
    CHECK_FALSE(is_same_user(1001, 1000, overflow, true));
    CHECK_FALSE(is_same_user(overflow, overflow, overflow, false));
    CHECK(is_same_user(overflow, overflow, overflow,
                       true)); // an ordinary user, if all have ids
}

TEST_CASE("only a user namespace that maps every user tells all of them apart") {
    CHECK(maps_all_users("         0          0 4294967295\n"));
    CHECK_FALSE(maps_all_users("         0       1000          1\n"));
    CHECK_FALSE(maps_all_users("         0          0 4294967294\n"));
    CHECK_FALSE(maps_all_users("0 1 4294967295"));
    CHECK_FALSE(maps_all_users("0 0"));
    CHECK_FALSE(maps_all_users(""));
}

TEST_CASE("a network namespace that is not known is not taken for another") {
    CHECK(sight_of(7, 7) == Sight::here);
    CHECK(sight_of(7, 8) == Sight::elsewhere);
    CHECK(sight_of(0, 8) == Sight::unknown);
    CHECK(sight_of(7, 0) == Sight::unknown);
    CHECK(sight_of(0, 0) == Sight::unknown);
    CHECK(network_namespace() != 0);
}

TEST_CASE("an exporter in another network namespace cannot be asked, and counts as alive") {
    emm_ipc_handle handle = {};
    handle.flags = network_namespace() ^ 1;
    CHECK(check_liveness(handle) == EMM_OK);
    handle.flags = network_namespace();
    CHECK(check_liveness(handle) < EMM_OK);
}

TEST_CASE("a process without standard input serves its exports at descriptor 0") {
    close(STDIN_FILENO);
    CHECK(start_serving() == EMM_OK);
    CHECK(fcntl(STDIN_FILENO, F_GETFD) == FD_CLOEXEC);
    CHECK(start_serving() == EMM_OK); // as every further export does
}

TEST_CASE("a number that no driver answers is an unknown error") {
    using emm::driver::result_of;
    CHECK(result_of(0) == CUDA_SUCCESS);
    CHECK(result_of(CUDA_ERROR_INVALID_VALUE) == CUDA_ERROR_INVALID_VALUE);
    CHECK(result_of(CUDA_ERROR_UNKNOWN) == CUDA_ERROR_UNKNOWN);
    for (const int32_t number : {-1, 1000, INT_MIN, INT_MAX}) {
        CHECK(result_of(number) == CUDA_ERROR_UNKNOWN);
    }
}

TEST_CASE("descriptors that come with a message are closed unless they are taken") {
    int ends[2], taken = -1, left = -1;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    {
        Descriptors descriptors;
        char byte = 0;
        REQUIRE(send_message(ends[0], &byte, 1, ends, 2));
        REQUIRE(receive_message(ends[1], &byte, 1, descriptors) == 1);
        REQUIRE(descriptors.count() == 2);
        left = descriptors[0];
        taken = descriptors.take(1);
    }
    CHECK(fcntl(left, F_GETFD) == -1);
    CHECK(fcntl(taken, F_GETFD) == FD_CLOEXEC);
    for (const int each : {taken, ends[0], ends[1]}) {
        close(each);
    }
}

TEST_CASE("what a service of the host failed with stays when a plugin passes its answer on") {
    emm_context *context = recorded_context();
    Recorder &recorder = Recorder::the();
    recorder.on_memalloc = [&](size_t) {
        emm_ipc_source source = {};
        emm_ipc_handle handle = {};
        return recorder.host->serve_ipc(context, &source, &handle);
    };
    emm_deviceptr ptr = 0;
    CHECK(emm_memalloc(context, 64, EMM_STREAM_LEGACY, &ptr) == EMM_E_INVALID_VALUE);
    CHECK_THAT(emm_last_error()->text,
               ContainsSubstring("serve_ipc: expected a whole emm_ipc_source"));
}
