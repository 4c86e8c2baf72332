#include "physical.h"

#include "charged.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <utility>

namespace emm::run {
namespace {

using Handle = CUmemGenericAllocationHandle;

// No handle of the driver's looks like it: "EMM" and a number.
constexpr uint64_t first_handle = UINT64_C(0x454d4d) << 40;

std::string failed(const char *call, CUresult result) {
    return fmt::format("the driver's {} failed: {}", call, int(result));
}

CUresult release_drivers(Handle handle) {
    return ask_driver<&cuMemRelease>(served_cuMemRelease, handle);
}

CUresult unmap_drivers(CUdeviceptr address, size_t size) {
    return ask_driver<&cuMemUnmap>(served_cuMemUnmap, address, size);
}

} // namespace

// Pinned as far as the host allows, for the bus; else ordinary.
class PhysicalMemory::HostCopy {
public:
    explicit HostCopy(size_t size) {
        is_pinned_ =
            ask_driver<&cuMemHostAlloc>(served_cuMemHostAlloc, &bytes_, size, 0u) == CUDA_SUCCESS;
        bytes_ = is_pinned_ ? bytes_ : std::malloc(size);
    }
    ~HostCopy() {
        if (is_pinned_) {
            ask_driver<&cuMemFreeHost>(served_cuMemFreeHost, bytes_);
        } else {
            std::free(bytes_);
        }
    }
    HostCopy(const HostCopy &) = delete;
    HostCopy &operator=(const HostCopy &) = delete;
    void *bytes() const { return bytes_; } // NULL: the host has none

private:
    void *bytes_ = nullptr;
    bool is_pinned_ = false;
};

// One allocation. emm has one handle of the driver's, for as long as the program has any or a
// mapping is left.
struct PhysicalMemory::Piece {
    Handle handle = 0;  // the program's
    Handle drivers = 0; // 0: asleep
    size_t size = 0;
    CUmemAllocationProp properties = {};
    uint64_t flags = 0;
    uint64_t charge = 0; // of the device's account
    unsigned references = 1, mappings = 0;
    CUdeviceptr shown_at = 0;       // while it is copied
    const char *stays = nullptr;    // why it does not sleep
    std::unique_ptr<HostCopy> copy; // what it is to have again

    CUdevice device() const { return properties.location.id; }
};

// --- what the program does ---------------------------------------------------------------------

Handle PhysicalMemory::made(Handle drivers, size_t size, const CUmemAllocationProp &properties,
                            uint64_t flags, uint64_t charge) {
    const auto piece = std::make_shared<Piece>();
    piece->drivers = drivers;
    piece->size = size;
    piece->properties = properties;
    piece->flags = flags;
    piece->charge = charge;
    piece->stays = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE
                       ? nullptr
                       : "it is the host's memory";
    const std::lock_guard lock(mutex_);
    piece->handle = first_handle + ++latest_;
    pieces_[piece->handle] = piece;
    return piece->handle;
}

// With the mutex held.
PhysicalMemory::PiecePtr PhysicalMemory::find(Handle handle) const {
    const auto found = pieces_.find(handle);
    return found == pieces_.end() || found->second->references == 0 ? nullptr : found->second;
}

Handle PhysicalMemory::drivers(Handle handle) const {
    const std::lock_guard lock(mutex_);
    const PiecePtr piece = find(handle);
    return piece ? piece->drivers : handle;
}

void PhysicalMemory::stays(Handle handle, const char *why) {
    const std::lock_guard lock(mutex_);
    if (const PiecePtr piece = find(handle)) {
        piece->stays = why;
    }
}

void PhysicalMemory::stays_at(CUdeviceptr address, size_t size, const char *why) {
    const std::lock_guard lock(mutex_);
    for (auto &[begin, mapping] : mappings_) {
        if (begin < address + size && address < begin + mapping.size) {
            mapping.piece->stays = why;
        }
    }
}

// What nothing refers to any more goes back.
void PhysicalMemory::end_if_unused(const PiecePtr &piece) {
    {
        const std::lock_guard lock(mutex_);
        if (piece->references != 0 || piece->mappings != 0 || pieces_.erase(piece->handle) == 0) {
            return;
        }
    }
    if (hide(*piece).empty() && release_drivers(piece->drivers) == CUDA_SUCCESS) {
        emm_give_driver_memory(piece->charge);
    }
}

bool PhysicalMemory::release(Handle handle) {
    PiecePtr piece;
    {
        const std::lock_guard lock(mutex_);
        piece = find(handle);
        if (!piece) {
            return false;
        }
        piece->references--;
    }
    end_if_unused(piece);
    return true;
}

bool PhysicalMemory::retain(CUdeviceptr address, Handle &ret_handle) {
    const std::lock_guard lock(mutex_);
    auto found = mappings_.upper_bound(address);
    if (found == mappings_.begin() || address - (--found)->first >= found->second.size) {
        return false;
    }
    found->second.piece->references++;
    ret_handle = found->second.piece->handle;
    return true;
}

void PhysicalMemory::mapped(CUdeviceptr address, size_t size, size_t offset, Handle handle) {
    const std::lock_guard lock(mutex_);
    const PiecePtr piece = find(handle);
    if (piece) {
        piece->mappings++;
        mappings_[address] = {piece, size, offset, {}, true};
    }
}

// Before the driver has done it: another thread may map there at once. Of a range that the driver
// refuses nothing is unmapped.
CUresult PhysicalMemory::unmap(CUdeviceptr address, size_t size,
                               const std::function<CUresult()> &ask) {
    Mappings taken;
    {
        const std::lock_guard lock(mutex_);
        for (auto each = mappings_.lower_bound(address);
             each != mappings_.end() && each->first - address < size;) {
            taken.insert(mappings_.extract(each++));
        }
    }
    const CUresult result = ask();
    if (result != CUDA_SUCCESS) {
        const std::lock_guard lock(mutex_);
        mappings_.merge(taken);
    }
    for (const auto &[begin, mapping] : taken) {
        {
            const std::lock_guard lock(mutex_);
            mapping.piece->mappings--;
        }
        end_if_unused(mapping.piece);
    }
    return result;
}

// --- sleep and wake ----------------------------------------------------------------------------

std::vector<PhysicalMemory::PiecePtr> PhysicalMemory::all() const {
    std::vector<PiecePtr> found;
    const std::lock_guard lock(mutex_);
    for (const auto &[handle, piece] : pieces_) {
        found.push_back(piece);
    }
    return found;
}

CUcontext PhysicalMemory::context_on(CUdevice device) const {
    emm_context *const lasting = contexts_.lasting_on(device);
    return lasting ? cuda_of(lasting) : contexts_.retained_on(device).context;
}

// At an address of its own: the program's mappings may be in part, elsewhere or without access.
std::string PhysicalMemory::show(Piece &piece) {
    const Driver &driver = contexts_.driver();
    const CUmemAccessDesc access = {piece.properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (piece.shown_at != 0) {
        return ""; // the driver has not unmapped it before
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

// On a stream of emm's own, which waits for none of the program's.
CUresult PhysicalMemory::copy_shown(const Driver &driver, Piece &piece, bool to_host) {
    CUstream own = nullptr;
    CUresult result =
        ask_driver<&cuStreamCreate>(served_cuStreamCreate, &own, unsigned(CU_STREAM_NON_BLOCKING));
    if (result != CUDA_SUCCESS) {
        return result;
    }
    void *const bytes = piece.copy->bytes();
    result = to_host ? driver.cuMemcpyDtoHAsync(bytes, piece.shown_at, piece.size, own)
                     : driver.cuMemcpyHtoDAsync(piece.shown_at, bytes, piece.size, own);
    const CUresult ended = driver.cuStreamSynchronize(own);
    ask_driver<&cuStreamDestroy>(served_cuStreamDestroy_v2, own);
    return result == CUDA_SUCCESS ? ended : result;
}

std::string PhysicalMemory::copy(Piece &piece, bool to_host) {
    const Driver &driver = contexts_.driver();
    const Current current(driver, context_on(piece.device()));
    if (current.result() != CUDA_SUCCESS) {
        return fmt::format("device {} has no context to copy in", piece.device());
    }
    if (to_host) {
        piece.copy = std::make_unique<HostCopy>(piece.size);
        if (!piece.copy->bytes()) {
            return fmt::format("the host has no {} bytes for the copy", piece.size);
        }
    }
    std::string problem = show(piece);
    if (problem.empty()) {
        const CUresult result = copy_shown(driver, piece, to_host);
        problem = result == CUDA_SUCCESS ? "" : failed("copy", result);
    }
    const std::string still = hide(piece);
    return problem.empty() ? still : problem;
}

// False: the driver does not tell what its own device may do.
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

// What has gone comes back by wake if it fails on the way.
std::string PhysicalMemory::put_to_sleep(const PiecePtr &piece) {
    if (std::string shown = hide(*piece); !shown.empty()) {
        return shown;
    }
    for (auto &[address, mapping] : mappings_) {
        if (mapping.piece != piece || !mapping.is_there) {
            continue;
        }
        if (!find_access(mapping, address)) {
            return "the driver does not tell who may use the memory (cuMemGetAccess)";
        }
        const CUresult result = unmap_drivers(address, mapping.size);
        if (result != CUDA_SUCCESS) {
            return failed("cuMemUnmap", result);
        }
        mapping.is_there = false;
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
        return fmt::format("out of memory: the bound of device {} has no room for {} bytes",
                           piece.device(), piece.size);
    }
    const CUresult result = ask_driver<&cuMemCreate>(
        served_cuMemCreate, &piece.drivers, piece.size,
        static_cast<const CUmemAllocationProp *>(&piece.properties), piece.flags + 0ull);
    if (result != CUDA_SUCCESS) {
        piece.drivers = 0;
        return result == CUDA_ERROR_OUT_OF_MEMORY
                   ? fmt::format("out of memory: device {} has no {} bytes for what was put to "
                                 "sleep",
                                 piece.device(), piece.size)
                   : failed("cuMemCreate", result);
    }
    piece.charge = charged.id();
    charged.keep(nullptr);
    return "";
}

// Of one that has a handle of the driver's.
std::string PhysicalMemory::wake(const PiecePtr &piece) {
    const std::string problem = piece->copy ? copy(*piece, false) : "";
    if (!problem.empty()) {
        return problem;
    }
    piece->copy.reset();
    for (auto &[address, mapping] : mappings_) {
        if (mapping.piece != piece || mapping.is_there) {
            continue;
        }
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

std::string PhysicalMemory::pause(bool keeps, const Tell &tell, uint64_t &ret_lost) {
    struct Figures {
        uint64_t bytes = 0;
        std::map<std::string, uint64_t> stay; // bytes, by why
    };
    std::map<CUdevice, Figures> figures;
    std::vector<PiecePtr> pieces;
    std::string problem;
    for (const PiecePtr &piece : all()) {
        Figures &found = figures[piece->device()];
        if (piece->stays) {
            found.stay[piece->stays] += piece->size;
        } else if (piece->drivers != 0) {
            found.bytes += piece->size;
            pieces.push_back(piece);
        }
    }
    for (size_t i = 0; keeps && i < pieces.size() && problem.empty(); i++) {
        problem = copy(*pieces[i], true);
    }
    for (size_t i = 0; i < pieces.size() && problem.empty(); i++) {
        problem = put_to_sleep(pieces[i]);
    }
    if (!problem.empty()) {
        for (const PiecePtr &piece : pieces) {
            if (piece->drivers != 0) {
                piece->copy.reset(); // its content has not gone
            } else if (!piece->copy) {
                ret_lost += piece->size;
            }
        }
        const std::string still = resume([](CUdevice, uint64_t, const std::string &) {});
        return still.empty() ? problem : fmt::format("{}; it goes on sleeping: {}", problem, still);
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

// Memory for all, or for none.
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
    for (const PiecePtr &piece : all()) {
        problem = problem.empty() ? wake(piece) : problem;
    }
    for (const auto &[device, bytes] : figures) {
        tell(device, bytes, "");
    }
    return problem;
}

bool PhysicalMemory::any() const {
    const std::lock_guard lock(mutex_);
    return !pieces_.empty();
}

bool PhysicalMemory::sleeps() const {
    const std::lock_guard lock(mutex_);
    return std::any_of(pieces_.begin(), pieces_.end(),
                       [](const auto &each) { return each.second->drivers == 0; }) ||
           std::any_of(mappings_.begin(), mappings_.end(),
                       [](const auto &each) { return !each.second.is_there; });
}

} // namespace emm::run
