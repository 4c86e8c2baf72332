#pragma once

#include "core/ipc/wire.h"

namespace emm::core::ipc {

// An importer's way to the exporter of one handle. All its waiting together takes no longer than
// `patience` and a little for each part, whatever the other side does.
class Connection {
public:
    explicit Connection(const emm_ipc_handle &handle, uint64_t parts) noexcept;
    ~Connection();
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    // Must come first, and succeed.
    emm_status open();

    // The parts from `first` on, one or more of them, with a descriptor each: the caller's.
    emm_status ask(uint64_t first, Reply *ret_reply, int (&ret_descriptors)[parts_at_once]);

private:
    emm_status limit_waiting();
    void wait_for_message();
    emm_status receive(Reply *ret_reply, int (&ret_descriptors)[parts_at_once]);
    emm_status fail_connection(int error) const;

    const emm_ipc_handle &handle_;
    const uint64_t parts_;
    int64_t left_; // nanoseconds
    int socket_ = -1;
};

} // namespace emm::core::ipc
