#include "host_node.h"

#include "page_driver.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace emm::pool {
namespace {

constexpr int prefer = 1; // MPOL_PREFERRED of linux/mempolicy.h

} // namespace

HostNode::HostNode(const ServedContext &context, bool nearest)
    : node_(nearest ? PageDriver::nearest_node(context) : -1) {
    const int error = Preferred(node_).error_;
    if (error != 0) {
        char text[160];
        snprintf(text, sizeof text,
                 "pool: host_node=nearest has no effect, because the system refuses a "
                 "memory policy for node %d: %s",
                 node_, strerror(error));
        context.host.log(EMM_LOG_WARN, text);
        node_ = -1;
    }
}

HostNode::Preferred::Preferred(int node) {
    if (node < 0) {
        return;
    }
    std::array<unsigned long, most_nodes / 64> wanted{};
    if (size_t(node) >= most_nodes) {
        error_ = EINVAL;
        return;
    }
    wanted[size_t(node) / 64] = 1ul << (size_t(node) % 64);
    // The kernel reads one bit less than the given number.
    changed_ = syscall(SYS_get_mempolicy, &mode_, before_.data(), most_nodes, nullptr, 0) == 0 &&
               syscall(SYS_set_mempolicy, prefer, wanted.data(), most_nodes) == 0;
    error_ = changed_ ? 0 : errno;
}

HostNode::Preferred::~Preferred() {
    if (changed_) {
        syscall(SYS_set_mempolicy, mode_, before_.data(), most_nodes);
    }
}

} // namespace emm::pool
