#include "bench/stream.h"

#include "problem.h"

namespace emm::tool {

Stream::Stream(emm_context *context) : context_(context) {
    require_cuda(driver_calls().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
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
