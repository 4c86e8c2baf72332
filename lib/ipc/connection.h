#pragma once

#include "ipc/wire.h"

namespace emm::ipc {

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

private:
    struct Socket;
    emm_status exchange(const Socket &socket, uint64_t first, Reply &reply,
                        Descriptors &descriptors, bool &ret_again);
    void wait_for_message(const Socket &socket);
    emm_status check(const Reply &reply, Descriptors &descriptors) const;
    emm_status fail_exchange(int error, bool &ret_again) const;

    const emm_ipc_handle &handle_;
    const uint64_t parts_;
    int64_t left_ = answer_timeout; // nanoseconds
};

} // namespace emm::ipc
