// Sockets, as any program can use them.
#pragma once

#include "sharing/handle/wire.h"

#include <emm/emm.h>

#include <string>
#include <vector>

namespace attacked {

using Asked = emm::sharing::Request;

// The names that the exporter listens at, as every user can read them.
std::vector<std::string> names_of(const emm_ipc_handle &handle);
int listen_at(const std::string &name, int backlog);
int connect_at(const std::string &name); // -1: the queue is full
Asked request_for(const emm_ipc_handle &handle);
void become_other_user();

} // namespace attacked
