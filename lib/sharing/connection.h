#pragma once

#include "sharing/wire.h"

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
    emm_status ask(uint64_t first, Reply *ret_reply, Descriptors &ret_descriptors);

    // The whole handle, of which this one says no more than its name does. What comes is to be
    // checked. Statuses as above.
    emm_status ask_for_handle(const emm_ipc_name &name, emm_ipc_handle *ret_handle);

private:
    struct Socket;
    struct Messages {
        const void *request;
        size_t request_size;
        void *reply; // all 0 if what comes has another size
        size_t reply_size;
    };
    emm_status converse(const Messages &messages, Descriptors &descriptors);
    emm_status exchange(const Socket &socket, const Messages &messages, Descriptors &descriptors,
                        bool &ret_again);
    void wait_for_message(const Socket &socket);
    emm_status check(const Reply &reply, Descriptors &descriptors) const;
    emm_status check(const HandleReply &reply) const;
    emm_status fail_exchange(int error, bool &ret_again) const;

    const emm_ipc_handle &handle_;
    const uint64_t parts_;
    int64_t left_ = answer_timeout; // nanoseconds
};

} // namespace emm::sharing
