#include "bench/memory.h"

#include "driver.h"
#include "problem.h"

namespace emm::tool {

void throw_last_problem() {
    throw Failure(last_problem("run"));
}

void throw_cuda(CUresult result, const char *call) {
    require_cuda(result, call);
    throw Failure(Problem{});
}

void throw_no_memory(const char *function) {
    throw Failure({.code = EMM_E_OUT_OF_HOST_MEMORY,
                   .stage = "run",
                   .message = std::string(function) + " ran out of memory"});
}

Stream::Stream(emm_context *context) : context_(context) {
    EMM_REQUIRE_CUDA(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    if (context_) {
        require(emm_stream_register(context_, stream_), "run");
    }
}

Stream::~Stream() {
    if (context_) {
        emm_stream_retire(context_, stream_);
    }
    driver_calls().cuStreamSynchronize(stream_);
    driver_calls().cuStreamDestroy(stream_);
}

} // namespace emm::tool
