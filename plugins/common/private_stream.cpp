#include "common/private_stream.h"

namespace emm::common {

PrivateStream::PrivateStream(const Driver &driver, CUcontext context, uint64_t context_id)
    : driver_(driver), context_(context), context_id_(context_id) {
    const passthrough::RelaxedCapture relaxed(driver);
    driver.check(driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

PrivateStream::~PrivateStream() {
    const passthrough::RelaxedCapture relaxed(driver_);
    if (driver_.is_alive(context_, context_id_)) {
        driver_.cuStreamDestroy(stream_);
    }
}

} // namespace emm::common
