// Behaviour: CUDA's promises about updated and cloned graphs: the same on real hardware and
// simulated.
#include "captures.h"

#include <vector>

namespace {

// One memset of each value, in line.
CUgraph memsets(CUdeviceptr address, const std::vector<unsigned char> &values, CUstream stream) {
    begin(stream);
    for (const unsigned char value : values) {
        REQUIRE(cu().cuMemsetD8Async(address, value, 4096, stream) == CUDA_SUCCESS);
    }
    return end(stream);
}

// The value that a launch leaves at the address.
int launch_and_look(CUgraphExec executable, CUdeviceptr address, CUstream stream) {
    REQUIRE(cu().cuGraphLaunch(executable, stream) == CUDA_SUCCESS);
    REQUIRE(cu().cuStreamSynchronize(stream) == CUDA_SUCCESS);
    return byte_at(address);
}

// The result of a failed update.
CUgraphExecUpdateResultInfo refused(CUgraphExec executable, CUgraph graph) {
    CUgraphExecUpdateResultInfo info = {};
    CHECK(cu().cuGraphExecUpdate(executable, graph, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    return info;
}

} // namespace

TEST_CASE("an updated executable graph runs the other graph's work and holds what that retains") {
    const Device device;
    const Stream stream;
    const Block block(4096);
    static std::atomic<int> first_gone, second_gone;
    CUgraphExecUpdateResultInfo info = {};
    first_gone = second_gone = 0;
    const CUgraph first = memsets(block, {1}, stream), second = memsets(block, {2}, stream);
    retain(first, [](void *) { ++first_gone; });
    retain(second, [](void *) { ++second_gone; });
    const CUgraphExec executable = instantiate(first);
    REQUIRE(cu().cuGraphDestroy(first) == CUDA_SUCCESS);
    CHECK(launch_and_look(executable, block, stream) == 1);
    CHECK(first_gone == 0);
    REQUIRE(cu().cuGraphExecUpdate(executable, second, &info) == CUDA_SUCCESS);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS);
    await_at_least(1, first_gone);
    CHECK(first_gone == 1);
    REQUIRE(cu().cuGraphDestroy(second) == CUDA_SUCCESS);
    CHECK(launch_and_look(executable, block, stream) == 2);
    CHECK(second_gone == 0);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    await_at_least(1, second_gone);
    CHECK(second_gone == 1);
}

TEST_CASE("an update from a graph of another shape is refused, named, and changes nothing") {
    const Device device;
    const Stream stream;
    const Block block(4096);
    CUgraph side_by_side = nullptr;
    CUgraphNode nodes[2];
    size_t count = 2;
    const CUgraph one = memsets(block, {1}, stream), two = memsets(block, {1, 2}, stream);
    begin(stream);
    REQUIRE(cu().cuLaunchHostFunc(
                stream, [](void *) {}, nullptr) == CUDA_SUCCESS);
    const CUgraph other = end(stream);
    REQUIRE(cu().cuGraphCreate(&side_by_side, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphAddEmptyNode(&nodes[0], side_by_side, nullptr, 0) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphAddEmptyNode(&nodes[1], side_by_side, nullptr, 0) == CUDA_SUCCESS);
    const CUgraphExec executable = instantiate(one), longer = instantiate(two);

    CUgraphExecUpdateResultInfo info = refused(executable, two);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    CHECK(info.errorNode == nullptr);
    REQUIRE(cu().cuGraphGetNodes(other, nodes, &count) == CUDA_SUCCESS);
    info = refused(executable, other);
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
    CHECK(info.errorNode == nodes[0]);
    info = refused(longer, side_by_side);
    CHECK((info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED ||
           info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED));
    CHECK(info.errorNode != nullptr);

    CHECK(launch_and_look(executable, block, stream) == 1);
    for (const CUgraph graph : {one, two, other, side_by_side}) {
        CHECK(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    }
    CHECK(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    CHECK(cu().cuGraphExecDestroy(longer) == CUDA_SUCCESS);
}

TEST_CASE("a clone of a graph holds what that retains") {
    const Device device;
    const Stream stream;
    const Block block(4096);
    static std::atomic<int> gone;
    CUgraph clone = nullptr;
    gone = 0;
    const CUgraph graph = memsets(block, {3, 4}, stream);
    retain(graph, [](void *) { ++gone; });
    REQUIRE(cu().cuGraphClone(&clone, graph) == CUDA_SUCCESS);
    REQUIRE(cu().cuGraphDestroy(graph) == CUDA_SUCCESS);
    const CUgraphExec executable = instantiate(clone);
    REQUIRE(cu().cuGraphDestroy(clone) == CUDA_SUCCESS);
    CHECK(launch_and_look(executable, block, stream) == 4);
    CHECK(gone == 0);
    REQUIRE(cu().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
    await_at_least(1, gone);
    CHECK(gone == 1);
}
