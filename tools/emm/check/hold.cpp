#include "check/hold.h"

#include <cuda.h>
#include <string_view>

namespace emm::tool::check {

std::atomic<void (*)()> before_giving_back{nullptr};

namespace {

// One replacement for each entry of this signature.
template <int which, class... Arguments> class GivingBack {
public:
    using Entry = CUresult(CUDAAPI *)(Arguments...);

    static emm_function hold(emm_function entry) {
        real() = reinterpret_cast<Entry>(entry);
        return reinterpret_cast<emm_function>(&call);
    }

private:
    static std::atomic<Entry> &real() {
        static std::atomic<Entry> entry{nullptr};
        return entry;
    }
    static CUresult CUDAAPI call(Arguments... arguments) {
        if (void (*const before)() = before_giving_back) {
            before();
        }
        return real().load()(arguments...);
    }
};

struct Watched {
    std::string_view name;
    emm_function (*hold)(emm_function);
};

constexpr Watched that_give_back[] = {
    {"cuMemFree", &GivingBack<0, CUdeviceptr>::hold},
    {"cuMemFreeAsync", &GivingBack<0, CUdeviceptr, CUstream>::hold},
    {"cuMemPoolTrimTo", &GivingBack<0, CUmemoryPool, size_t>::hold},
    {"cuMemUnmap", &GivingBack<0, CUdeviceptr, size_t>::hold},
    {"cuMemRelease", &GivingBack<1, CUmemGenericAllocationHandle>::hold},
};

} // namespace

emm_function entry_that_can_be_held(const char *name, emm_function entry) {
    for (const Watched &each : that_give_back) {
        if (entry && each.name == name) {
            return each.hold(entry);
        }
    }
    return entry;
}

} // namespace emm::tool::check
