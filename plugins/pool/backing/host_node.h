// `host_node=nearest`: pinned memory lies on the host's NUMA node nearest to the device, as far as
// the node has room. The driver takes pages by the memory policy of the calling thread.
#pragma once

#include "cuda/served_context.h"

#include <array>

namespace emm::pool {

class HostNode {
public:
    // If the system refuses such a policy, logs a warning and prefers no node.
    HostNode(const ServedContext &context, bool nearest);

    // While it lives, the calling thread prefers the node.
    class Preferred {
    public:
        explicit Preferred(const HostNode &node) : Preferred(node.node_) {}
        ~Preferred();
        Preferred(const Preferred &) = delete;
        Preferred &operator=(const Preferred &) = delete;

    private:
        friend class HostNode;
        explicit Preferred(int node); // below 0: none

        static constexpr size_t most_nodes = 1024;
        std::array<unsigned long, most_nodes / 64> before_{}; // nodes of the thread's own policy
        int mode_ = 0;                                        // mode of that policy
        int error_ = 0;                                       // of the system; 0: none
        bool changed_ = false;
    };

private:
    int node_; // below 0: any
};

} // namespace emm::pool
