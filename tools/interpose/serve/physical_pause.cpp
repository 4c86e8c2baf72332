// Memory of cuMemCreate goes to sleep, and wakes.
#include "physical_piece.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <utility>

namespace emm::run {
namespace {

std::string failed(const char *call, CUresult result) {
    return fmt::format("the driver's {} failed: {}", call, int(result));
}

CUresult unmap_drivers(CUdeviceptr address, size_t size) {
    return ask_driver<&cuMemUnmap>(served_cuMemUnmap, address, size);
}

} // namespace

std::vector<PhysicalMemory::PiecePtr> PhysicalMemory::all() const {
    std::vector<PiecePtr> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[handle, piece] : pieces_) {
        found.push_back(piece);
    }
    return found;
}

// Contexts to copy in. They retain a primary context that only the copies need.
class PhysicalMemory::CopyContexts {
public:
    explicit CopyContexts(Contexts &contexts) : contexts_(contexts) {}
    ~CopyContexts() {
        for (const auto &[device, context] : retained_) {
            ask_driver<&cuDevicePrimaryCtxRelease>(served_cuDevicePrimaryCtxRelease_v2, device);
        }
    }
    CopyContexts(const CopyContexts &) = delete;
    CopyContexts &operator=(const CopyContexts &) = delete;

    struct Found {
        CUcontext context = nullptr; // NULL: no context
        CUdevice device = -1;        // the context's
        bool lasts = true;           // longer than this
    };
    // A context of the memory's device, else of another device that reaches the memory.
    Found reaching(CUdevice memory) {
        std::vector<CUdevice> candidates = {memory};
        for (emm_context *const each : contexts_.all()) {
            candidates.push_back(device_of_context(each));
        }
        for (const CUdevice device : candidates) {
            const CUcontext found = reaches(device, memory) ? of_program(device) : nullptr;
            if (found) {
                return {found, device};
            }
        }
        return {primary_of(memory), memory, false};
    }

private:
    bool reaches(CUdevice device, CUdevice memory) const {
        int answer = 0;
        return device == memory ||
               (device >= 0 &&
                contexts_.driver().cuDeviceCanAccessPeer(&answer, device, memory) == CUDA_SUCCESS &&
                answer != 0);
    }
    CUcontext of_program(CUdevice device) const {
        emm_context *const lasting = contexts_.lasting_on(device);
        return lasting ? cuda_of(lasting) : contexts_.retained_on(device).context;
    }
    CUcontext primary_of(CUdevice device) {
        CUcontext &context = retained_[device];
        if (!context && ask_driver<&cuDevicePrimaryCtxRetain>(served_cuDevicePrimaryCtxRetain,
                                                              &context, device) != CUDA_SUCCESS) {
            retained_.erase(device);
            return nullptr;
        }
        return context;
    }

    Contexts &contexts_;
    std::map<CUdevice, CUcontext> retained_;
};

// Maps the piece at an address of its own: the program may have mapped a part only, elsewhere or
// without access.
std::string PhysicalMemory::show(Piece &piece, CUdevice to) {
    const Driver &driver = contexts_.driver();
    CUmemAccessDesc access = {piece.properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    access.location.id = to;
    if (piece.shown_at != 0) {
        return ""; // the driver has not unmapped it yet
    }
    CUdeviceptr address = 0;
    CUresult result = driver.cuMemAddressReserve(&address, piece.size, 0, 0, 0);
    if (result != CUDA_SUCCESS) {
        return failed("cuMemAddressReserve", result);
    }
    result =
        ask_driver<&cuMemMap>(served_cuMemMap, address, piece.size, size_t(0), piece.drivers, 0ull);
    if (result != CUDA_SUCCESS) {
        driver.cuMemAddressFree(address, piece.size);
        return failed("cuMemMap", result);
    }
    piece.shown_at = address;
    result = driver.cuMemSetAccess(address, piece.size, &access, 1);
    return result == CUDA_SUCCESS ? "" : failed("cuMemSetAccess", result);
}

std::string PhysicalMemory::hide(Piece &piece) {
    const CUresult result =
        piece.shown_at == 0 ? CUDA_SUCCESS : unmap_drivers(piece.shown_at, piece.size);
    if (result != CUDA_SUCCESS) {
        return failed("cuMemUnmap", result);
    }
    if (piece.shown_at != 0) {
        contexts_.driver().cuMemAddressFree(std::exchange(piece.shown_at, 0), piece.size);
    }
    return "";
}

// Copies on a stream of emm's own, which does not wait for the program's streams.
CUresult PhysicalMemory::copy_shown(const Driver &driver, Piece &piece, void *bytes, bool to_host) {
    CUstream own = nullptr;
    CUresult result =
        ask_driver<&cuStreamCreate>(served_cuStreamCreate, &own, unsigned(CU_STREAM_NON_BLOCKING));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = to_host ? driver.cuMemcpyDtoHAsync(bytes, piece.shown_at, piece.size, own)
                     : driver.cuMemcpyHtoDAsync(piece.shown_at, bytes, piece.size, own);
    const CUresult ended = driver.cuStreamSynchronize(own);
    ask_driver<&cuStreamDestroy>(served_cuStreamDestroy_v2, own);
    return result == CUDA_SUCCESS ? ended : result;
}

std::string PhysicalMemory::copy(Piece &piece, bool to_host, CopyContexts &contexts) {
    const Driver &driver = contexts_.driver();
    const CopyContexts::Found found = contexts.reaching(piece.device());
    const Current current(driver, found.context);
    if (!found.context || current.result() != CUDA_SUCCESS) {
        return fmt::format("device {} has no context to copy in", piece.device());
    }
    auto made = to_host ? std::make_unique<HostCopy>(piece.size, found.lasts) : nullptr;
    void *const bytes = (made ? *made : *piece.copy).bytes();
    if (!bytes) {
        return fmt::format("no host memory for the copy of {} bytes", piece.size);
    }
    std::string problem = show(piece, found.device);
    if (problem.empty()) {
        const CUresult result = copy_shown(driver, piece, bytes, to_host);
        problem = result == CUDA_SUCCESS ? "" : failed("copy", result);
    }
    const std::string still = hide(piece);
    problem = problem.empty() ? still : problem;
    if (made && problem.empty()) {
        piece.copy = std::move(made);
    }
    return problem;
}

// False: the driver does not tell the access of the memory's own device.
bool PhysicalMemory::find_access(Mapping &mapping, CUdeviceptr address) const {
    const Driver &driver = contexts_.driver();
    int devices = 0;
    CUresult result = driver.cuDeviceGetCount(&devices);
    mapping.access.clear();
    for (int device = 0; device < devices && result == CUDA_SUCCESS; device++) {
        CUmemLocation location = {};
        location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        location.id = device;
        unsigned long long flags = 0;
        const CUresult told = driver.cuMemGetAccess(&flags, &location, address);
        if (told == CUDA_SUCCESS && flags != 0) {
            mapping.access.push_back({location, CUmemAccess_flags(flags)});
        }
        result = device == mapping.piece->device() ? told : result;
    }
    return result == CUDA_SUCCESS;
}

// If a step fails, wake brings back the parts that have gone. Mappings without access go first: the
// driver maps a handle no more whose oldest mapping has ended before them
// (tools/simcuda/README.md).
std::string PhysicalMemory::put_to_sleep(const PiecePtr &piece) {
    if (std::string shown = hide(*piece); !shown.empty()) {
        return shown;
    }
    std::deque<std::pair<CUdeviceptr, Mapping *>> leaving;
    for (const CUdeviceptr address : piece->mapped_at) {
        const auto found = mappings_.find(address);
        if (found == mappings_.end() || !found->second.is_there) {
            continue;
        }
        Mapping &mapping = found->second;
        if (!find_access(mapping, address)) {
            return "the driver does not tell which devices may use the memory (cuMemGetAccess)";
        }
        mapping.access.empty() ? leaving.emplace_front(address, &mapping)
                               : leaving.emplace_back(address, &mapping);
    }
    for (const auto &[address, mapping] : leaving) {
        const CUresult result =
            mapping->is_there ? unmap_drivers(address, mapping->size) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) {
            return failed("cuMemUnmap", result);
        }
        mapping->is_there = false;
    }
    const CUresult result = release_drivers(piece->drivers);
    if (result != CUDA_SUCCESS) {
        return failed("cuMemRelease", result);
    }
    piece->drivers = 0;
    emm_give_driver_memory(std::exchange(piece->charge, 0));
    return "";
}

std::string PhysicalMemory::create(Piece &piece) {
    const emm_driver_memory wanted = {
        sizeof(emm_driver_memory), piece.device(), EMM_MEMORY_PHYSICAL, 0, piece.size, nullptr};
    Charged charged(true, wanted);
    if (charged.is_refused()) {
        return fmt::format("out of device memory: the limit of device {} has no room for {} bytes",
                           piece.device(), piece.size);
    }
    const CUresult result = ask_driver<&cuMemCreate>(
        served_cuMemCreate, &piece.drivers, piece.size,
        static_cast<const CUmemAllocationProp *>(&piece.properties), piece.flags + 0ull);
    if (result != CUDA_SUCCESS) {
        piece.drivers = 0;
        return result == CUDA_ERROR_OUT_OF_MEMORY
                   ? fmt::format("out of device memory: device {} has no room for {} paused bytes",
                                 piece.device(), piece.size)
                   : failed("cuMemCreate", result);
    }
    piece.charge = charged.id();
    charged.keep(nullptr);
    return "";
}

// Wakes a piece that has a handle of the driver's.
std::string PhysicalMemory::wake(const PiecePtr &piece, CopyContexts &contexts) {
    const std::string problem = piece->copy ? copy(*piece, false, contexts) : "";
    if (!problem.empty()) {
        return problem;
    }
    piece->copy.reset();
    for (const CUdeviceptr address : piece->mapped_at) {
        const auto found = mappings_.find(address);
        if (found == mappings_.end() || found->second.is_there) {
            continue;
        }
        Mapping &mapping = found->second;
        CUresult result = ask_driver<&cuMemMap>(served_cuMemMap, address, mapping.size,
                                                mapping.offset, piece->drivers, 0ull);
        if (result != CUDA_SUCCESS) {
            return failed("cuMemMap", result);
        }
        const auto &access = mapping.access;
        if (!access.empty()) {
            result = contexts_.driver().cuMemSetAccess(address, mapping.size, access.data(),
                                                       access.size());
        }
        mapping.is_there =
            result == CUDA_SUCCESS || unmap_drivers(address, mapping.size) != CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) {
            return failed("cuMemSetAccess", result);
        }
    }
    return "";
}

// A piece that still has its copy, because a resume has failed, has no other content.
std::string PhysicalMemory::pause(bool keeps, const Tell &tell, uint64_t &ret_lost) {
    struct Figures {
        uint64_t bytes = 0;
        std::map<std::string, uint64_t> stay; // bytes, by why
    };
    std::map<CUdevice, Figures> figures;
    std::vector<PiecePtr> pieces, awake;
    std::string problem;
    for (const PiecePtr &piece : all()) {
        Figures &found = figures[piece->device()];
        if (piece->stays) {
            found.stay[piece->stays] += piece->size;
        } else if (piece->drivers != 0) {
            found.bytes += piece->size;
            pieces.push_back(piece);
            if (!piece->copy) {
                awake.push_back(piece);
            }
        }
    }
    CopyContexts contexts(contexts_);
    for (size_t i = 0; keeps && i < awake.size() && problem.empty(); i++) {
        problem = copy(*awake[i], true, contexts);
    }
    for (size_t i = 0; i < pieces.size() && problem.empty(); i++) {
        problem = put_to_sleep(pieces[i]);
    }
    if (!problem.empty()) {
        for (const PiecePtr &piece : awake) {
            if (piece->drivers != 0) {
                piece->copy.reset(); // its content is still there
            } else if (!piece->copy) {
                ret_lost += piece->size;
            }
        }
        const std::string still = resume([](CUdevice, uint64_t, const std::string &) {});
        return still.empty() ? problem : fmt::format("{}; it stays asleep: {}", problem, still);
    }
    for (const auto &[device, found] : figures) {
        std::string stays;
        for (const auto &[why, bytes] : found.stay) {
            stays += fmt::format("{}{} bytes stay: {}", stays.empty() ? "" : ", ", bytes, why);
        }
        tell(device, found.bytes, stays);
    }
    return "";
}

// Gets memory for all pieces, or for none.
std::string PhysicalMemory::resume(const Tell &tell) {
    std::map<CUdevice, uint64_t> figures;
    std::vector<PiecePtr> created;
    std::string problem;
    for (const PiecePtr &piece : all()) {
        if (piece->drivers == 0 && problem.empty()) {
            problem = create(*piece);
            if (problem.empty()) {
                created.push_back(piece);
                figures[piece->device()] += piece->size;
            }
        }
    }
    if (!problem.empty()) {
        for (const PiecePtr &piece : created) {
            release_drivers(std::exchange(piece->drivers, 0));
            emm_give_driver_memory(std::exchange(piece->charge, 0));
        }
        return problem;
    }
    CopyContexts contexts(contexts_);
    for (const PiecePtr &piece : all()) {
        problem = problem.empty() ? wake(piece, contexts) : problem;
    }
    for (const auto &[device, bytes] : figures) {
        tell(device, bytes, "");
    }
    return problem;
}

bool PhysicalMemory::sleeps() const {
    const std::lock_guard lock(mutex_);
    return std::any_of(
               pieces_.begin(), pieces_.end(),
               [](const auto &each) { return each.second->drivers == 0 || each.second->copy; }) ||
           std::any_of(mappings_.begin(), mappings_.end(),
                       [](const auto &each) { return !each.second.is_there; });
}

} // namespace emm::run
