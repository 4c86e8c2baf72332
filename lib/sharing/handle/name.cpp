#include "sharing/handle/name.h"

#include "observe/error.h"
#include "sharing/handle/stamp.h"

#include <cstddef>
#include <cstring>

namespace emm::sharing {
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
    uint32_t checksum; // of everything before it
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

emm_status check_content(const NameContent &content) {
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

} // namespace

bool is_name(const void *bytes) noexcept {
    return std::memcmp(bytes, name_begin, sizeof name_begin) == 0;
}

// There is no room for all of what the handle has: both halves count.
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

emm_status name_handle(const emm_ipc_handle &handle, emm_ipc_name *ret_name) {
    EMM_TRY(check_handle(handle));
    *ret_name = write_name(handle);
    return EMM_OK;
}

uint64_t generation_of(const emm_ipc_name &name) noexcept {
    return content_of(name).generation;
}

emm_status check_name(const emm_ipc_name &name) {
    return check_content(content_of(name));
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
