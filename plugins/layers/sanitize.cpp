// sanitize: a layer that reports allocations to NVIDIA's compute-sanitizer, by NVTX's memory
// interface. So memcheck finds accesses past a block and after its free in any plugin's memory:
//
//     heap     an allocation of cuMemAlloc's, from the first block in it on; compute-sanitizer 13.0
//              refuses one of mapped memory or of a memory pool, and counts that as an error
//     region   a block, or the part of it that lies in one heap
//
// A freed block's region ends when the work that may use the block is over: a free waits for its
// stream, or for the context. Beside a capture it cannot wait, and a graph's memory is used at each
// launch: such a region stays until its addresses are handed out again. If the driver gets a heap
// back, the tool forgets the heap by itself.
//
// Without a tool the table has no slots, and costs nothing.
#include "common/driver.h"
#include "common/graph_hold.h"
#include "common/streams.h"

#include <emm/plugin_helpers.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <nvtx3/nvToolsExtMem.h>
#include <string>
#include <utility>

namespace emm::sanitize {
namespace {

using namespace common;

struct SanitizeDriver : StreamDriver {
    explicit SanitizeDriver(const emm_host &host) : StreamDriver(host) { expect_complete(); }

    EMM_CUDA_REQUIRED(cuPointerGetAttributes);
};

// The driver's allocation or mapping around an address. The driver never reuses an id.
struct Range {
    CUdeviceptr begin = 0;
    size_t size = 0; // 0: nothing
    unsigned long long id = 0;
    bool is_checked = false; // by compute-sanitizer: it is of cuMemAlloc

    CUdeviceptr end() const { return begin + size; }
    bool operator==(const Range &) const = default;
};

struct Heap {
    Range range;
    nvtxMemHeapHandle_t handle; // NULL: the tool has refused the heap
};

struct Block {
    size_t size = 0;
    bool used_elsewhere = false; // record_use
    bool is_told = false;        // false: the driver failed, or there was no memory for the report
};

class Manager {
public:
    Manager(const emm_host &host, const emm_context_info &info, const char *const *);
    ~Manager();
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    emm_status memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr);
    emm_status memfree(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status record_use(emm_deviceptr ptr, size_t size, emm_stream stream);
    emm_status stream_notice(emm_stream stream, uint32_t notice);
    emm_status trim(size_t keep_bytes, size_t *ret_released);
    emm_status reset();

private:
    using Blocks = std::map<emm_deviceptr, Block>;

    bool is_work_over(emm_stream stream, bool everywhere) noexcept;
    CUresult look_up(emm_deviceptr ptr, Range &ret) const noexcept;
    void add_block(Blocks::node_type block) noexcept;
    void add_heap(const Range &range);
    void warn_of_other_memory() noexcept;
    bool add_heaps(emm_deviceptr ptr, size_t size) noexcept;
    void tell_regions(emm_deviceptr ptr, const Block &block) noexcept;
    void tell_region(const Heap &heap, emm_deviceptr ptr, size_t size) noexcept;
    void withdraw_regions(emm_deviceptr ptr, const Block &block) noexcept;
    template <class Visit>
    void each_part(emm_deviceptr ptr, const Block &block, Visit visit) noexcept;
    void withdraw_region(emm_deviceptr begin) noexcept;
    void forget_lost_heaps() noexcept;
    void forget_everything() noexcept;

    const emm_plugin *const below;
    emm_manager *const *const below_managers;
    const emm_host &host_;
    const std::string name_;
    const SanitizeDriver driver_;
    const nvtxDomainHandle_t domain_; // NULL under compute-sanitizer, which needs none
    const PrivateStream waits_;
    ContextWait wait_;
    std::mutex mutex_; // guards the members below and the calls of the tool
    std::map<CUdeviceptr, Heap> heaps_;
    Blocks live_, freed_; // freed_: still reported to the tool
    unsigned long long told_ = 0;
    bool has_warned_ = false;
};

Manager::Manager(const emm_host &host, const emm_context_info &info, const char *const *)
    : below(info.below), below_managers(info.below_managers), host_(host),
      name_(std::string("emm") + (*info.pool ? " pool " : "") + info.pool), driver_(host),
      domain_(nvtxDomainCreateA("emm")), waits_(driver_, info.cuda_context, info.context_id),
      wait_(driver_, info.cuda_context) {}

Manager::~Manager() {
    forget_everything();
    nvtxDomainDestroy(domain_);
}

emm_status Manager::memalloc(size_t size, emm_stream stream, emm_deviceptr *ret_ptr) {
    Blocks made; // made before the memory
    made[0].size = size;
    const emm_status status = EMM_BELOW(this, memalloc, size, stream, ret_ptr);
    if (status < EMM_OK) {
        return status;
    }
    Blocks::node_type block = made.extract(made.begin());
    block.key() = *ret_ptr;
    add_block(std::move(block));
    return status;
}

emm_status Manager::memfree(emm_deviceptr ptr, size_t size, emm_stream stream) {
    Blocks::node_type block;
    {
        const std::lock_guard lock(mutex_);
        const auto found = live_.find(ptr);
        if (found != live_.end() && (size == 0 || size == found->second.size)) {
            block = live_.extract(found);
        }
    }
    if (block.empty()) { // such a free is refused below
        return EMM_BELOW(this, memfree, ptr, size, stream);
    }
    const Block its = block.mapped();
    const bool is_over = is_work_over(stream, its.used_elsewhere);
    {
        const std::lock_guard lock(mutex_); // before another thread can have the address
        freed_.insert(std::move(block));
        if (is_over) {
            withdraw_regions(ptr, its);
            block = freed_.extract(ptr);
        }
    }
    const emm_status status = EMM_BELOW(this, memfree, ptr, size, stream);
    if (status < EMM_OK) {
        const std::lock_guard lock(mutex_);
        live_.insert(is_over ? std::move(block) : freed_.extract(ptr));
        if (is_over) {
            tell_regions(ptr, its);
        }
    }
    return status;
}

// Waits for the work, except beside a capture.
bool Manager::is_work_over(emm_stream stream, bool everywhere) noexcept {
    const RelaxedCapture relaxed(driver_);
    try {
        if (capture_of(driver_, stream).active) {
            return false;
        }
    } catch (const PluginError &) {
        return false;
    }
    if (everywhere || stream == EMM_STREAM_UNORDERED) {
        return wait_.unless_capturing(waits_) == CUDA_SUCCESS &&
               driver_.cuStreamSynchronize(waits_) == CUDA_SUCCESS;
    }
    return driver_.cuStreamSynchronize(stream) == CUDA_SUCCESS;
}

// An empty range if the driver has no allocation there.
CUresult Manager::look_up(emm_deviceptr ptr, Range &ret) const noexcept {
    Range range;
    unsigned char has_legacy_ipc[8] = {}; // only memory of cuMemAlloc has; the first byte tells
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE};
    void *values[] = {&range.begin, &range.size, &range.id, has_legacy_ipc};
    const RelaxedCapture relaxed(driver_);
    const CUresult result = driver_.cuPointerGetAttributes(4, which, values, ptr);
    range.is_checked = has_legacy_ipc[0] != 0;
    ret = result == CUDA_SUCCESS && range.begin ? range : Range();
    return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

// A recorded block that overlaps the new one was freed in a capture, and has ended.
void Manager::add_block(Blocks::node_type block) noexcept {
    const emm_deviceptr ptr = block.key(), end = ptr + block.mapped().size;
    const std::lock_guard lock(mutex_);
    auto old = freed_.lower_bound(end);
    while (old != freed_.begin() && std::prev(old)->first + std::prev(old)->second.size > ptr) {
        old = std::prev(old);
        withdraw_regions(old->first, old->second);
        old = freed_.erase(old);
    }
    block.mapped().is_told = add_heaps(ptr, block.mapped().size);
    tell_regions(ptr, block.mapped());
    live_.insert(std::move(block));
}

// False: the tool learns of no block there.
bool Manager::add_heaps(emm_deviceptr ptr, size_t size) noexcept {
    for (emm_deviceptr at = ptr; at < ptr + size;) {
        Range range;
        if (look_up(at, range) != CUDA_SUCCESS || range.size == 0) {
            return false;
        }
        if (!range.is_checked) {
            warn_of_other_memory();
            return false;
        }
        try {
            add_heap(range);
        } catch (const std::bad_alloc &) {
            return false;
        }
        at = range.end();
    }
    return true;
}

void Manager::tell_regions(emm_deviceptr ptr, const Block &block) noexcept {
    each_part(ptr, block, [this](const Heap &heap, emm_deviceptr begin, emm_deviceptr end) {
        tell_region(heap, begin, end - begin);
    });
}

void Manager::withdraw_regions(emm_deviceptr ptr, const Block &block) noexcept {
    each_part(ptr, block,
              [this](const Heap &, emm_deviceptr begin, emm_deviceptr) { withdraw_region(begin); });
}

// Visits the parts of a block in heaps. If the driver has a heap back, its parts are gone too.
template <class Visit>
void Manager::each_part(emm_deviceptr ptr, const Block &block, Visit visit) noexcept {
    const emm_deviceptr last = block.is_told ? ptr + block.size : ptr;
    auto heap = heaps_.upper_bound(ptr);
    heap = heap == heaps_.begin() ? heap : std::prev(heap);
    for (; heap != heaps_.end() && heap->first < last; ++heap) {
        const emm_deviceptr begin = std::max(ptr, heap->first);
        const emm_deviceptr end = std::min(last, heap->second.range.end());
        if (heap->second.handle && begin < end) {
            visit(heap->second, begin, end);
        }
    }
}

void Manager::tell_region(const Heap &heap, emm_deviceptr ptr, size_t size) noexcept {
    nvtxMemVirtualRangeDesc_t region = {};
    region.size = size;
    region.ptr = reinterpret_cast<const void *>(ptr);
    nvtxMemRegionsRegisterBatch_t batch = {};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.regionType = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    batch.heap = heap.handle;
    batch.regionCount = 1;
    batch.regionDescElementSize = sizeof region;
    batch.regionDescElements = &region;
    nvtxMemRegionsRegister(domain_, &batch);

    char text[128];
    snprintf(text, sizeof text, "%s block %llu", name_.c_str(), ++told_);
    nvtxMemRegionNameDesc_t name = {};
    name.regionRefType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    name.nameType = NVTX_MESSAGE_TYPE_ASCII;
    name.region.pointer = region.ptr;
    name.name.ascii = text;
    nvtxMemRegionsNameBatch_t names = {};
    names.extCompatID = NVTX_EXT_COMPATID_MEM;
    names.structSize = sizeof names;
    names.regionCount = 1;
    names.regionElementSize = sizeof name;
    names.regionElements = &name;
    nvtxMemRegionsName(domain_, &names);
}

// If the tool does not know the heap yet, the live blocks in it are reported too. Their memory went
// back to the driver and came again, in a pause.
void Manager::add_heap(const Range &range) {
    const auto known = heaps_.find(range.begin);
    if (known != heaps_.end() && known->second.range == range) {
        return;
    }
    auto old = heaps_.lower_bound(range.end());
    while (old != heaps_.begin() && std::prev(old)->second.range.end() > range.begin) {
        old = heaps_.erase(std::prev(old));
    }
    Heap &heap = heaps_[range.begin];
    nvtxMemVirtualRangeDesc_t bytes = {};
    bytes.size = range.size;
    bytes.ptr = reinterpret_cast<const void *>(range.begin);
    nvtxMemHeapDesc_t desc = {};
    desc.extCompatID = NVTX_EXT_COMPATID_MEM;
    desc.structSize = sizeof desc;
    desc.usage = NVTX_MEM_HEAP_USAGE_TYPE_SUB_ALLOCATOR;
    desc.type = NVTX_MEM_TYPE_VIRTUAL_ADDRESS;
    desc.typeSpecificDescSize = sizeof bytes;
    desc.typeSpecificDesc = &bytes;
    desc.messageType = NVTX_MESSAGE_TYPE_ASCII;
    desc.message.ascii = name_.c_str();
    heap = {range, nvtxMemHeapRegister(domain_, &desc)};
    for (const Blocks *const blocks : {&live_, &freed_}) {
        for (auto block = blocks->lower_bound(range.end()); block != blocks->begin();) {
            --block;
            const emm_deviceptr begin = std::max(block->first, range.begin);
            const emm_deviceptr end = std::min(block->first + block->second.size, range.end());
            if (end <= begin) {
                break;
            }
            if (heap.handle && block->second.is_told) {
                tell_region(heap, begin, end - begin);
            }
        }
    }
}

void Manager::warn_of_other_memory() noexcept {
    if (!std::exchange(has_warned_, true)) {
        host_.log(EMM_LOG_WARN,
                  "sanitize: compute-sanitizer checks inside memory of cuMemAlloc alone, and this "
                  "plugin has other: expected one such as pool:growth=segment");
    }
}

void Manager::withdraw_region(emm_deviceptr begin) noexcept {
    nvtxMemRegionRef_t region = {};
    region.pointer = reinterpret_cast<const void *>(begin);
    nvtxMemRegionsUnregisterBatch_t batch = {};
    batch.extCompatID = NVTX_EXT_COMPATID_MEM;
    batch.structSize = sizeof batch;
    batch.refType = NVTX_MEM_REGION_REF_TYPE_POINTER;
    batch.refCount = 1;
    batch.refElementSize = sizeof region;
    batch.refElements = &region;
    nvtxMemRegionsUnregister(domain_, &batch);
}

emm_status Manager::record_use(emm_deviceptr ptr, size_t size, emm_stream stream) {
    const emm_status status = EMM_BELOW(this, record_use, ptr, size, stream);
    const std::lock_guard lock(mutex_);
    const auto after = live_.upper_bound(ptr);
    if (status >= EMM_OK && after != live_.begin()) {
        std::prev(after)->second.used_elsewhere = true;
    }
    return status;
}

emm_status Manager::stream_notice(emm_stream stream, uint32_t notice) {
    const emm_status status = EMM_BELOW(this, stream_notice, stream, notice);
    if (status >= EMM_OK || notice == EMM_STREAM_CAPTURE_ENDS) {
        wait_.notice(notice);
    }
    return status;
}

emm_status Manager::trim(size_t keep_bytes, size_t *ret_released) {
    const emm_status status = EMM_BELOW(this, trim, keep_bytes, ret_released);
    forget_lost_heaps();
    return status;
}

void Manager::forget_lost_heaps() noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(heaps_, [this](const auto &each) {
        Range now;
        return look_up(each.first, now) == CUDA_SUCCESS && !(now == each.second.range);
    });
}

emm_status Manager::reset() {
    forget_everything();
    return EMM_OK;
}

// Called while the memory still exists.
void Manager::forget_everything() noexcept {
    forget_lost_heaps();
    const std::lock_guard lock(mutex_);
    for (const Blocks *const blocks : {&live_, &freed_}) {
        for (const auto &[ptr, block] : *blocks) {
            withdraw_regions(ptr, block);
        }
    }
    for (const auto &[begin, heap] : heaps_) {
        if (heap.handle) {
            nvtxMemHeapUnregister(domain_, heap.handle);
        }
    }
    live_.clear();
    freed_.clear();
    heaps_.clear();
}

// The table without a tool.
struct Nothing {
    Nothing(const emm_host &, const emm_context_info &, const char *const *) {}
};

constexpr const char *says =
    "Tells compute-sanitizer of each block, so that it checks inside pools";

} // namespace
} // namespace emm::sanitize

EMM_LAYER_ENTRY(const emm_host *) {
    using namespace emm::sanitize;
    static const emm_plugin table = [] {
        const char *const tool = secure_getenv("NVTX_INJECTION64_PATH");
        if (tool && *tool) {
            return emm::make_plugin<Manager>("sanitize", EMM_VERSION, says,
                                             ~EMM_PLUGIN_STREAM_ORDERED);
        }
        emm_plugin idle =
            emm::make_plugin<Nothing>("sanitize", EMM_VERSION, says, ~EMM_PLUGIN_NEEDS_CURRENT);
        idle.memalloc = nullptr;
        idle.memfree = nullptr;
        return idle;
    }();
    return &table;
}
