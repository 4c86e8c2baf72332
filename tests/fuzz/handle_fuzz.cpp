// Any bytes with a right checksum are either a handle of a kind that is opened here, and that its
// name names, or are refused in a sentence.
#include "file.h"
#include "observe/error.h"
#include "sharing/handle/stamp.h"

#include <cstddef>
#include <cstring>

using namespace emm;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    emm_ipc_handle handle = {};
    std::memcpy(&handle, data, std::min(size, sizeof handle));
    const bool told = sharing::check_handle(handle) == EMM_OK; // as it came
    if (!told) {
        require_sentence(observe::last_error()->text);
    }
    handle.checksum = sharing::checksum_of(&handle, offsetof(emm_ipc_handle, checksum));
    emm_ipc_name name = {};
    if (sharing::check_handle(handle) == EMM_OK) {
        require(handle.size > 0 && handle.offset <= handle.exported_size &&
                    handle.size <= handle.exported_size - handle.offset,
                "an accepted handle's memory lies within the export");
    }
    if (size >= sizeof name) {
        std::memcpy(&name, data, sizeof name);
        sharing::is_name(&name);
        sharing::handle_of(name);
    }
    return 0;
}
