#include "faults.h"

#include "entries.h"

#include <charconv>

namespace simcuda {
namespace {

bool read_whole(std::string_view text, auto &ret_number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ret_number);
    return error == std::errc() && end == text.data() + text.size() && ret_number > 0;
}

bool takes_memory(std::string_view call) {
    for (const std::string_view name : {"cuMemAlloc",
                                        "cuMemAllocPitch",
                                        "cuMemAllocHost",
                                        "cuMemHostAlloc",
                                        "cuMemHostRegister",
                                        "cuMemAllocManaged",
                                        "cuMemAddressReserve",
                                        "cuMemCreate",
                                        "cuMemMap",
                                        "cuMemSetAccess",
                                        "cuMemAllocAsync",
                                        "cuMemAllocFromPoolAsync",
                                        "cuMemPoolCreate",
                                        "cuArrayCreate",
                                        "cuArray3DCreate",
                                        "cuMipmappedArrayCreate",
                                        "cuGraphAddMemAllocNode",
                                        "cuCtxCreate",
                                        "cuDevicePrimaryCtxRetain",
                                        "cuStreamCreate",
                                        "cuStreamCreateWithPriority",
                                        "cuEventCreate",
                                        "cuGraphCreate",
                                        "cuGraphInstantiateWithFlags",
                                        "cuUserObjectCreate",
                                        "cuIpcOpenMemHandle"}) {
        if (call == name) {
            return true;
        }
    }
    return false;
}

} // namespace

std::string Faults::arm(std::string_view text) {
    const std::string wrong = "fail takes CALL@N, CALL@N+ or CALL@N:CODE, where CALL is the name "
                              "of an entry or any, and CODE a CUresult from 1 to 999; found '" +
                              std::string(text) + "'";
    Fault fault;
    const size_t at = text.find('@');
    if (at == text.npos) {
        return wrong;
    }
    fault.call = text.substr(0, at);
    std::string_view count = text.substr(at + 1);
    if (const size_t colon = count.find(':'); colon != count.npos) {
        if (!read_whole(count.substr(colon + 1), fault.code) || fault.code > CUDA_ERROR_UNKNOWN) {
            return wrong;
        }
        count = count.substr(0, colon);
    }
    if (!count.empty() && count.back() == '+') {
        fault.onwards = true;
        count.remove_suffix(1);
    }
    if (!read_whole(count, fault.at) || (fault.call != "any" && !is_entry(fault.call))) {
        return wrong;
    }
    armed_.push_back(fault);
    return "";
}

CUresult Faults::next(const char *call) {
    CUresult result = CUDA_SUCCESS;
    for (Fault &fault : armed_) {
        if (fault.call != "any" && call != fault.call) {
            continue;
        }
        ++fault.calls;
        if (fault.calls == fault.at || (fault.onwards && fault.calls > fault.at)) {
            result = fault.code           ? static_cast<CUresult>(fault.code)
                     : takes_memory(call) ? CUDA_ERROR_OUT_OF_MEMORY
                                          : CUDA_ERROR_UNKNOWN;
        }
    }
    if (result != CUDA_SUCCESS) {
        ++injected_;
        ++injected_into_[call];
        last_ = call;
    }
    return result;
}

uint64_t Faults::injected(std::string_view call) const {
    const auto found = injected_into_.find(call);
    return found == injected_into_.end() ? 0 : found->second;
}

} // namespace simcuda
