#include "sharing/handle/stamp.h"

#include "core/record/context.h"
#include "observe/error.h"
#include "sharing/handle/wire.h"

#include <cstring>

namespace emm::sharing {
namespace {

constexpr uint32_t expected_magic = 0x696d6d65; // "emmi"
constexpr uint32_t expected_version = 3;

uint32_t checksum_of(const emm_ipc_handle &handle) noexcept {
    return sharing::checksum_of(&handle, offsetof(emm_ipc_handle, checksum));
}

emm_status check_form(const emm_ipc_handle &handle) {
    if (handle.magic != expected_magic) {
        return observe::refuse("an IPC handle's magic: expected {:#x}, found {:#x}", expected_magic,
                               handle.magic);
    }
    if (handle.version != expected_version) {
        return observe::refuse("an IPC handle's version: expected {}, found {}", expected_version,
                               handle.version);
    }
    if (const uint32_t sum = checksum_of(handle); handle.checksum != sum) {
        return observe::refuse("an IPC handle's checksum: expected {:#x}, found {:#x}", sum,
                               handle.checksum);
    }
    if (handle.size == 0 || handle.size > handle.exported_size ||
        handle.offset > handle.exported_size - handle.size) {
        return observe::refuse(
            "an IPC handle's part: expected 1 or more of {} bytes, found {} at offset {}",
            handle.exported_size, handle.size, handle.offset);
    }
    return EMM_OK;
}

// A part is at least 4 KiB, wherever CUDA runs.
emm_status check_parts(const emm_ipc_handle &handle) {
    DescriptorHandle it;
    std::memcpy(&it, handle.handle, sizeof it);
    const uint64_t most = handle.exported_size / 4096;
    if (it.parts == 0 || it.parts > most) {
        return observe::refuse("an IPC handle's number of parts: expected 1 to {}, found {}", most,
                               it.parts);
    }
    for (const uint8_t byte : it.zeros) {
        if (byte != 0) {
            return observe::refuse("an IPC handle's unused bytes: expected zeros, found {}", byte);
        }
    }
    return EMM_OK;
}

emm_status check_kind(const emm_ipc_handle &handle) {
    if (handle.kind == EMM_IPC_LEGACY || handle.kind == EMM_IPC_POOL) {
        return EMM_OK;
    }
    if (handle.kind == EMM_IPC_FILE_DESCRIPTOR) {
        return check_parts(handle);
    }
    if (handle.kind == EMM_IPC_FABRIC) {
        return observe::fail(EMM_E_NOT_SUPPORTED, 0,
                             "an IPC handle's kind: expected legacy, file descriptors or a memory "
                             "pool, which this host opens, found fabric");
    }
    return observe::refuse("an IPC handle's kind: expected 1 to 4, found {}", handle.kind);
}

// Identifies the allocation within its process by a number that is never reused, unlike the address
// and the driver's handle. Descriptors need no such number, because each export has its own secret.
emm_status identify_memory(const emm_context &context, emm_deviceptr ptr, uint32_t kind,
                           uint64_t &ret_id) {
    ret_id = 0;
    if (kind != EMM_IPC_LEGACY && kind != EMM_IPC_POOL) {
        return EMM_OK;
    }
    const driver::Driver &driver = context.driver;
    const driver::Current current(driver, context.cuda_context, context.id);
    EMM_TRY(current.status());
    unsigned long long id = 0;
    const CUresult result = driver.cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, ptr);
    ret_id = id;
    return driver::check(result, "cuPointerGetAttribute(CU_POINTER_ATTRIBUTE_BUFFER_ID)");
}

} // namespace

emm_status stamp(const emm_context &context, emm_deviceptr ptr, emm_ipc_handle &handle) {
    handle.magic = expected_magic;
    handle.version = expected_version;
    handle.flags = network_namespace();
    std::memcpy(handle.device_uuid, context.uuid, sizeof handle.device_uuid);
    handle.pci_domain = context.pci[0];
    handle.pci_bus = context.pci[1];
    handle.pci_device = context.pci[2];
    uint8_t nonce[8];
    uint64_t memory = 0;
    EMM_TRY(get_nonce(nonce));
    EMM_TRY(identify_memory(context, ptr, handle.kind, memory));
    static_assert(sizeof nonce + sizeof memory == sizeof handle.nonce);
    std::memcpy(handle.nonce, nonce, sizeof nonce);
    std::memcpy(handle.nonce + sizeof nonce, &memory, sizeof memory);
    handle.checksum = checksum_of(handle);
    return check_form(handle); // checked, because a plugin may have filled it
}

emm_status check_handle(const emm_ipc_handle &handle) {
    EMM_TRY(check_form(handle));
    return check_kind(handle);
}

emm_status check_exporter(const uint8_t *nonce) {
    uint8_t own[8];
    EMM_TRY(get_nonce(own));
    if (std::memcmp(nonce, own, sizeof own) == 0) {
        return observe::refuse(
            "the IPC handle was exported by this process; use the memory's own address");
    }
    return EMM_OK;
}

uint32_t checksum_of(const void *bytes, size_t size) noexcept {
    uint32_t sum = ~0u;
    for (size_t i = 0; i < size; ++i) {
        sum ^= static_cast<const unsigned char *>(bytes)[i];
        for (int bit = 0; bit < 8; ++bit) {
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        }
    }
    return ~sum;
}

namespace {

constexpr uint8_t name_begin[7] = {'e', 'm', 'm', '-', 'i', 'p', 'c'};
constexpr uint8_t name_version = 2;

struct NameContent {
    uint8_t begin[7];
    uint8_t version;
    uint8_t nonce[8]; // of the exporting process
    uint64_t generation;
    uint8_t proof[32]; // of handle.handle, folded
    uint32_t network;  // the exporter's network namespace
    uint32_t checksum; // of all bytes before it
};
static_assert(sizeof(NameContent) == sizeof(emm_ipc_name));

NameContent content_of(const emm_ipc_name &name) noexcept {
    NameContent content;
    std::memcpy(&content, name.bytes, sizeof content);
    return content;
}

uint32_t checksum_of(const NameContent &content) noexcept {
    return sharing::checksum_of(&content, offsetof(NameContent, checksum));
}

} // namespace

bool is_name(const void *bytes) noexcept {
    return std::memcmp(bytes, name_begin, sizeof name_begin) == 0;
}

// The name has no room for the handle's whole secret, so its two halves are folded together.
emm_ipc_name write_name(const emm_ipc_handle &handle) noexcept {
    NameContent content = {};
    std::memcpy(content.begin, name_begin, sizeof content.begin);
    content.version = name_version;
    std::memcpy(content.nonce, handle.nonce, sizeof content.nonce);
    content.generation = handle.generation;
    for (size_t i = 0; i < sizeof content.proof; ++i) {
        content.proof[i] = handle.handle[i] ^ handle.handle[i + sizeof content.proof];
    }
    content.network = handle.flags;
    content.checksum = checksum_of(content);
    emm_ipc_name name;
    std::memcpy(name.bytes, &content, sizeof content);
    return name;
}

emm_status check_name(const emm_ipc_name &name) {
    const NameContent content = content_of(name);
    if (!is_name(&content)) {
        return observe::refuse("an export's name: expected one that begins with 'emm-ipc', found "
                               "other bytes");
    }
    if (content.version != name_version) {
        return observe::refuse("the version of an export's name: expected {}, found {}",
                               name_version, content.version);
    }
    if (const uint32_t sum = checksum_of(content); content.checksum != sum) {
        return observe::refuse("the checksum of an export's name: expected {:#x}, found {:#x}", sum,
                               content.checksum);
    }
    return check_exporter(content.nonce);
}

emm_ipc_handle handle_of(const emm_ipc_name &name) noexcept {
    const NameContent content = content_of(name);
    emm_ipc_handle known = {};
    std::memcpy(known.nonce, content.nonce, sizeof content.nonce);
    known.generation = content.generation;
    known.flags = content.network;
    return known;
}

} // namespace emm::sharing
