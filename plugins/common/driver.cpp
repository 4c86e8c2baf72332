#include "common/driver.h"

#include <cstdarg>

namespace emm::common {

void refuse(emm_status status, const char *format, ...) {
    char text[300];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    throw PluginError(status, 0, text);
}

Driver::Driver(const emm_host &host) : Entries(host.driver) {
    expect_complete();
}

void Driver::expect_complete() const {
    if (missing()) {
        refuse(EMM_E_NO_DRIVER, "the driver has no %s, which CUDA 12.0 and later have", missing());
    }
}

void Driver::expect_own(CUcontext context, emm_stream stream) const {
    const bool built_in = reinterpret_cast<uintptr_t>(stream) <= 2; // legacy and per-thread
    if (built_in || stream == EMM_STREAM_UNORDERED) {
        return;
    }
    bool foreign = false;
    const CUresult result = cuda::is_foreign(*this, context, stream, foreign);
    if (!is_late(result) && result != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        check(result, "cuStreamGetCtx");
    }
    if (foreign) {
        refuse(EMM_E_INVALID_VALUE, "the stream belongs to another context, and the plugin cannot "
                                    "wait for its work; nothing was freed");
    }
}

bool Driver::is_alive(CUcontext context, uint64_t id) const noexcept {
    return !is_late(cuda::check_alive(*this, context, id));
}

void Driver::fail(CUresult result, const char *what) const {
    char text[256];
    snprintf(text, sizeof text, "%s failed: %s (%d)", what, cuda::error_name(*this, result),
             static_cast<int>(result));
    throw PluginError(cuda::status_of(result, EMM_E_INVALID_VALUE), static_cast<int32_t>(result),
                      text);
}

} // namespace emm::common
