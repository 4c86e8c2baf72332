#include "layers/guard/caller.h"

#include <cstdio>
#include <dlfcn.h>
#include <execinfo.h>

namespace emm::guard {

Caller Caller::here() {
    Caller caller;
    caller.count_ = backtrace(caller.frames_.data(), static_cast<int>(caller.frames_.size()));
    return caller;
}

std::string Caller::text() const {
    std::string told;
    for (int i = 0, shown = 0; i < count_ && shown < 3; i++) {
        Dl_info info = {};
        const std::string file =
            dladdr(frames_[static_cast<size_t>(i)], &info) && info.dli_fname ? info.dli_fname : "?";
        const std::string name = file.substr(file.rfind('/') + 1);
        if (name.rfind("libemm", 0) == 0 || name.rfind("libcuda.so", 0) == 0) {
            continue; // a frame of emm, also under emm run
        }
        told += (shown++ ? " < " : "") + name;
        if (info.dli_sname) {
            told += std::string("(") + info.dli_sname + ")";
        } else {
            char offset[32];
            snprintf(offset, sizeof offset, "+0x%zx",
                     static_cast<size_t>(static_cast<char *>(frames_[static_cast<size_t>(i)]) -
                                         static_cast<char *>(info.dli_fbase)));
            told += offset;
        }
    }
    return told.empty() ? "an unknown caller" : told;
}

} // namespace emm::guard
