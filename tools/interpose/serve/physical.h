// Memory of cuMemCreate in a program that was started with --pausable. The program gets handles of
// emm's, because the driver's change: while such memory sleeps, it has neither a handle nor
// mappings, and its content lies in host memory. Memory that is shared with other processes, or
// bound elsewhere, stays.
//
// Any thread may call the entries. pause and resume come one at a time, while the calls are held:
// then no thread is within an entry.
#pragma once

#include "contexts.h"

#include <functional>
#include <memory>
#include <string>

namespace emm::run {

class PhysicalMemory {
public:
    explicit PhysicalMemory(Contexts &contexts) : contexts_(contexts) {}

    // Records memory that the driver has made for the program. Gives the program's handle.
    CUmemGenericAllocationHandle made(CUmemGenericAllocationHandle drivers, size_t size,
                                      const CUmemAllocationProp &properties, uint64_t flags,
                                      uint64_t charge);
    // The driver's handle for the program's; a handle that is not emm's stays as it is.
    CUmemGenericAllocationHandle drivers(CUmemGenericAllocationHandle handle) const;
    // The memory must not sleep from now on. `why`: a text that stays valid.
    void stays(CUmemGenericAllocationHandle handle, const char *why);
    void stays_at(CUdeviceptr address, size_t size, const char *why);
    // False: the handle is not emm's, or no memory of emm's is mapped there.
    bool release(CUmemGenericAllocationHandle handle);
    bool retain(CUdeviceptr address, CUmemGenericAllocationHandle &ret_handle);
    // Adds a handle of the memory that has this handle of the driver's, and gives it; 0: the memory
    // is not emm's.
    CUmemGenericAllocationHandle imported(CUmemGenericAllocationHandle drivers);
    void mapped(CUdeviceptr address, size_t size, size_t offset,
                CUmemGenericAllocationHandle handle);
    CUresult unmap(CUdeviceptr address, size_t size,
                   const std::function<CUresult()> &ask); // `ask` asks the driver

    // For each device: the bytes that went or came, and the part that stays.
    using Tell = std::function<void(CUdevice, uint64_t bytes, const std::string &stays)>;
    // "": done. Else the reason of a failure: nothing has changed, except that without `keeps` the
    // content of `ret_lost` bytes is lost.
    std::string pause(bool keeps, const Tell &tell, uint64_t &ret_lost);
    std::string resume(const Tell &tell);
    bool sleeps() const;
    bool any() const; // whether the program has memory of cuMemCreate

private:
    class CopyContexts;
    class HostCopy;
    struct Piece;
    using PiecePtr = std::shared_ptr<Piece>;
    struct Mapping {
        PiecePtr piece;
        size_t size = 0, offset = 0;
        std::vector<CUmemAccessDesc> access; // of the time while it is away
        bool is_there = true;
    };
    using Mappings = std::map<CUdeviceptr, Mapping>;

    // --- physical.cpp
    PiecePtr find(CUmemGenericAllocationHandle handle) const;
    void end_if_unused(const PiecePtr &piece);

    // --- physical_pause.cpp
    std::vector<PiecePtr> all() const;
    static CUresult copy_shown(const Driver &driver, Piece &piece, void *bytes, bool to_host);
    std::string copy(Piece &piece, bool to_host, CopyContexts &contexts);
    std::string show(Piece &piece, CUdevice to);
    std::string hide(Piece &piece);
    std::string put_to_sleep(const PiecePtr &piece);
    std::string create(Piece &piece);
    std::string wake(const PiecePtr &piece, CopyContexts &contexts);
    bool find_access(Mapping &mapping, CUdeviceptr address) const;

    Contexts &contexts_;
    mutable std::mutex mutex_;
    uint64_t latest_ = 0;
    std::map<CUmemGenericAllocationHandle, PiecePtr> pieces_;
    Mappings mappings_;
};

} // namespace emm::run
