// How an importer learns that an export goes on, and gets what the handle does not hold.
//
// A CUDA handle says nothing about its exporter: that may have died, or have freed the memory and
// be using the address for something else. So a process that exports listens at a socket whose name
// its handles tell. The kernel closes it with the process. An importer that can connect to it, and
// finds a process of its own user there, asks by an export's name whether that goes on. The thread
// of exporter/served_exports.cpp answers, and hands out descriptors. One socket is enough for a
// process, because an export must not cost a descriptor.
//
// An importer in another network namespace (a container with a network of its own) cannot connect:
// it opens a legacy handle unchecked, and one of descriptors not at all.
#pragma once

#include "sharing/handle/wire.h"

namespace emm::sharing {

// An importer's way to the exporter of one handle. The exporter has `answer_timeout` to answer, and
// a little more for each part that it has given: one that serves many importers is waited for, and
// one that does not go on is not.
class Connection {
public:
    explicit Connection(const emm_ipc_handle &handle, uint64_t parts) noexcept
        : handle_(handle), parts_(parts) {}
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // The parts from `first` on, one or more of them, with a descriptor each.
    //   EMM_E_NOT_OWNED   the export, or its exporter, has ended
    //   EMM_E_BUSY        the exporter did not get round to it
    emm_status ask(uint64_t first, Reply *ret_reply, sockets::Descriptors &ret_descriptors);

    // The whole handle, of which this one says no more than its name does. What comes is to be
    // checked. Statuses as above.
    emm_status ask_for_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle);

private:
    struct Messages {
        const void *request;
        size_t request_size;
        void *reply; // all 0 if what comes has another size
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

// Whether the export that `handle` names goes on, and its exporter is of the same user.
//   EMM_E_NOT_OWNED       the export, or its exporter, has ended
//   EMM_E_INVALID_VALUE   the exporter is another user's
//   EMM_E_NOT_SUPPORTED   it may not be connected to
//   EMM_E_BUSY            no answer came in time: try again
emm_status check_liveness(const emm_ipc_handle &handle);

// emm_ipc_name_to_handle: the exporter is asked, and what it answers checked.
emm_status find_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle);

} // namespace emm::sharing
