#include "cases.h"
#include "objects.h"

// As an H100 with driver 580 tells how much memory graphs use.
namespace {

constexpr size_t size = 10 * mib;

uint64_t figure(CUgraphMem_attribute attribute) {
    cuuint64_t bytes = 7;
    NEED(cu.cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
    return bytes;
}

CUresult set(CUgraphMem_attribute attribute, cuuint64_t value) {
    return cu.cuDeviceSetGraphMemAttribute(0, attribute, &value);
}

void are_at_least(uint64_t used, uint64_t high, const char *when) {
    const uint64_t now = figure(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
    fact(used ? now >= used : now == 0, "%s: used", when);
    fact(used ? figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) >= now : now == 0, "%s: reserved",
         when);
    const uint64_t most = figure(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
    fact(high ? most >= high : most == 0, "%s: used at most", when);
    fact(figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) >= most, "%s: reserved at most", when);
}

void setting() {
    result(set(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE,
           "what is used cannot be set");
    result(set(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, 0), CUDA_ERROR_INVALID_VALUE,
           "what is reserved cannot be set");
    result(set(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 1), CUDA_ERROR_INVALID_VALUE,
           "the most can be set to 0 alone");
    result(cu.cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, nullptr),
           CUDA_ERROR_INVALID_VALUE, "nowhere to put it");
}

void reset() {
    result(cu.cuDeviceGraphMemTrim(0), CUDA_SUCCESS, "a trim");
    result(set(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, 0), CUDA_SUCCESS, "the most used is reset");
    result(set(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, 0), CUDA_SUCCESS, "the most reserved is reset");
}

} // namespace

void graph_figures_case() {
    const Primary primary;
    const Stream stream;
    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    reset();
    are_at_least(0, 0, "at first");
    NEED(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    const CUdeviceptr memory = allocate_async(size, stream);
    NEED(cu.cuStreamEndCapture(stream, &graph));
    NEED(cu.cuGraphInstantiateWithFlags(&executable, graph, 0));
    are_at_least(0, 0, "instantiated");
    NEED(cu.cuGraphLaunch(executable, stream));
    NEED(cu.cuStreamSynchronize(stream));
    are_at_least(size, size, "launched");
    setting();
    NEED(cu.cuMemFreeAsync(memory, stream));
    NEED(cu.cuStreamSynchronize(stream));
    are_at_least(size, size, "freed");
    NEED(cu.cuDeviceGraphMemTrim(0));
    are_at_least(0, size, "trimmed");
    reset();
    are_at_least(0, 0, "reset");
    NEED(cu.cuGraphLaunch(executable, stream));
    NEED(cu.cuGraphExecDestroy(executable));
    NEED(cu.cuGraphDestroy(graph));
    NEED(cu.cuDeviceGraphMemTrim(0));
    are_at_least(size, size, "the program has it when its graph has ended");
    NEED(cu.cuMemFreeAsync(memory, stream));
    NEED(cu.cuStreamSynchronize(stream));
    are_at_least(size, size, "freed after that");
    reset();
    are_at_least(0, 0, "reset after that");
}
