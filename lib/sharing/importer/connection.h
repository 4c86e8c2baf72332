// How an importer learns whether an export still exists, and gets the parts that the handle does
// not hold.
//
// A CUDA handle says nothing about its exporter: that process may have died, or may have freed the
// memory and reused the address. So an exporting process listens at a socket that its handles name.
// The kernel closes the socket with the process. An importer connects, checks that the peer is of
// its own user, and asks whether the export still exists. The thread of exporter/served_exports.cpp
// answers, and hands out descriptors. One socket is enough for a process, because an export must
// not cost a descriptor.
//
// An importer in another network namespace (a container with a network of its own) cannot connect:
// it opens a legacy handle unchecked, and a handle of descriptors not at all.
#pragma once

#include "sharing/handle/wire.h"

namespace emm::sharing {

// An importer's connection to the exporter of one handle. The exporter has `answer_timeout` to
// answer, and a little more for each part that it has given. So the importer waits for a busy
// exporter, but not for a stuck exporter.
class Connection {
public:
    explicit Connection(const emm_ipc_handle &handle, uint64_t parts) noexcept
        : handle_(handle), parts_(parts) {}
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // The parts from `first` on, at least one, with a descriptor each.
    //   EMM_E_NOT_OWNED   the export, or its exporter, has ended
    //   EMM_E_BUSY        the exporter did not answer in time
    emm_status ask(uint64_t first, Reply *ret_reply, sockets::Descriptors &ret_descriptors);

    // Asks for the whole handle; the caller knows its name only, and checks the handle. Statuses as
    // above.
    emm_status ask_for_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle);

private:
    struct Messages {
        const void *request;
        size_t request_size;
        void *reply; // all 0 if the reply has another size
        size_t reply_size;
    };
    emm_status converse(const Messages &messages, sockets::Descriptors &descriptors);
    emm_status exchange(int socket, const Messages &messages, sockets::Descriptors &descriptors,
                        bool &ret_again);
    emm_status check(const Reply &reply, sockets::Descriptors &descriptors) const;
    emm_status check(const HandleReply &reply) const;
    emm_status fail_exchange(int error, bool &ret_again) const;

    const emm_ipc_handle &handle_;
    const uint64_t parts_;
    int64_t left_ = answer_timeout; // nanoseconds
};

// Whether the export that `handle` names still exists, and its exporter is of the same user.
//   EMM_E_NOT_OWNED       the export, or its exporter, has ended
//   EMM_E_INVALID_VALUE   the exporter is another user's
//   EMM_E_NOT_SUPPORTED   the exporter cannot be connected to
//   EMM_E_BUSY            no answer came in time: try again
emm_status check_liveness(const emm_ipc_handle &handle);

// emm_ipc_name_to_handle: asks the exporter, and checks the answer.
emm_status find_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle);

} // namespace emm::sharing
